package sampler

import (
	"math"
	"math/rand/v2"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"github.com/pulsecol/pulsecol/internal/lmhead"
)

// near compares with numbers that are given to six decimals.
var near = cmpopts.EquateApprox(0, 0.6e-6)

// chiSquare returns how far counts are from n draws of p: below 1 in all but one of
// 10,000 samples (Wilson and Hilferty's approximation of the quantile).
func chiSquare(counts []int, p []float64) float64 {
	n := 0
	for _, c := range counts {
		n += c
	}
	statistic, freedom := 0.0, -1.0
	for v, c := range counts {
		if p[v] == 0 {
			if c > 0 {
				return math.Inf(1)
			}
			continue
		}
		e := p[v] * float64(n)
		statistic += (float64(c) - e) * (float64(c) - e) / e
		freedom++
	}
	h := 2 / (9 * freedom)
	return statistic / (freedom * math.Pow(1-h+3.719*math.Sqrt(h), 3))
}

// softmaxOf returns the distribution of Dream's sampler.
func softmaxOf(logits []float32, t, topP float64, topK int) []float64 {
	return newWorker(len(logits)).softmax(logits, t, topP, topK)
}

func TestSoftmaxAndConfidences(t *testing.T) {
	for _, c := range []struct {
		logits                          []float32
		probability, margin, negEntropy float64
	}{
		{[]float32{2, 1, 0}, 0.665241, 0.420512, -0.832396},
		{[]float32{1, 1, 0}, 0.422319, 0, -1.017357},
		{[]float32{3, 0, 0}, 0.909443, 0.864164, -0.366594},
	} {
		p := softmaxOf(c.logits, 1, 1, 0)
		got := []float64{p[0], margin(lmhead.Float64, p, 0), negativeEntropy(lmhead.Float64, p)}
		want := []float64{c.probability, c.margin, c.negEntropy}
		if diff := cmp.Diff(want, got, near); diff != "" {
			t.Errorf("%v (-want +got):\n%s", c.logits, diff)
		}
	}
	if diff := cmp.Diff([]float64{0.866813, 0.117310, 0.015876}, softmaxOf([]float32{2, 1, 0}, 0.5, 1, 0), near); diff != "" {
		t.Errorf("temperature 0.5 (-want +got):\n%s", diff)
	}
}

func TestTruncation(t *testing.T) {
	logits := make([]float32, 4)
	for v, p := range []float64{.5, .3, .15, .05} {
		logits[v] = float32(math.Log(p))
	}
	equal := make([]float32, 4)
	inf := float32(math.Inf(-1))
	for _, c := range []struct {
		name   string
		logits []float32
		topP   float64
		topK   int
		want   []float64
	}{
		{"below the first", logits, 0.4, 0, []float64{1, 0, 0, 0}},
		{"in the second", logits, 0.75, 0, []float64{0.625, 0.375, 0, 0}},
		{"in the third", logits, 0.9, 0, []float64{0.526316, 0.315789, 0.157895, 0}},
		{"in the last", logits, 0.97, 0, []float64{.5, .3, .15, .05}},
		{"tiny", logits, 1e-300, 0, []float64{1, 0, 0, 0}},
		{"the two largest", logits, 1, 2, []float64{0.625, 0.375, 0, 0}},
		{"more than there are", logits, 1, 9, []float64{.5, .3, .15, .05}},
		{"nucleus first", logits, 0.75, 3, []float64{0.625, 0.375, 0, 0}},
		{"then the largest", logits, 0.9, 1, []float64{1, 0, 0, 0}},
		{"the first of equals up to the border", equal, 0.5, 0, []float64{1. / 3, 1. / 3, 1. / 3, 0}},
		{"all equals of the last", equal, 1, 2, []float64{.25, .25, .25, .25}},
		{"impossible tokens", []float32{inf, 1, inf, 1}, 0.9, 3, []float64{0, .5, 0, .5}},
		{"one token", []float32{-7}, 0.5, 1, []float64{1}},
	} {
		if diff := cmp.Diff(c.want, softmaxOf(c.logits, 1, c.topP, c.topK), near); diff != "" {
			t.Errorf("%s: top_p %v, top_k %d (-want +got):\n%s", c.name, c.topP, c.topK, diff)
		}
	}
}

