package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"time"

	"github.com/pulsecol/pulsecol"
	"github.com/pulsecol/pulsecol/internal/columns"
	"github.com/pulsecol/pulsecol/internal/exec"
	"github.com/pulsecol/pulsecol/internal/gpu"
	"github.com/pulsecol/pulsecol/models"
)

type benchE2ECmd struct {
	Open         modelFlag `embed:""`
	Length       []int     `placeholder:"N" default:"4096,16384" help:"Tokens of the sequence, prompt and generated ones together. Default: 4096,16384."`
	NewTokens    int       `placeholder:"N" default:"128" help:"Of them generated: the most rows of logits in a step. Default: 128."`
	GroupSize    []int     `placeholder:"N" default:"128,32" help:"Consecutive queries that share their keys. Default: 128,32."`
	Sparsity     float64   `placeholder:"SHARE" default:"0.8" help:"Share of query-key pairs to drop. Default: 0.8."`
	Eta          float64   `placeholder:"SHARE" default:"0.3" help:"First part of a generation's steps, in which refreshes fall. Default: 0.3."`
	Refreshes    *int      `placeholder:"N" help:"Refreshes of a generation. Default: 16; Dream 8."`
	Batch        int       `placeholder:"N" default:"1" help:"Sequences of this length at once. Default: 1."`
	Steps        []int     `placeholder:"T" help:"Steps of the generations whose time is summed up. Default: 128,256,512,1024; with --cache as many as --new-tokens."`
	StepsPerMode int       `placeholder:"K" default:"5" help:"Steps to measure in each mode. Default: 5."`
	Warmup       int       `placeholder:"K" default:"1" help:"Steps in each mode before these. With 0 there is only one at each length, which will do where they take many seconds. Default: 1."`
	Shared       *float64  `placeholder:"SHARE" help:"Measure reuse steps on synthetic column tables: SHARE (0 to 1) of a group's keys are the same in all groups of 128 queries, the rest are random. Default: tables as refreshes make them."`
	Full         *int      `placeholder:"T" help:"Also run one generation of T steps at each length and group size from start to end."`
	Precision    string    `enum:"float32,bfloat16,int16" default:"bfloat16" help:"What values are rounded to. Default: bfloat16."`
	deviceFlag
	JSON bool `name:"json" help:"Print a JSON object a line."`

	Cache        string `enum:"none,prefix,dual" default:"none" placeholder:"NAME" help:"Keep keys and values from step to step, so that most steps compute one block of --block-length: none, prefix (those before the block) or dual (those after it, too). Default: none."`
	BlockLength  *int   `placeholder:"N" help:"With --cache: tokens of a block. Divides --new-tokens, into at least 3 blocks. Default: 32."`
	PrefillEvery []int  `placeholder:"N" help:"With --cache: of the generations whose time is summed up, compute all tokens in the first step of every N-th block, or with 0 of the first block alone. Default: 0."`
}

func (benchE2ECmd) Help() string {
	return `Runs one generation on random tokens at each length and group size, whose steps take turns in their modes (full attention, refresh, reuse), and prints the median time of a step in each, sampling included. The time of a generation of T steps is the sum of these over the refresh schedule. Full attention is measured with the first group size alone.

A GPU fetches the keys that neighbouring groups of 16, 32 or 64 queries share once. With random weights they share few. --shared says how many: the tables of all layers and heads are then one synthetic table, of as many keys a group, and reuse steps are measured by themselves. What a model shares, "union" of pulsecol inspect says: of groups of 32 at a sparsity of 0.8, SHARE 0, 0.5 and 0.83 have unions of 3.0, 2.2 and 1.5.

With --cache generations of blocks of up to 8 steps measure each kind of step: prefills with full attention, refresh and reuse, commits, and steps of a block with full attention and with columns. The time of a generation is again the sum of its steps. A refresh that falls due waits for the next prefill.

Examples:
  pulsecol bench e2e --random-weights --shape llada-8b --length 4096,16384,65536 --json
  pulsecol bench e2e --random-weights --shape llada-8b --length 65536 --cache dual --new-tokens 1024 --prefill-every 0,1
  pulsecol bench e2e --random-weights --shape llada-8b --length 16384 --group-size 128 --steps 128 --full 128`
}

