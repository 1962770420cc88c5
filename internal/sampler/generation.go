package sampler

import (
	"cmp"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"runtime"
	"slices"
	"sync/atomic"

	"github.com/pulsecol/pulsecol/internal/workgroup"
)

// StepInfo describes a denoising step that has just ended.
type StepInfo struct {
	Step  int // 1-based over the whole generation
	Total int // the result of TotalSteps: with a threshold an upper bound
	Block int // 0-based block of the semi-autoregressive order

	IDs [][]int32 // [B][n] after the step; valid and read-only during the call

	// Committed lists the positions written at this step, sorted by (Batch, Pos), including
	// those that got the mask token and so are still masked.
	Committed []Row
}

// Result is the result of a generation. IDs holds masks if it ended early (cancellation, a
// failed forward pass) or the sampler left some: see SuppressMask and, for masks inside
// prompts, [LLaDA].
type Result struct {
	IDs      [][]int32 // [B][n]: prompt and generated part
	Steps    int       // denoising steps completed
	Forwards int       // calls of Forward that returned logits; with guidance, conditional and unconditional are one
}

// generation is the state of one Generate call, common to all samplers.
type generation struct {
	ids     [][]int32 // [B][n], filled in place
	mask    int32
	special []special // ids that the vocabulary must hold
	seed    uint64
	total   int
	forward Forward
	onStep  func(StepInfo)

	steps, forwards int
	vocab           int // 0 until the first logits arrive
	workers         []*worker
}

// special is a token id that an option names.
type special struct {
	option string
	id     int32
}

// worker has the buffers with which one goroutine reads rows of logits.
type worker struct {
	rng    *rand.ChaCha8
	logits []float32 // [vocab] a row that may be changed
	p      []float64 // [vocab] probabilities
	heap   []float64
	order  []weighted
}

func newWorker(vocab int) *worker {
	return &worker{
		rng:    rand.NewChaCha8([32]byte{}),
		logits: make([]float32, vocab),
		p:      make([]float64, vocab),
	}
}

// proposal is a token that may be committed at a position.
type proposal struct {
	Row
	row        int // of the requested logits
	token      int32
	confidence float64
}

// checkPrompts reports why prompts, each lengthened by grow tokens, cannot be a
// batch of sequences.
func checkPrompts(prompts [][]int32, grow int) error {
	if len(prompts) == 0 {
		return errors.New("sampler: no prompts: want at least one row")
	}
	n := len(prompts[0])
	for b, row := range prompts {
		if len(row) != n {
			return fmt.Errorf("sampler: prompt row %d has %d tokens, row 0 has %d: rows of a batch have one length (pad on the left)", b, len(row), n)
		}
		for i, id := range row {
			if id < 0 {
				return fmt.Errorf("sampler: prompt row %d, position %d: token id %d: want at least 0", b, i, id)
			}
		}
	}
	if length := int64(n) + int64(grow); length < 1 || length > math.MaxInt32 {
		return fmt.Errorf("sampler: a prompt of %d tokens and %d generated ones: want a sequence of 1 to %d", n, grow, math.MaxInt32)
	}
	return nil
}

// checkNoMasks reports the first mask of the prompts: a generation with a cache, or one of
// several blocks, fills new tokens only.
func checkNoMasks(prompts [][]int32, mask int32, cached bool) error {
	for b, row := range prompts {
		if i := slices.Index(row, mask); i >= 0 {
			with := "several blocks"
			if cached {
				with = "a cache"
			}
			return fmt.Errorf("sampler: prompt row %d, position %d: token %d is the mask: want none in a prompt with %s", b, i, mask, with)
		}
	}
	return nil
}

// maxSteps is the limit of denoising steps for a number of tokens. A step that commits no
// token only affects later refreshes and random numbers. Published runs have such steps: up
// to 1,024 steps in all or, with Dream's default of 512, many for few tokens.
func maxSteps(tokens int) int64 { return max(1024, 16*int64(tokens)) }

// checkSteps reports more steps than maxSteps.
func checkSteps(steps, tokens int) error {
	if most := maxSteps(tokens); int64(steps) > most {
		return fmt.Errorf("sampler: steps %d: want at most %d for %d tokens", steps, most, tokens)
	}
	return nil
}

// nonNegative reports whether x is at least 0 and neither infinite nor NaN.
func nonNegative(x float64) bool { return x >= 0 && x <= math.MaxFloat64 }

// extend returns copies of the prompts followed by grow masks.
func extend(prompts [][]int32, grow int, mask int32) [][]int32 {
	ids := make([][]int32, len(prompts))
	for b, prompt := range prompts {
		ids[b] = slices.Concat(prompt, slices.Repeat([]int32{mask}, grow))
	}
	return ids
}

// count returns how often id occurs in row.
func count(row []int32, id int32) int {
	n := 0
	for _, v := range row {
		if v == id {
			n++
		}
	}
	return n
}

// open returns a proposal without a token for every masked position in [lo, hi),
// sorted by (Batch, Pos).
func (g *generation) open(lo, hi int) []proposal {
	var open []proposal
	for b, row := range g.ids {
		for i, id := range row[lo:hi] {
			if id == g.mask {
				open = append(open, proposal{Row: Row{b, lo + i}})
			}
		}
	}
	return open
}

// forEach calls f for 0 to n-1, on as many goroutines as Go may use. f owns its
// worker during the call. A panic of f is raised again in the caller's goroutine,
// where it can be recovered.
func (g *generation) forEach(n int, f func(w *worker, i int)) {
	for len(g.workers) < min(n, runtime.GOMAXPROCS(0)) {
		g.workers = append(g.workers, newWorker(g.vocab))
	}
	var next atomic.Int64
	var wg workgroup.Group
	for _, w := range g.workers {
		wg.Go(func() {
			for i := int(next.Add(1)) - 1; i < n; i = int(next.Add(1)) - 1 {
				f(w, i)
			}
		})
	}
	wg.Wait()
}

// topByConfidence keeps, of the proposals of each batch row, the most confident ones:
// accept gets them ordered by descending confidence, and ties by position, and returns how
// many to keep. Both proposals and the result are sorted by (Batch, Pos).
func topByConfidence(proposals []proposal, accept func(batch int, ordered []proposal) int) []proposal {
	var kept []proposal
	for len(proposals) > 0 {
		batch := proposals[0].Batch
		end := slices.IndexFunc(proposals, func(p proposal) bool { return p.Batch != batch })
		if end < 0 {
			end = len(proposals)
		}
		ordered := slices.Clone(proposals[:end])
		slices.SortFunc(ordered, func(a, b proposal) int {
			return cmp.Or(cmp.Compare(b.confidence, a.confidence), cmp.Compare(a.Pos, b.Pos))
		})
		accepted := ordered[:min(accept(batch, ordered), len(ordered))]
		slices.SortFunc(accepted, func(a, b proposal) int { return cmp.Compare(a.Pos, b.Pos) })
		kept = append(kept, accepted...)
		proposals = proposals[end:]
	}
	return kept
}

// commit writes the accepted tokens and ends the step.
func (g *generation) commit(block int, accepted []proposal) {
	rows := make([]Row, len(accepted))
	for i, c := range accepted {
		g.ids[c.Batch][c.Pos] = c.token
		rows[i] = c.Row
	}
	g.steps++
	if g.onStep != nil {
		g.onStep(StepInfo{Step: g.steps, Total: g.total, Block: block, IDs: g.ids, Committed: rows})
	}
}

func (g *generation) result() *Result {
	return &Result{IDs: g.ids, Steps: g.steps, Forwards: g.forwards}
}
