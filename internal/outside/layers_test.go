package outside_test

import "math"

// The layers around attention, as the comments of packages op and graph define them, with
// bounds on the error in float32.

// matrix is a weight [rows, cols] and its bias, nil for none.
type matrix struct {
	rows, cols int
	w, bias    []float32
}

// linear is x Wᵀ + bias of every token of x.
func (m *matrix) linear(x array) array {
	tokens := len(x.v) / m.cols
	y := newArray(tokens * m.rows)
	for t := range tokens {
		for r := range m.rows {
			var sum, size, inherited float64
			for c := range m.cols {
				w, at := float64(m.w[r*m.cols+c]), t*m.cols+c
				sum += w * x.v[at]
				size += math.Abs(w) * (math.Abs(x.v[at]) + x.e[at])
				inherited += math.Abs(w) * x.e[at]
			}
			if m.bias != nil {
				sum += float64(m.bias[r])
				size += math.Abs(float64(m.bias[r]))
			}
			y.v[t*m.rows+r] = sum
			y.e[t*m.rows+r] = inherited + unit*float64(m.cols+4)*size + tiny
		}
	}
	return y
}

// add is a + b.
func add(a, b array) array {
	y := newArray(len(a.v))
	for i := range y.v {
		y.v[i] = a.v[i] + b.v[i]
		y.e[i] = a.e[i] + b.e[i] + 2*unit*(math.Abs(a.v[i])+math.Abs(b.v[i]))
	}
	return y
}

// rmsNorm is weight * x / sqrt(mean(x²) + eps) over the features of each token.
func rmsNorm(x array, weight []float32, eps float64) array {
	features := len(weight)
	y := newArray(len(x.v))
	for from := 0; from < len(x.v); from += features {
		var mean, inherited float64
		for d := range features {
			v, e := math.Abs(x.v[from+d]), x.e[from+d]
			mean += v * v / float64(features)
			inherited += (2*v*e + e*e) / float64(features)
		}
		m := mean + eps
		off := inherited + unit*float64(features+8)*m
		r := 1 / math.Sqrt(m)
		dr := 8 * unit * r
		if off < m/2 {
			dr += 1/math.Sqrt(m-off) - r
		} else {
			dr = math.Inf(1)
		}
		for d := range features {
			w, v, e := float64(weight[d]), x.v[from+d], x.e[from+d]
			y.v[from+d] = w * v * r
			y.e[from+d] = math.Abs(w)*(r*e+(math.Abs(v)+e)*dr) + 4*unit*math.Abs(w*v*r) + tiny
		}
	}
	return y
}

// splitHeads takes count heads of dim features, from head first on, out of x
// [batch, n, features]: [batch, count, n, dim].
func splitHeads(x array, batch, n, first, count, dim int) array {
	features := len(x.v) / (batch * n)
	y := newArray(batch * count * n * dim)
	for b := range batch {
		for h := range count {
			for i := range n {
				to, from := ((b*count+h)*n+i)*dim, (b*n+i)*features+(first+h)*dim
				copy(y.v[to:to+dim], x.v[from:])
				copy(y.e[to:to+dim], x.e[from:])
			}
		}
	}
	return y
}

// mergeHeads undoes splitHeads: [batch, heads, n, dim] to [batch, n, heads*dim].
func mergeHeads(x array, batch, heads, n, dim int) array {
	y := newArray(len(x.v))
	for b := range batch {
		for h := range heads {
			for i := range n {
				from, to := ((b*heads+h)*n+i)*dim, ((b*n+i)*heads+h)*dim
				copy(y.v[to:to+dim], x.v[from:])
				copy(y.e[to:to+dim], x.e[from:])
			}
		}
	}
	return y
}

// rope turns features d and d+dim/2 of every head of x [batch, heads, n, dim] by
// position * theta^(-2d/dim), with positions [batch, n].
func rope(x array, positions []int32, batch, heads, n, dim int, theta float64) array {
	y := newArray(len(x.v))
	for row := range batch * heads * n {
		b, i := row/(heads*n), row%n
		for d := range dim / 2 {
			sin, cos := math.Sincos(float64(positions[b*n+i]) * math.Pow(theta, -2*float64(d)/float64(dim)))
			lo, hi := row*dim+d, row*dim+d+dim/2
			turn := func(to int, a, c float64) {
				y.v[to] = a*x.v[lo] + c*x.v[hi]
				y.e[to] = math.Abs(a)*x.e[lo] + math.Abs(c)*x.e[hi] + 4*unit*(math.Abs(a*x.v[lo])+math.Abs(c*x.v[hi])) + tiny
			}
			turn(lo, cos, -sin)
			turn(hi, sin, cos)
		}
	}
	return y
}

// swiGLU is silu(gate of x) * up of x.
func swiGLU(x array, gate, up *matrix) array {
	g, u := gate.linear(x), up.linear(x)
	y := newArray(len(g.v))
	for i, z := range g.v {
		silu := z / (1 + math.Exp(-z))
		off := 1.1*g.e[i] + unit*(24+2*math.Abs(z))*math.Abs(silu) // silu rises by at most 1.1
		y.v[i] = silu * u.v[i]
		y.e[i] = math.Abs(silu)*u.e[i] + (math.Abs(u.v[i])+u.e[i])*off + 4*unit*math.Abs(y.v[i]) + tiny
	}
	return y
}