// e2eRow is a line of results: a mode's step, or a generation.
type e2eRow struct {
	Shape string `json:"shape"`
	N     int    `json:"n"`
	Batch int    `json:"batch"`
	Rows  int    `json:"rows"` // of logits, of all sequences
	stepOf
	Group     int       `json:"group,omitempty"` // 0 for full attention
	Sparsity  float64   `json:"sparsity"`
	Precision string    `json:"precision"`
	Shared    *float64  `json:"shared,omitempty"`    // of a group's keys, where the tables of reuse steps are synthetic
	Mode      string    `json:"mode"`                // "dense", "refresh" or "reuse"; of a generation "full" or "pulsecol"
	Samples   int       `json:"samples,omitempty"`   // steps that the median is of
	Steps     int       `json:"steps,omitempty"`     // of a generation
	Refreshes int       `json:"refreshes,omitempty"` // of them
	Every     *int      `json:"prefill_every,omitempty"`
	Tokens    int       `json:"new_tokens,omitempty"` // of a generation with a cache
	MS        float64   `json:"ms"`                   // median of a step; of a generation the sum over its steps
	MSRange   []float64 `json:"ms_range,omitempty"`   // the shortest and the longest of these steps
	WholeMS   float64   `json:"whole_ms,omitempty"`   // of a generation that ran from start to end
	runCost
	origin
}

// stepOf is what a step with a cache computes. Of a generation it has the cache alone, and
// without a cache it is zero.
type stepOf struct {
	Cache    string `json:"cache,omitempty"`
	Block    int    `json:"block_length,omitempty"`
	Kind     string `json:"kind,omitempty"`     // prefill, commit or block
	Computed int    `json:"computed,omitempty"` // rows of each sequence
}

// runCost is what a run took on a GPU.
type runCost struct {
	LoadMS    float64 `json:"load_ms,omitempty"`    // weights, before the first step
	NeedBytes int64   `json:"need_bytes,omitempty"` // predicted memory
	HeldBytes int64   `json:"held_bytes,omitempty"` // by the operators, at most
}

func (c *benchE2ECmd) Run(std stdio) error {
	if err := c.validate(); err != nil {
		return err
	}
	device, err := c.device()
	if err != nil {
		return err
	}
	m, err := c.Open.open()
	if err != nil {
		return err
	}
	defer m.Close()
	if limit := m.config().Context; c.tokens() > limit {
		return usagef("--new-tokens, --steps-per-mode, --warmup and --full: the steps fill %d tokens, the model takes %d", c.tokens(), limit)
	}
	var b bounds
	for _, n := range c.Length {
		b.between(c.tokens(), m.config().Context, "length", &n) // at least what the steps fill
	}
	if err := b.err(); err != nil {
		return err
	}
	ctx, stop := untilInterrupted()
	defer stop()
	report := e2eTable(std.out, c.Shared)
	if c.JSON {
		e := json.NewEncoder(std.out)
		report = func(r e2eRow) error { return e.Encode(r) }
	}
	bench := e2eBench{cmd: c, m: m, ctx: ctx, device: device, report: report, progress: std.err}
	bench.row = e2eRow{
		Shape: m.name, Batch: c.Batch, Rows: c.Batch * c.tokens(), Precision: c.Precision,
		origin: newOrigin(),
	}
	length := bench.length
	if c.cached() {
		length = bench.cachedLength
		bench.row.Rows, bench.row.stepOf = c.Batch*c.block(), stepOf{Cache: c.Cache, Block: c.block()}
	}
	for _, n := range c.Length {
		if err := length(n); err != nil {
			return fmt.Errorf("%d tokens: %w", n, err)
		}
	}
	return nil
}

func (c *benchE2ECmd) validate() error {
	var b bounds
	for _, v := range c.GroupSize {
		b.between(1, maxTokens, "group-size", &v)
	}
	for _, v := range c.steps() {
		b.between(1, maxSteps, "steps", &v)
	}
	b.between(1, maxBatch, "batch", &c.Batch)
	b.between(1, maxTokens, "new-tokens", &c.NewTokens)
	b.between(1, maxStepsPerMode, "steps-per-mode", &c.StepsPerMode)
	b.between(0, maxStepsPerMode, "warmup", &c.Warmup)
	b.between(1, maxSteps, "full", c.Full)
	b.between(1, maxRefreshes, "refreshes", c.Refreshes)
	b.share(false, "sparsity", &c.Sparsity)
	b.share(true, "eta", &c.Eta)
	b.interval(0, 1, "shared", c.Shared)
	b.errs = append(b.errs, c.validateCache())
	if c.Shared != nil && c.Full != nil {
		b.errs = append(b.errs, usagef("--shared and --full can't be used together: a whole generation makes its own tables"))
	}
	return b.err()
}

