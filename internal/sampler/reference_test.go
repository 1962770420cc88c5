package sampler

import (
	"math"
	"slices"
	"sort"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"
)

// The functions of this file are reference versions of the greedy samplers, in the order and
// with the arrays of the published pseudo-code: all logits of all positions, full sorts,
// package math, one goroutine.

// naiveSoftmax returns softmax(x).
func naiveSoftmax(x []float64) []float64 {
	p, total := make([]float64, len(x)), 0.0
	for v := range x {
		p[v] = math.Exp(x[v] - slices.Max(x))
		total += p[v]
	}
	for v := range p {
		p[v] /= total
	}
	return p
}

// naiveOrder returns the indices of x from its largest entry down, stably.
func naiveOrder(x []float64) []int {
	order := make([]int, len(x))
	for i := range order {
		order[i] = i
	}
	sort.SliceStable(order, func(a, b int) bool { return x[order[a]] > x[order[b]] })
	return order
}

// naiveBest returns the first largest entry other than skip, which may be none.
func naiveBest(x []float64, skip int32) int {
	for _, v := range naiveOrder(x) {
		if v != int(skip) {
			return v
		}
	}
	panic("nothing but skip")
}

func widen(x []float32) []float64 {
	out := make([]float64, len(x))
	for i := range x {
		out[i] = float64(x[i])
	}
	return out
}

// naiveLLaDA returns the sequence after every step, for one batch row.
func naiveLLaDA(o LLaDA, prompt []int32, logits func([]int32, int) []float32) [][]int32 {
	x := slices.Clone(prompt)
	for range o.GenLength {
		x = append(x, o.MaskID)
	}
	isPrompt := make([]bool, len(x))
	for i := range x {
		isPrompt[i] = x[i] != o.MaskID
	}
	never := int32(none)
	if o.SuppressMask || o.Cached || o.Threshold > 0 {
		never = o.MaskID
	}
	var history [][]int32
	blocks := o.GenLength / o.BlockLength
	for b := range blocks {
		lo := len(prompt) + b*o.BlockLength
		hi := lo + o.BlockLength
		n := count(x[lo:hi], o.MaskID)
		for i := 0; ; i++ {
			if o.Threshold == 0 && i == o.Steps/blocks || (o.Cached || o.Threshold > 0) && count(x[:hi], o.MaskID) == 0 {
				break
			}
			x0, conf := make([]int32, len(x)), make([]float64, len(x))
			for pos := range x {
				l := slices.Clone(logits(x, pos))
				if o.CFGScale > 0 {
					blind := slices.Clone(x)
					for j := range blind {
						if isPrompt[j] {
							blind[j] = o.MaskID
						}
					}
					for v, u := range logits(blind, pos) {
						l[v] = u + float32(float32(o.CFGScale+1)*(l[v]-u))
					}
				}
				z := widen(l)
				if o.LogitsEOSInf {
					z[o.EOSID] = math.Inf(-1)
				}
				if o.Cached {
					z[o.MaskID] = math.Inf(-1)
				}
				best := naiveBest(z, never)
				if o.ConfidenceEOSEoTInf {
					z[o.EOSID], z[o.EoTID] = math.Inf(-1), math.Inf(-1)
				}
				x0[pos] = int32(best)
				conf[pos] = float64(float32(naiveSoftmax(z)[best]))
				if x[pos] != o.MaskID || pos >= hi {
					conf[pos] = math.Inf(-1)
				}
			}
			take := n / (o.Steps / blocks)
			if i < n%(o.Steps/blocks) {
				take++
			}
			order := naiveOrder(conf)
			if o.Threshold > 0 {
				for take = 1; take < len(order) && conf[order[take]] >= o.Threshold; take++ {
				}
			}
			for _, pos := range order[:take] {
				x[pos] = x0[pos]
			}
			history = append(history, slices.Clone(x))
		}
	}
	return history
}

// naiveDream returns the batch after every step.
func naiveDream(o Dream, prompts [][]int32, logits func([]int32, int) []float32) (history [][][]int32) {
	var x [][]int32
	for b, prompt := range prompts {
		x = append(x, slices.Clone(prompt))
		for range o.MaxNewTokens {
			x[b] = append(x[b], o.MaskID)
		}
	}
	if o.BlockLength == 0 {
		return naiveDreamBlock(o, x, 0, len(x[0]), o.Steps, logits)
	}
	for lo := len(prompts[0]); lo < len(x[0]); lo += o.BlockLength {
		steps := o.Steps / (o.MaxNewTokens / o.BlockLength)
		history = append(history, naiveDreamBlock(o, x, lo, lo+o.BlockLength, steps, logits)...)
	}
	return history
}

