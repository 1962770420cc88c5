package outside_test

import "math"

// The reference follows docs/method.md in float64, by plain loops. Every value carries a
// bound on the error of the same computation in float32, in whatever order its sums are
// taken: a comparison allows what that bound says and no more.

// unit is the largest relative error of one rounding to float32, and tiny what is lost
// where a float32 becomes denormal.
const (
	unit = 0x1p-24
	tiny = 0x1p-120
)

// array is numbers with a bound on the error of each.
type array struct{ v, e []float64 }

func newArray(n int) array { return array{make([]float64, n), make([]float64, n)} }

// exact is numbers that the library has in float32.
func exact(x []float32) array {
	a := newArray(len(x))
	for i, f := range x {
		a.v[i] = float64(f)
	}
	return a
}

func (a array) window(from, n int) array { return array{a.v[from : from+n], a.e[from : from+n]} }

// operands are the inputs of attention: q [batch, heads, n, dim], k and v
// [batch, kvHeads, n, dim], valid [batch, n] or nil.
type operands struct {
	batch, heads, kvHeads, n, dim int
	q, k, v                       array
	valid                         []float32
	scale                         float64 // 0: 1/sqrt(dim)
}

func (a *operands) groups(size int) int { return (a.n + size - 1) / size }

func (a *operands) real(b, j int) bool { return a.valid == nil || a.valid[b*a.n+j] != 0 }

// realKeys counts the keys of a batch row that are not padding.
func (a *operands) realKeys(b int) (keys int) {
	for j := range a.n {
		if a.real(b, j) {
			keys++
		}
	}
	return keys
}

// row is head h of a [batch, heads, n, dim] array at token i.
func (a *operands) row(x array, heads, b, h, i int) array {
	return x.window(((b*heads+h)*a.n+i)*a.dim, a.dim)
}

// weights are the softmax of query i of head h over the keys that see allows. low and
// high bound what float32 may compute.
type weights struct{ p, low, high []float64 }

func (a *operands) weights(b, h, i int, scale float64, see func(j int) bool) weights {
	if scale == 0 {
		scale = a.scale
	}
	if scale == 0 {
		scale = 1 / math.Sqrt(float64(a.dim))
	}
	z, off := make([]float64, a.n), make([]float64, a.n)
	top := math.Inf(-1)
	q := a.row(a.q, a.heads, b, h, i)
	for j := range a.n {
		z[j] = math.Inf(-1)
		if !see(j) {
			continue
		}
		k := a.row(a.k, a.kvHeads, b, h/(a.heads/a.kvHeads), j)
		var dot, size, inherited float64
		for d := range a.dim {
			dot += q.v[d] * k.v[d]
			size += math.Abs(q.v[d] * k.v[d])
			inherited += math.Abs(q.v[d])*k.e[d] + q.e[d]*math.Abs(k.v[d]) + q.e[d]*k.e[d]
		}
		z[j] = scale * dot
		off[j] = scale * (unit*float64(a.dim+4)*size + inherited)
		top = max(top, z[j])
	}
	w := weights{make([]float64, a.n), make([]float64, a.n), make([]float64, a.n)}
	if math.IsInf(top, -1) { // no key
		return w
	}
	// A weight is exp(z - top), with a rounding of each number on the way there.
	total, least, most, wide := 0.0, 0.0, 0.0, false
	for j := range a.n {
		if math.IsInf(z[j], -1) {
			continue
		}
		off[j] += unit * (4*(math.Abs(z[j])+math.Abs(top)+math.Log(float64(a.n))) + 16)
		wide = wide || off[j] > 300
		w.p[j] = math.Exp(z[j] - top)
		total += w.p[j]
		least += w.p[j] * math.Exp(-off[j])
		most += w.p[j] * math.Exp(off[j])
	}
	sum := unit * float64(a.n+8) // of the denominator
	for j := range a.n {
		switch {
		case math.IsInf(z[j], -1):
			continue
		case wide: // the scores are larger than float32 can tell apart
			w.high[j] = 1
		default:
			up, down := w.p[j]*math.Exp(off[j]), w.p[j]*math.Exp(-off[j])
			w.high[j] = up/(up+max(0, least-down))*(1+sum) + tiny
			w.low[j] = max(0, down/(down+max(0, most-up))*(1-sum)-tiny)
		}
		w.p[j] /= total
	}
	return w
}