// steps are those of the generations that are summed up.
func (c *benchE2ECmd) steps() []int {
	switch {
	case c.Steps != nil:
		return c.Steps
	case c.cached():
		return []int{c.NewTokens}
	}
	return []int{128, 256, 512, 1024}
}

// tokens is the number of tokens generated: at least one for each step to fill.
func (c *benchE2ECmd) tokens() int {
	if c.cached() {
		return c.NewTokens
	}
	return max(c.NewTokens, c.uncounted()+3*(c.Warmup+c.StepsPerMode), or(c.Full, 1))
}

// uncounted is the number of steps before the measured ones at a length. The first one
// tries algorithms of matrix products, unless there is a warm-up.
func (c *benchE2ECmd) uncounted() int {
	if c.Warmup == 0 {
		return 1
	}
	return 0
}

// e2eBench is a run of the command.
type e2eBench struct {
	cmd      *benchE2ECmd
	m        *openModel
	ctx      context.Context
	device   pulsecol.Device
	report   func(e2eRow) error
	progress io.Writer
	row      e2eRow // the fields that all rows share
}

// length measures everything at one length.
func (b *e2eBench) length(n int) error {
	b.row.N = n
	ms := map[pulsecol.Mode]float64{}
	for i, group := range b.cmd.GroupSize {
		order := delayed{turns{pulsecol.Dense, pulsecol.Refresh, pulsecol.Reuse}, b.cmd.uncounted(), pulsecol.Dense}
		if i > 0 {
			order = delayed{turns: order.turns[1:]}
		}
		if b.cmd.Shared != nil {
			order.turns = order.turns[:len(order.turns)-1]
		}
		if err := b.steps(n, group, order, pulsecol.Columns{}, ms); err != nil {
			return err
		}
		if b.cmd.Shared != nil {
			// The first step also copies the tables to the GPU, so it does not count.
			if err := b.steps(n, group, delayed{turns{pulsecol.Reuse}, 1, pulsecol.Reuse}, b.synthetic(n, group), ms); err != nil {
				return err
			}
		}
		if i == 0 {
			for _, steps := range b.cmd.steps() {
				if err := b.generation("full", 0, steps, pulsecol.AlwaysDense{}, ms); err != nil {
					return err
				}
			}
		}
		for _, steps := range b.cmd.steps() {
			if err := b.generation("pulsecol", group, steps, b.schedule(), ms); err != nil {
				return err
			}
		}
		if b.cmd.Full != nil {
			if err := b.whole(n, group, *b.cmd.Full, ms); err != nil {
				return err
			}
		}
	}
	return nil
}

func (b *e2eBench) schedule() pulsecol.Schedule {
	return pulsecol.Uniform{Eta: b.cmd.Eta, Refreshes: or(b.cmd.Refreshes, b.m.refreshes())}
}

// synthetic returns columns of which neighbouring groups share the fraction --shared.
// Every head has bits of its own in memory, as after a refresh.
func (b *e2eBench) synthetic(n, group int) pulsecol.Fixed {
	heads := b.m.config().Heads
	head := columns.Random(n, group, exec.Selection{Sparsity: b.cmd.Sparsity}.Keep(n), *b.cmd.Shared)
	return pulsecol.Fixed{Tables: []*pulsecol.ColumnTable{{Batch: 1, Heads: heads, Len: n, Group: group, Bits: slices.Repeat(head, heads)}}}
}

// steps measures a step in each mode of order, after the uncounted ones, and puts the
// medians, in milliseconds, into ms.
func (b *e2eBench) steps(n, group int, order delayed, pattern pulsecol.Pattern, ms map[pulsecol.Mode]float64) error {
	taken := map[pulsecol.Mode][]float64{}
	modes := len(order.turns)
	cost, err := b.run(n, group, order.steps+modes*(b.cmd.Warmup+b.cmd.StepsPerMode), order, pattern, func(p models.Progress) {
		if p.Step > order.steps+modes*b.cmd.Warmup {
			taken[p.Mode] = append(taken[p.Mode], 1e3*p.Seconds)
		}
	})
	if err != nil {
		return err
	}
	for _, mode := range order.turns {
		ms[mode] = median(taken[mode])
		r := b.row
		r.Mode, r.MS, r.Samples = mode.String(), ms[mode], len(taken[mode])
		r.MSRange = []float64{slices.Min(taken[mode]), slices.Max(taken[mode])}
		r.runCost = cost
		if mode != pulsecol.Dense {
			r.Group, r.Sparsity = group, b.cmd.Sparsity
		}
		if mode == pulsecol.Reuse {
			r.Shared = b.cmd.Shared
		}
		if err := b.report(r); err != nil {
			return err
		}
	}
	return nil
}

