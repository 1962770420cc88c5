package outside_test

import "math"

// slopes are the gradients of a cost, sum(weights * attention), with respect to the
// queries, keys and values: by central differences of the reference, with what these and
// float32 may be off.
type slopes struct{ q, k, v array }

// step is the distance of the differences from the middle.
const step = 1e-3

func (a *operands) slopes(w []float32, see func(b, h, i, j int) bool) slopes {
	g := a.errors(w, see)
	for _, x := range []struct {
		in, out array
		heads   int
	}{{a.q, g.q, a.heads}, {a.k, g.k, a.kvHeads}, {a.v, g.v, a.kvHeads}} {
		for i, at := range x.in.v {
			row := i / (a.n * a.dim) // the heads of queries that depend on it
			b, first, heads := row/x.heads, row%x.heads*(a.heads/x.heads), a.heads/x.heads
			difference := func(h float64) (d float64) {
				for head := first; head < first+heads; head++ {
					x.in.v[i] = at + h
					d += a.cost(w, b, head, see)
					x.in.v[i] = at - h
					d -= a.cost(w, b, head, see)
				}
				x.in.v[i] = at
				return d / (2 * h)
			}
			near, far := difference(step), difference(2*step)
			x.out.v[i] = near + (near-far)/3 // without the error of the order of step²
			x.out.e[i] += math.Abs(near-far)/3 + 1e-10
		}
	}
	return g
}

// cost is the part of the cost that a head has.
func (a *operands) cost(w []float32, b, h int, see func(b, h, i, j int) bool) (sum float64) {
	scale := a.scale
	if scale == 0 {
		scale = 1 / math.Sqrt(float64(a.dim))
	}
	kv := h / (a.heads / a.kvHeads)
	for i := range a.n {
		x := ((b*a.heads+h)*a.n + i) * a.dim
		total, mean := 0.0, 0.0
		for j := range a.n {
			if !a.real(b, j) || !see(b, h, i, j) {
				continue
			}
			y := ((b*a.kvHeads+kv)*a.n + j) * a.dim
			var dot, value float64
			for d := range a.dim {
				dot += a.q.v[x+d] * a.k.v[y+d]
				value += float64(w[x+d]) * a.v.v[y+d]
			}
			e := math.Exp(scale * dot) // inputs are small
			total += e
			mean += e * value
		}
		if total > 0 {
			sum += mean / total
		}
	}
	return sum
}

// errors are bounds on the error of the gradients in float32.
func (a *operands) errors(w []float32, see func(b, h, i, j int) bool) slopes {
	g := slopes{newArray(len(a.q.v)), newArray(len(a.k.v)), newArray(len(a.v.v))}
	scale := a.scale
	if scale == 0 {
		scale = 1 / math.Sqrt(float64(a.dim))
	}
	ones := 4 * unit * float64(a.n*a.heads/a.kvHeads+a.dim+16) // of sums of products, and of what they are made of
	for b := range a.batch {
		for h := range a.heads {
			kv := h / (a.heads / a.kvHeads)
			for i := range a.n {
				p := a.weights(b, h, i, 0, func(j int) bool { return a.real(b, j) && see(b, h, i, j) })
				x := ((b*a.heads+h)*a.n + i) * a.dim
				slope, size := make([]float64, a.n), make([]float64, a.n) // of the weights, by value
				var mean, meanSize, meanOff float64
				off := func(j int) float64 { return max(p.high[j]-p.p[j], p.p[j]-p.low[j]) }
				for j := range a.n {
					for d := range a.dim {
						term := float64(w[x+d]) * a.row(a.v, a.kvHeads, b, kv, j).v[d]
						slope[j] += term
						size[j] += math.Abs(term)
					}
					mean += p.p[j] * slope[j]
					meanSize += p.high[j] * size[j]
					meanOff += off(j) * size[j]
				}
				for j := range a.n {
					// The slope of a score is scale * p * (slope - mean).
					s := scale * p.p[j] * math.Abs(slope[j]-mean)
					e := scale * (off(j)*math.Abs(slope[j]-mean) + p.high[j]*(ones*(size[j]+meanSize)+meanOff))
					for d := range a.dim {
						y := ((b*a.kvHeads+kv)*a.n+j)*a.dim + d
						g.q.e[x+d] += (e + ones*s) * math.Abs(a.k.v[y])
						g.k.e[y] += (e + ones*s) * math.Abs(a.q.v[x+d])
						g.v.e[y] += (off(j) + ones*p.high[j]) * math.Abs(float64(w[x+d]))
					}
				}
			}
		}
	}
	return g
}