// keepNucleus sorts only a part of the entries; a full sort must agree.
func TestTruncationAgainstFullSort(t *testing.T) {
	rng := rand.New(rand.NewPCG(3, 4))
	for _, n := range []int{1, 2, 3, 31, 500} {
		for range 50 {
			logits := make([]float32, n)
			for v := range logits {
				logits[v] = float32(rng.IntN(12)) * 0.9 // many ties
			}
			topP, topK := 1-math.Pow(rng.Float64(), 3), 1+rng.IntN(n)
			want := naiveSoftmax(widen(logits))
			before := 0.0
			for _, v := range naiveOrder(want) {
				p := want[v]
				if before > topP {
					want[v] = 0
				}
				before += p
			}
			least := want[naiveOrder(want)[topK-1]]
			total := 0.0
			for v := range want {
				if want[v] < least {
					want[v] = 0
				}
				total += want[v]
			}
			for v := range want {
				want[v] /= total
			}
			if diff := cmp.Diff(want, softmaxOf(logits, 1, topP, topK), cmpopts.EquateApprox(1e-12, 0)); diff != "" {
				t.Fatalf("n %d, top_p %v, top_k %d (-want +got):\n%s", n, topP, topK, diff)
			}
		}
	}
}

func TestSoftmaxOfExtremes(t *testing.T) {
	big := float32(math.MaxFloat32)
	for _, temperature := range []float64{5e-324, 1e-3, 1, 1e300} {
		p := softmaxOf([]float32{big, -big, big, 0}, temperature, 0.99, 3)
		if s := sum(p); !(math.Abs(s-1) < 1e-12) || p[0] != p[2] {
			t.Errorf("temperature %v: %v", temperature, p)
		}
	}
}

func TestSoftmaxOfNothing(t *testing.T) {
	inf := float32(math.Inf(-1))
	if p := softmaxOf([]float32{inf, inf}, 1, 0.5, 1); p[0] != 0 || p[1] != 0 {
		t.Errorf("softmax of -Inf: %v, want zeros", p)
	}
}

func TestArgmax(t *testing.T) {
	inf := float32(math.Inf(-1))
	for _, c := range []struct {
		logits []float32
		skip   int32
		want   int
	}{
		{[]float32{1, 3, 2}, none, 1},
		{[]float32{1, 3, 3}, none, 1}, // the first of equals
		{[]float32{1, 3, 2}, 1, 2},
		{[]float32{inf, -9}, none, 1},
		{[]float32{inf, -9}, 1, none},
		{nil, none, none},
	} {
		if got := argmax(c.logits, c.skip); got != c.want {
			t.Errorf("argmax(%v, skip %d) = %d, want %d", c.logits, c.skip, got, c.want)
		}
	}
}

func TestGumbelNoise(t *testing.T) {
	logits, u := []float64{1, 2, 0.5}, []float64{0.9, 0.2, 0.5}
	for _, c := range []struct {
		t       float64
		product []float64 // exp(l) / (-ln u)^t
	}{
		{0.5, []float64{8.374435, 5.824409, 1.980316}},
		{1, []float64{25.799815, 4.591079, 2.378602}},
	} {
		var got []float64
		for v, l := range logits {
			got = append(got, math.Exp(l+c.t*gumbel(u[v])))
		}
		if diff := cmp.Diff(c.product, got, near); diff != "" {
			t.Errorf("temperature %v (-want +got):\n%s", c.t, diff)
		}
	}
}

func TestPick(t *testing.T) {
	p := []float64{0, .2, .5, 0, .3, 0}
	for _, c := range []struct {
		u    float64
		skip int32
		want int
	}{
		{0, none, 1}, {0.19, none, 1}, {0.21, none, 2}, {0.69, none, 2}, {0.71, none, 4}, {1 - 0x1p-53, none, 4},
		{0, 1, 2}, {0.62, 1, 2}, {0.63, 1, 4}, {0.99, 4, 2},
	} {
		if got := pick(p, c.u, c.skip); got != c.want {
			t.Errorf("pick(u %v, skip %d) = %d, want %d", c.u, c.skip, got, c.want)
		}
	}
	if got := pick([]float64{0, 1}, 0.5, 1); got != none {
		t.Errorf("picked %d, but only the skipped token is left", got)
	}
}

