package main

import (
	"cmp"
	"maps"
	"slices"

	"github.com/pulsecol/pulsecol"
	"github.com/pulsecol/pulsecol/models"
)

// mostStepsInBlock bounds the steps of a block that are measured.
const mostStepsInBlock = 8

// leastBlocks are those of a generation with a prefill, a commit and another prefill.
const leastBlocks = 3

func (c *benchE2ECmd) cached() bool { return caches[c.Cache] != pulsecol.NoCache }

func (c *benchE2ECmd) block() int { return or(c.BlockLength, 32) }

// blocks is their number in a generation.
func (c *benchE2ECmd) blocks() int { return c.NewTokens / c.block() }

// prefillEvery are the blocks from one prefill to the next in the generations that are
// summed up.
func (c *benchE2ECmd) prefillEvery() []int {
	if c.PrefillEvery == nil {
		return []int{0}
	}
	return c.PrefillEvery
}

// validateCache reports flags that a cache needs otherwise.
func (c *benchE2ECmd) validateCache() error {
	switch {
	case !c.cached() && c.BlockLength != nil:
		return usagef("--block-length needs --cache prefix or dual")
	case !c.cached() && c.PrefillEvery != nil:
		return usagef("--prefill-every needs --cache prefix or dual")
	case !c.cached():
		return nil
	case c.Shared != nil:
		return usagef("--shared and --cache %s can't be used together: synthetic tables have no columns for the rows of a block", c.Cache)
	}
	var b bounds
	b.between(2, maxTokens, "block-length", c.BlockLength)
	for _, v := range c.prefillEvery() {
		b.between(0, maxTokens, "prefill-every", &v)
	}
	if err := b.err(); err != nil {
		return err
	}
	if c.NewTokens%c.block() != 0 || c.blocks() < leastBlocks {
		return usagef("--new-tokens %d: want a multiple of %d, the tokens of a block, and at least %d blocks", c.NewTokens, c.block(), leastBlocks)
	}
	check := func(flag string, steps int) error {
		if steps%c.blocks() != 0 || steps > c.NewTokens {
			return usagef("--%s %d: want a multiple of %d, the number of blocks, and at most %d, the new tokens", flag, steps, c.blocks(), c.NewTokens)
		}
		return nil
	}
	for _, steps := range c.steps() {
		if err := check("steps", steps); err != nil {
			return err
		}
	}
	if c.Full != nil {
		return check("full", *c.Full)
	}
	return nil
}

// cachedLength measures everything with a cache at one length.
func (b *e2eBench) cachedLength(n int) error {
	b.row.N = n
	if err := b.cachedMethod(n, 0); err != nil {
		return err
	}
	for _, group := range b.cmd.GroupSize {
		if b.cmd.Sparsity == 0 {
			break
		}
		if err := b.cachedMethod(n, group); err != nil {
			return err
		}
	}
	return nil
}

// cachedMethod measures steps and generations with columns for groups of queries, or with
// full attention if group is 0.
func (b *e2eBench) cachedMethod(n, group int) error {
	r := b.row
	r.Mode = "full"
	if group > 0 {
		r.Mode, r.Group, r.Sparsity = "pulsecol", group, b.cmd.Sparsity
	}
	t, err := b.cachedSteps(n, r)
	if err != nil {
		return err
	}
	for _, every := range b.cmd.prefillEvery() {
		for _, steps := range b.cmd.steps() {
			r := r
			r.Steps, r.Every, r.Tokens = steps, &every, b.cmd.NewTokens
			r.MS, r.Refreshes = t.sum(steps, b.cmd.blocks(), every, b.cachedConfig(r, every, b.schedule()))
			if err := b.report(r); err != nil {
				return err
			}
		}
		if b.cmd.Full == nil {
			continue
		}
		r, cfg := r, b.cachedConfig(r, every, b.schedule())
		r.Steps, r.Every, r.Tokens = *b.cmd.Full, &every, b.cmd.NewTokens
		r.MS, r.Refreshes = t.sum(r.Steps, b.cmd.blocks(), every, cfg)
		r.runCost, err = b.generations(n, b.cmd.block(), r.Steps, cfg, func(p models.Progress) { r.WholeMS += 1e3 * p.Seconds }, func() bool { return false })
		if err != nil {
			return err
		}
		if err := b.report(r); err != nil {
			return err
		}
	}
	return nil
}

// cachedConfig returns the configuration of the generations of a row.
func (b *e2eBench) cachedConfig(r e2eRow, every int, schedule pulsecol.Schedule) pulsecol.Config {
	cfg := b.config(r.Group, schedule, pulsecol.Columns{})
	cfg.Sparsity, cfg.Cache, cfg.PrefillEvery = r.Sparsity, caches[b.cmd.Cache], every
	return cfg
}

// refreshEvery is a schedule that refreshes in the first of so many steps.
type refreshEvery int

func (n refreshEvery) Mode(step, _ int) pulsecol.Mode {
	if (step-1)%int(n) == 0 {
		return pulsecol.Refresh
	}
	return pulsecol.Reuse
}