// naiveDreamBlock fills the masks of x in [lo, hi).
func naiveDreamBlock(o Dream, x [][]int32, lo, hi, steps int, logits func([]int32, int) []float32) [][][]int32 {
	base := make([]int, len(x))
	for b := range x {
		base[b] = count(x[b][lo:hi], o.MaskID) / steps
	}
	t := make([]float64, steps+1)
	for i := range t {
		t[i] = 1 + (o.Eps-1)*float64(i)/float64(steps)
	}
	never := int32(none)
	if o.SuppressMask || o.Cached || o.Alg == ConfidenceThreshold {
		never = o.MaskID
	}
	refused := make([]int, len(x))
	var history [][][]int32
	for i := 0; ; i++ {
		masks := 0
		for _, row := range x {
			masks += count(row[lo:hi], o.MaskID)
		}
		if o.Alg != ConfidenceThreshold && i == steps || (o.Cached || o.Alg == ConfidenceThreshold) && masks == 0 {
			return history
		}
		for b, row := range x {
			x0, conf := make([]int32, len(row)), make([]float64, len(row))
			open := count(row[lo:hi], o.MaskID)
			for pos := range row {
				l := widen(logits(row, max(pos-1, 0)))
				if o.Cached {
					l[o.MaskID] = math.Inf(-1)
				}
				p := naiveSoftmax(l)
				order := naiveOrder(p)
				for before, j := 0.0, 0; j < len(order); j++ {
					if before > o.TopP {
						l[order[j]] = math.Inf(-1)
					}
					before += p[order[j]]
				}
				if o.TopK > 0 && o.TopK < len(l) {
					least := l[naiveOrder(l)[o.TopK-1]]
					for v := range l {
						if l[v] < least {
							l[v] = math.Inf(-1)
						}
					}
				}
				p = naiveSoftmax(l)
				best := naiveBest(widen(logits(row, max(pos-1, 0))), never)
				x0[pos] = int32(best)
				c := float32(p[best])
				switch o.Alg {
				case TopkMargin:
					others := slices.Delete(slices.Clone(p), best, best+1)
					c = float32(p[best]) - float32(slices.Max(others))
				case Entropy:
					s := 0.0
					for _, q := range p {
						q := float32(q)
						s += float64(q * float32(math.Log(float64(q+1e-10))))
					}
					c = float32(s)
				}
				conf[pos] = float64(c)
				if row[pos] != o.MaskID || pos < lo || pos >= hi {
					conf[pos] = math.Inf(-1)
				}
			}
			order := naiveOrder(conf)
			take := min(open, int(float64(masks)/float64(len(x))*(1-t[min(i+1, steps)]/t[min(i, steps)])))
			if i == steps-1 {
				take = open
			}
			if o.Alg == ConfidenceThreshold {
				quota := refused[b]
				if i < steps {
					quota += base[b]
				}
				if o.FirstTokenAtPrefill {
					quota = open
				}
				for take = 0; take < quota && (take == 0 || conf[order[take]] >= o.Threshold); take++ {
				}
				refused[b] = quota - take
			}
			if o.FirstTokenAtPrefill && i == 0 {
				order, take = []int{lo}, 1
			}
			for _, pos := range order[:take] {
				row[pos] = x0[pos]
			}
		}
		step := make([][]int32, len(x))
		for b := range x {
			step[b] = slices.Clone(x[b])
		}
		history = append(history, step)
	}
}

// drawPrompts draws a batch whose rows have masks inside.
func drawPrompts(t *rapid.T, vocab int, mask int32, holes bool) [][]int32 {
	length := rapid.IntRange(0, 5).Draw(t, "prompt length")
	prompts := make([][]int32, rapid.IntRange(1, 3).Draw(t, "batch"))
	for b := range prompts {
		prompts[b] = make([]int32, length)
		for i := range prompts[b] {
			id := rapid.Int32Range(0, int32(vocab-1)).Draw(t, "id")
			if id == mask && !holes {
				id = (id + 1) % int32(vocab)
			}
			prompts[b][i] = id
		}
	}
	return prompts
}