func TestConfidenceRounding(t *testing.T) {
	const x = 0.998123456789012345
	for d, want := range map[lmhead.Rounding]float64{"": float64(float32(x)), lmhead.Float32: float64(float32(x)), lmhead.BFloat16: 1, lmhead.Float64: x} {
		if got := round(d, x); got != want {
			t.Errorf("%q rounds %v to %v, want %v", d, x, got, want)
		}
	}
	// Rounded in every term: bfloat16 has 8 bits.
	p := []float64{.7, .2, .1}
	for _, c := range []struct {
		d         lmhead.Rounding
		tolerance float64
	}{{lmhead.Float64, 1e-15}, {lmhead.Float32, 1e-6}, {lmhead.BFloat16, 0.02}} {
		want := .7*math.Log(.7+1e-10) + .2*math.Log(.2+1e-10) + .1*math.Log(.1+1e-10)
		if got := negativeEntropy(c.d, p); math.Abs(got-want) > c.tolerance || round(c.d, got) != got {
			t.Errorf("%q: entropy %v, want about %v, rounded", c.d, got, want)
		}
	}
	if got := negativeEntropy(lmhead.Float32, []float64{0, 1, 0}); math.Abs(got) > 1e-9 {
		t.Errorf("entropy of a sure token: %v, want 0", got)
	}
	// If a suppressed mask is the most probable token, the margin is negative.
	if got := margin(lmhead.Float64, []float64{.3, .6, .1}, 0); math.Abs(got+.3) > 1e-15 {
		t.Errorf("margin %v, want -0.3", got)
	}
	if got := margin(lmhead.Float64, []float64{1}, 0); got != 1 {
		t.Errorf("margin of the only token: %v, want 1", got)
	}
}

func TestStreamsDiffer(t *testing.T) {
	seen := map[uint64]string{}
	w := newWorker(0)
	for seed := range uint64(3) {
		for steps := range 3 {
			for why := range drawPlace + 1 {
				for batch := range 3 {
					for pos := range 3 {
						g := generation{seed: seed, steps: steps}
						g.stream(w, why, Row{batch, pos})
						seen[w.rng.Uint64()] = ""
					}
				}
			}
		}
	}
	if want := 3 * 3 * 4 * 3 * 3; len(seen) != want {
		t.Errorf("%d different first draws in %d streams", len(seen), want)
	}
}

func BenchmarkPropose(b *testing.B) {
	const vocab = 126464
	rng := rand.New(rand.NewPCG(1, 2))
	logits := make([]float32, vocab)
	for v := range logits {
		logits[v] = float32(2 * rng.NormFloat64())
	}
	logits[77] = 14
	for _, c := range []struct {
		name  string
		llada LLaDA
		dream Dream
	}{
		{name: "llada/greedy"},
		{name: "llada/gumbel", llada: LLaDA{Temperature: 1}},
		{name: "dream/entropy", dream: Dream{Alg: Entropy, TopP: 1}},
		{name: "dream/entropy,top_p", dream: Dream{Alg: Entropy, TopP: 0.95, Temperature: 0.2}},
		{name: "dream/top_p,flat", dream: Dream{Alg: MaskgitPlus, TopP: 0.95, Temperature: 2}},
		{name: "dream/top_k", dream: Dream{Alg: MaskgitPlus, TopP: 1, TopK: 50, Temperature: 1}},
	} {
		b.Run(c.name, func(b *testing.B) {
			w, rule := newWorker(vocab), c.llada.rule()
			if c.dream.TopP > 0 {
				rule = c.dream.rule()
			}
			for b.Loop() {
				rule.apply(w, logits, nil)
			}
		})
	}
}