// delayed is turns after a number of steps in one mode.
type delayed struct {
	turns
	steps int
	mode  pulsecol.Mode
}

func (d delayed) Mode(step, total int) pulsecol.Mode {
	if step <= d.steps {
		return d.mode
	}
	return d.turns.Mode(step-d.steps, total)
}

// config returns the configuration of a generation.
func (b *e2eBench) config(group int, schedule pulsecol.Schedule, pattern pulsecol.Pattern) pulsecol.Config {
	return pulsecol.Config{
		Sparsity: b.cmd.Sparsity, GroupSize: group, Pattern: pattern, Schedule: schedule, Device: b.device, Precision: precisions[b.cmd.Precision],
	}
}

// run runs a generation whose block is all of its tokens.
func (b *e2eBench) run(n, group, steps int, schedule pulsecol.Schedule, pattern pulsecol.Pattern, onStep func(models.Progress)) (runCost, error) {
	tokens := b.cmd.tokens()
	return b.generations(n, tokens, steps, b.config(group, schedule, pattern), onStep, func() bool { return false })
}

// generations runs generations of random prompts in one session, as long as more says so
// after one.
func (b *e2eBench) generations(n, block, steps int, cfg pulsecol.Config, onStep func(models.Progress), more func() bool) (cost runCost, err error) {
	tokens, alg, batch := b.cmd.tokens(), "maskgit_plus", b.cmd.Batch
	s := b.m.sampler(&samplerFlags{Steps: &steps, GenLength: &tokens, MaxNewTokens: &tokens, BlockLength: &block, Alg: &alg})
	mem, err := s.memory(batch, n-tokens, cfg)
	if err != nil {
		return cost, err
	}
	if err := b.cmd.Open.checkMemory(mem, batch, n); err != nil {
		return cost, err
	}
	limitGarbage(dataBytes(mem))
	d := newDisplay(b.progress, b.m, false)
	defer d.close()
	cost.NeedBytes = mem.GPU.Total()
	var began time.Time
	s.onLoad(func(done, total int64) {
		if done == 0 {
			began = time.Now()
		}
		cost.LoadMS = 1e3 * time.Since(began).Seconds()
		d.load(done, total)
	})
	var prompts [][]int32
	for seed := range batch {
		prompts = append(prompts, randomTokens(n-tokens, b.m.config(), uint64(seed)))
	}
	in, err := b.m.newSession(cfg)
	if err != nil {
		return cost, err
	}
	defer func() { err = errors.Join(err, in.Close()) }()
	for again := true; again; again = more() {
		_, err := s.generateIn(b.ctx, in, prompts, func(p models.Progress) {
			cost.HeldBytes = max(cost.HeldBytes, gpu.Held())
			onStep(p)
			d.step(p)
		})
		if err != nil {
			return cost, err
		}
	}
	return cost, nil
}

// generation reports the time of a generation, summed over the steps of a schedule.
func (b *e2eBench) generation(method string, group, steps int, schedule pulsecol.Schedule, ms map[pulsecol.Mode]float64) error {
	r := b.row
	r.Mode, r.Group, r.Steps = method, group, steps
	if method != "full" {
		r.Sparsity, r.Shared = b.cmd.Sparsity, b.cmd.Shared
	}
	r.MS, r.Refreshes = summed(steps, schedule, ms)
	return b.report(r)
}

// summed returns the time of the steps of a schedule, and how many are refreshes.
func summed(steps int, schedule pulsecol.Schedule, ms map[pulsecol.Mode]float64) (sum float64, refreshes int) {
	for step := range steps {
		mode := schedule.Mode(step+1, steps)
		sum += ms[mode]
		if mode == pulsecol.Refresh {
			refreshes++
		}
	}
	return sum, refreshes
}

// whole runs a generation from start to end and reports its time next to the sum of its steps.
func (b *e2eBench) whole(n, group, steps int, ms map[pulsecol.Mode]float64) error {
	r := b.row
	r.Mode, r.Group, r.Sparsity, r.Steps = "pulsecol", group, b.cmd.Sparsity, steps
	r.MS, r.Refreshes = summed(steps, b.schedule(), ms)
	var err error
	if r.runCost, err = b.run(n, group, steps, b.schedule(), pulsecol.Columns{}, func(p models.Progress) { r.WholeMS += 1e3 * p.Seconds }); err != nil {
		return err
	}
	return b.report(r)
}