// cachedSteps measures and reports the steps of a method, which r names. With columns every
// other prefill refreshes.
func (b *e2eBench) cachedSteps(n int, r e2eRow) (*cachedTimes, error) {
	c := b.cmd
	inBlock := min(c.block(), mostStepsInBlock)
	// The first prefill of all, which has full attention, tries algorithms of matrix products.
	t := &cachedTimes{warmup: c.Warmup, samples: c.StepsPerMode, taken: map[pulsecol.Pass][]float64{}, rows: map[pulsecol.Pass][]int{}}
	modes := 2
	if r.Group == 0 {
		modes, t.warmup = 1, max(1, c.Warmup)
	}
	prefills := modes * (t.warmup + t.samples)
	every := max(2, (c.blocks()+prefills-1)/prefills)
	cfg := b.cachedConfig(r, every, refreshEvery(2*every*inBlock))
	cost, err := b.generations(n, c.block(), c.blocks()*inBlock, cfg, t.add, t.few)
	if err != nil {
		return nil, err
	}
	for _, p := range t.passes() {
		times := t.counted(p)
		r := r
		r.Mode, r.Kind, r.Computed = p.Mode.String(), p.Kind.String(), p.Rows
		r.MS, r.Samples, r.MSRange = median(times), len(times), []float64{slices.Min(times), slices.Max(times)}
		r.runCost = cost
		if err := b.report(r); err != nil {
			return nil, err
		}
	}
	return t, nil
}

// cachedTimes are the milliseconds of steps with a cache.
type cachedTimes struct {
	warmup, samples int // prefills in each mode that do not count, and that do
	block           int // of the latest step
	taken           map[pulsecol.Pass][]float64
	rows            map[pulsecol.Pass][]int // by kind and mode: those of each block, 0 where there was no such step
}

// add adds the time of a step.
func (t *cachedTimes) add(p models.Progress) {
	switch {
	case p.Step == 1:
		t.block = 0
	case p.Pass.Kind != pulsecol.BlockStep:
		t.block++
	}
	p.Pass.First = 0
	t.taken[p.Pass] = append(t.taken[p.Pass], 1e3*p.Seconds)
	rows := p.Pass.Rows
	p.Pass.Rows = 0
	blocks := t.rows[p.Pass]
	blocks = append(blocks, make([]int, max(0, t.block+1-len(blocks)))...)
	blocks[t.block] = rows
	t.rows[p.Pass] = blocks
}

// uncounted is the number of first steps that do not count. Of steps that take little time
// it is at least one.
func (t *cachedTimes) uncounted(p pulsecol.Pass) int {
	if p.Kind == pulsecol.Prefill {
		return t.warmup
	}
	return max(1, t.warmup)
}

// counted returns the times that count.
func (t *cachedTimes) counted(p pulsecol.Pass) []float64 { return t.taken[p][t.uncounted(p):] }

// few reports whether another generation is needed.
func (t *cachedTimes) few() bool {
	for p, times := range t.taken {
		want := 1
		if p.Kind == pulsecol.Prefill {
			want = t.samples
		}
		if len(times) < t.uncounted(p)+want {
			return true
		}
	}
	return false
}

// passes returns the steps in the order of reports.
func (t *cachedTimes) passes() []pulsecol.Pass {
	return slices.SortedFunc(maps.Keys(t.taken), func(a, b pulsecol.Pass) int {
		return cmp.Or(cmp.Compare(a.Kind, b.Kind), cmp.Compare(a.Mode, b.Mode), cmp.Compare(b.Rows, a.Rows))
	})
}

// of returns the time of a step in a block, or where that was not measured in the nearest one.
func (t *cachedTimes) of(kind pulsecol.PassKind, mode pulsecol.Mode, block int) float64 {
	p := pulsecol.Pass{Kind: kind, Mode: mode}
	blocks := t.rows[p]
	for away := range len(blocks) + block {
		for _, at := range []int{block + away, block - away} {
			if at >= 0 && at < len(blocks) && blocks[at] > 0 {
				p.Rows = blocks[at]
				return median(t.counted(p))
			}
		}
	}
	return 0
}

// sum returns the time of a generation of so many blocks, and how many steps are refreshes.
func (t *cachedTimes) sum(steps, blocks, every int, cfg pulsecol.Config) (ms float64, refreshes int) {
	due := true // a refresh, since a prefill
	for step := range steps {
		block, first := step/(steps/blocks), step%(steps/blocks) == 0
		due = due || cfg.Schedule.Mode(step+1, steps) == pulsecol.Refresh
		kind, mode := pulsecol.BlockStep, pulsecol.Reuse
		switch {
		case first && (block == 0 || every > 0 && block%every == 0):
			kind = pulsecol.Prefill
			if due {
				mode, due = pulsecol.Refresh, false
			}
		case first:
			kind, mode = pulsecol.Commit, pulsecol.Dense
		}
		if cfg.Sparsity == 0 {
			mode = pulsecol.Dense
		}
		if mode == pulsecol.Refresh {
			refreshes++
		}
		ms += t.of(kind, mode, block)
	}
	return ms, refreshes
}
