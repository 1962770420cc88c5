package sampler

import (
	"cmp"
	"math"
	"slices"

	"github.com/pulsecol/pulsecol/internal/lmhead"
)

// none stands for "no token" where an id is left out.
const none = lmhead.NoToken

// argmax returns the first index of the largest entry, without looking at skip,
// or none if there is no entry above -Inf.
func argmax(logits []float32, skip int32) int {
	best, top := none, float32(math.Inf(-1))
	for v, l := range logits {
		if l > top && v != int(skip) {
			best, top = v, l
		}
	}
	return best
}

// gumbelArgmax samples from softmax(logits/t) without the token skip: it returns
// the argmax of logits - t ln(-ln u), with u drawn for every token in turn. That is
// the logarithm of the references' exp(logits)/(-ln u)^t, taken in float64 because
// lower precision changes the distribution (arXiv 2409.02908).
func gumbelArgmax(w *worker, logits []float32, t float64, skip int32) int {
	for v := range logits {
		w.p[v] = w.uniform()
	}
	best, top := none, math.Inf(-1)
	for v, l := range logits {
		if z := float64(l) + float64(t*gumbel(w.p[v])); z > top && v != int(skip) {
			best, top = v, z
		}
	}
	return best
}

// softmax returns softmax(logits/t), truncated to the nucleus topP (1 = all) and
// then to the topK largest (0 = all). It is all zeros where every logit is -Inf.
// The result is valid until w computes the next one.
func (w *worker) softmax(logits []float32, t, topP float64, topK int) []float64 {
	p := w.p
	top := float64(slices.Max(logits))
	if math.IsInf(top, -1) {
		clear(p)
		return p
	}
	// The difference comes first, because l/t alone may overflow. There are two loops,
	// because the conversion from float32 would make each exp wait for the previous one: on
	// x86 it depends on the old content of its target register.
	for v, l := range logits {
		p[v] = (float64(l) - top) / t
	}
	for v, x := range p {
		p[v] = exp(x)
	}
	if topP < 1 {
		w.keepNucleus(p, topP)
	}
	if topK > 0 && topK < len(p) {
		w.keepLargest(p, topK)
	}
	total := sum(p)
	for v := range p {
		p[v] /= total
	}
	return p
}

// weighted is a token with its unnormalised probability.
type weighted struct {
	id int
	p  float64
}

// keepNucleus zeroes all of p but the largest entries: the fewest whose share of the sum
// exceeds topP, or all entries above zero if none does. Hence the largest entry always
// stays, and so does the one that crosses the border. Among equal entries the first stay.
func (w *worker) keepNucleus(p []float64, topP float64) {
	total := sum(p)
	// The entries below (1-topP)/n of the sum cannot hold 1-topP of it together, so
	// the border is crossed before them, and they need not be sorted.
	floor := (1 - topP) * total / float64(len(p))
	w.order = w.order[:0]
	for v, x := range p {
		if x >= floor {
			w.order = append(w.order, weighted{v, x})
		}
	}
	slices.SortFunc(w.order, func(a, b weighted) int {
		return cmp.Or(cmp.Compare(b.p, a.p), cmp.Compare(a.id, b.id))
	})
	clear(p)
	before := 0.0
	for _, x := range w.order {
		if before > topP*total {
			break
		}
		p[x.id] = x.p
		before += x.p
	}
}

// keepLargest zeroes the entries of p below its k-th largest, for 0 < k <= len(p).
// Entries equal to that one all stay.
func (w *worker) keepLargest(p []float64, k int) {
	h := append(w.heap[:0], p[:k]...) // a heap with the smallest of the k largest on top
	w.heap = h
	for i := k/2 - 1; i >= 0; i-- {
		siftDown(h, i)
	}
	for _, x := range p[k:] {
		if x > h[0] {
			h[0] = x
			siftDown(h, 0)
		}
	}
	for v, x := range p {
		if x < h[0] {
			p[v] = 0
		}
	}
}

// siftDown restores a heap with the smallest entry on top after h[i] has grown.
func siftDown(h []float64, i int) {
	for {
		least := i
		for c := 2*i + 1; c <= 2*i+2 && c < len(h); c++ {
			if h[c] < h[least] {
				least = c
			}
		}
		if least == i {
			return
		}
		h[i], h[least] = h[least], h[i]
		i = least
	}
}

// lanes sums float64 values in an order that parallel threads can reproduce, so that a GPU
// gives the same bits: value v of a row is added to lane v mod 1,024, then the upper half of
// the lanes to the lower half, until one is left.
type lanes [1024]float64

// total adds up the lanes, which it overwrites.
func (l *lanes) total() float64 {
	for n := len(l) / 2; n > 0; n /= 2 {
		for i := range n {
			l[i] += l[n+i]
		}
	}
	return l[0]
}

// sum returns the sum of p in the order of lanes.
func sum(p []float64) float64 {
	var l lanes
	for chunk := range slices.Chunk(p, len(l)) {
		for i, x := range chunk {
			l[i] += x
		}
	}
	return l.total()
}

// pick returns the token at quantile u, in [0, 1), of p without the token skip, or
// none if nothing is left.
func pick(p []float64, u float64, skip int32) int {
	total := 0.0
	for v, x := range p {
		if v != int(skip) {
			total += x
		}
	}
	border := u * total
	last, below := none, 0.0
	for v, x := range p {
		if x == 0 || v == int(skip) {
			continue
		}
		last = v
		below += x
		if below > border {
			break
		}
	}
	return last
}