// attention is softmax(scale q k^T) v over the keys that see lets each query read.
func (a *operands) attention(see func(b, h, i, j int) bool) array {
	out := newArray(a.batch * a.heads * a.n * a.dim)
	for b := range a.batch {
		for h := range a.heads {
			for i := range a.n {
				w := a.weights(b, h, i, 0, func(j int) bool { return a.real(b, j) && see(b, h, i, j) })
				a.read(a.row(out, a.heads, b, h, i), w, b, h)
			}
		}
	}
	return out
}

// read sets y to the values under the weights w. Weights sum to 1, so an error of theirs
// moves y by no more than it counts in the distance of a value from y.
func (a *operands) read(y array, w weights, b, h int) {
	for d := range a.dim {
		var size float64
		for j, p := range w.p {
			v := a.row(a.v, a.kvHeads, b, h/(a.heads/a.kvHeads), j)
			y.v[d] += p * v.v[d]
			y.e[d] += w.high[j] * v.e[d]
			size += w.high[j] * math.Abs(v.v[d])
		}
		y.e[d] += unit*float64(a.n+8)*size + tiny
		for j, p := range w.p {
			v := a.row(a.v, a.kvHeads, b, h/(a.heads/a.kvHeads), j)
			y.e[d] += max(w.high[j]-p, p-w.low[j]) * math.Abs(v.v[d]-y.v[d])
		}
	}
}

// all lets every query read every key.
func all(int, int, int, int) bool { return true }

// scores are those of each query group of size queries for the keys from first on,
// [batch, heads, groups, n]; keys before first have none.
func (a *operands) scores(size, first int, scale float64) array {
	groups := a.groups(size)
	s := newArray(a.batch * a.heads * groups * a.n)
	for b := range a.batch {
		for h := range a.heads {
			for u := range groups {
				row := s.window(((b*a.heads+h)*groups+u)*a.n, a.n)
				queries := 0.0
				for i := u * size; i < min(a.n, (u+1)*size); i++ {
					if !a.real(b, i) {
						continue
					}
					queries++
					w := a.weights(b, h, i, scale, func(j int) bool { return j >= first && a.real(b, j) })
					for j, p := range w.p {
						row.v[j] += p
						row.e[j] += max(w.high[j]-p, p-w.low[j])
					}
				}
				for j := range a.n {
					if queries > 0 {
						row.v[j] /= queries
						row.e[j] = row.e[j]/queries + unit*float64(size+4)*row.v[j]
					}
				}
			}
		}
	}
	return s
}

// kept is the share of full attention that falls on the columns of each group, for the
// middle query of the group, [batch, heads, groups].
func (a *operands) kept(size int, see func(b, h, i, j int) bool) array {
	groups := a.groups(size)
	s := newArray(a.batch * a.heads * groups)
	for b := range a.batch {
		for h := range a.heads {
			for u := range groups {
				i := (u*size + min(a.n, (u+1)*size)) / 2
				if !a.real(b, i) {
					continue
				}
				w := a.weights(b, h, i, 0, func(j int) bool { return a.real(b, j) })
				x := (b*a.heads+h)*groups + u
				for j, p := range w.p {
					if see(b, h, i, j) {
						s.v[x] += p
						s.e[x] += max(w.high[j]-p, p-w.low[j])
					}
				}
				s.e[x] += unit * float64(a.n+4)
			}
		}
	}
	return s
}