func TestLLaDAEqualsReference(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		const vocab = 9
		blockLength := rapid.IntRange(1, 5).Draw(t, "block length")
		blocks := rapid.IntRange(1, 3).Draw(t, "blocks")
		o := LLaDA{
			Steps:               blocks * rapid.IntRange(1, 6).Draw(t, "steps per block"),
			GenLength:           blocks * blockLength,
			BlockLength:         blockLength,
			CFGScale:            rapid.SampledFrom([]float64{0, 0.7, 2}).Draw(t, "cfg"),
			Threshold:           rapid.SampledFrom([]float64{0, 0, 0.2, 0.5, 1}).Draw(t, "threshold"),
			MaskID:              rapid.Int32Range(0, vocab-1).Draw(t, "mask"),
			SuppressMask:        rapid.Bool().Draw(t, "suppress mask"),
			LogitsEOSInf:        rapid.Bool().Draw(t, "logits eos"),
			ConfidenceEOSEoTInf: rapid.Bool().Draw(t, "confidence eos"),
			Cached:              rapid.Bool().Draw(t, "cached"),
		}
		o.EOSID, o.EoTID = (o.MaskID+1)%vocab, (o.MaskID+4)%vocab
		prompts := drawPrompts(t, vocab, o.MaskID, !o.Cached && rapid.Bool().Draw(t, "holes"))

		var tr trace
		o.OnStep = tr.onStep
		model := noiseLogits(vocab)
		got, err := o.Generate(t.Context(), prompts, asForward(t, model))
		if err != nil {
			t.Fatal(err)
		}
		tr.check(t, o, prompts, got)
		for b, prompt := range prompts {
			want := naiveLLaDA(o, prompt, model)
			if o.Threshold > 0 {
				// Rows of a batch may need different numbers of steps in a block.
				if diff := cmp.Diff(want[len(want)-1], got.IDs[b]); diff != "" {
					t.Errorf("row %d (-want +got):\n%s", b, diff)
				}
				continue
			}
			for i := range want {
				if diff := cmp.Diff(want[i], tr.ids[i][b]); diff != "" {
					t.Fatalf("row %d after step %d (-want +got):\n%s", b, i+1, diff)
				}
			}
		}
	})
}

func TestDreamEqualsReference(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		const vocab = 9
		o := Dream{
			MaxNewTokens: rapid.IntRange(1, 12).Draw(t, "new tokens"),
			Steps:        rapid.IntRange(1, 14).Draw(t, "steps"),
			// None makes a count of transfers an exact integer, where the reference here,
			// in float64, could be on the other side of it.
			Eps:          rapid.SampledFrom([]float64{1e-3, 0.0537, 0.3917}).Draw(t, "eps"),
			Alg:          rapid.SampledFrom([]Alg{MaskgitPlus, TopkMargin, Entropy, ConfidenceThreshold}).Draw(t, "alg"),
			TopP:         rapid.SampledFrom([]float64{1, 0.9, 0.5, 0.1}).Draw(t, "top p"),
			TopK:         rapid.SampledFrom([]int{0, 1, 3, 20}).Draw(t, "top k"),
			MaskID:       rapid.Int32Range(0, vocab-1).Draw(t, "mask"),
			SuppressMask: rapid.Bool().Draw(t, "suppress mask"),
			Cached:       rapid.Bool().Draw(t, "cached"),
		}
		if o.Alg == ConfidenceThreshold {
			o.Threshold = rapid.SampledFrom([]float64{0.1, 0.4, 0.9}).Draw(t, "threshold")
			o.MaxNewTokens = o.Steps * rapid.IntRange(1, 3).Draw(t, "tokens per step")
		}
		if blocks := rapid.IntRange(0, 3).Draw(t, "blocks"); blocks > 0 {
			o.BlockLength, o.MaxNewTokens, o.Steps = o.MaxNewTokens, blocks*o.MaxNewTokens, blocks*o.Steps
			if o.Cached && (o.Alg == Entropy && o.Steps > blocks || o.Alg == ConfidenceThreshold) {
				o.FirstTokenAtPrefill = rapid.Bool().Draw(t, "first token at prefill")
			}
		}
		holes := o.BlockLength == 0 && !o.Cached && o.Alg != ConfidenceThreshold && rapid.Bool().Draw(t, "holes")
		prompts := drawPrompts(t, vocab, o.MaskID, holes)

		var tr trace
		o.OnStep = tr.onStep
		model := noiseLogits(vocab)
		got, err := o.Generate(t.Context(), prompts, asForward(t, model))
		if err != nil {
			t.Fatal(err)
		}
		tr.check(t, o, prompts, got)
		if diff := cmp.Diff(naiveDream(o, prompts, model), tr.ids); diff != "" {
			t.Errorf("sequences after each step (-want +got):\n%s", diff)
		}
	})
}
