package main

import (
	"context"
	"fmt"
	"io"
	"math/rand/v2"
	"slices"
	"text/tabwriter"

	"github.com/alecthomas/kong"
	"github.com/pulsecol/pulsecol"
	"github.com/pulsecol/pulsecol/models"
)

type benchStepCmd struct {
	Open         modelFlag   `embed:""`
	Length       *int        `placeholder:"N" help:"Tokens of the sequence. Default: 1024, or what the model can take."`
	StepsPerMode int         `placeholder:"K" default:"5" help:"Steps to measure in each mode. Default: 5."`
	Seed         uint64      `placeholder:"N" default:"0" help:"Seed of the tokens. Default: 0."`
	BlockLength  *int        `placeholder:"N" help:"With --cache: tokens of a block. Default: 32."`
	Method       methodFlags `embed:""`
	JSON         bool        `name:"json" help:"Print one JSON object."`
}

func (benchStepCmd) Help() string {
	return `Runs a generation on random tokens whose steps take turns in their modes (full attention, refresh, reuse), and prints the seconds of a step, sampling included. The first step of each mode is a warm-up and not counted. The method is pulsecol unless --method says otherwise.

With --cache every generation has three blocks of two steps: a prefill, in which pulsecol refreshes, a commit and another prefill, each followed by a step of the block. The first generation is the warm-up. Steps of different numbers of rows are measured apart.

Examples:
  pulsecol bench step --model DIR --length 4096 --sparsity 0.8
  pulsecol bench step --model DIR --length 4096 --sparsity 0.8 --cache dual --block-length 32
  pulsecol bench step --model DIR --length 4096 --method full --cache dual --block-length 32`
}

// stepBench is what bench step prints.
type stepBench struct {
	Model     string     `json:"model"`
	Length    int        `json:"length"`
	Method    string     `json:"method"`
	Sparsity  float64    `json:"sparsity"`
	GroupSize *int       `json:"group_size"`
	Precision string     `json:"precision"`
	Density   float64    `json:"density"`                // share of pairs that a reuse step computes
	Block     int        `json:"block_length,omitempty"` // with a cache
	Modes     []modeTime `json:"modes"`
	Host      host       `json:"host"`
}

// modeTime is the seconds of a denoising step in one mode.
type modeTime struct {
	Mode string `json:"mode"`
	stepKind
	Warmup       float64   `json:"warmup_seconds"` // of the first step, which is not counted
	Seconds      []float64 `json:"seconds"`        // of the others, in the order they ran
	Median       float64   `json:"median_seconds"`
	Min          float64   `json:"min_seconds"`
	Max          float64   `json:"max_seconds"`
	TokensSecond float64   `json:"tokens_per_second"` // that a step computes, at the median
}

// stepKind is what a step with a cache computes. It is zero without one.
type stepKind struct {
	Cache string `json:"cache,omitempty"`
	Kind  string `json:"kind,omitempty"` // prefill, commit or block
	Rows  int    `json:"rows,omitempty"`
}

// maxStepsPerMode bounds the time of a measurement.
const maxStepsPerMode = 1000

func (c *benchStepCmd) Run(line *kong.Context, std stdio) error {
	if c.Method.Eta != nil || c.Method.Refreshes != nil || c.Method.Schedule != nil || c.Method.Skip != nil {
		return usagef("--eta, --refreshes, --schedule and --skip do not apply to bench step, whose steps take turns in their modes")
	}
	if c.Method.PrefillEvery != nil {
		return usagef("--prefill-every does not apply to bench step, whose blocks begin with prefills and commits in turn")
	}
	if c.BlockLength != nil && or(c.Method.Cache, "none") == "none" {
		return usagef("--block-length needs --cache prefix or dual")
	}
	if c.StepsPerMode < 1 || c.StepsPerMode > maxStepsPerMode {
		return usagef("--steps-per-mode %d: want 1 to %d", c.StepsPerMode, maxStepsPerMode)
	}
	m, err := c.Open.open()
	if err != nil {
		return err
	}
	defer m.Close()
	if c.Method.Method == nil {
		pulse := "pulsecol"
		c.Method.Method = &pulse
	}
	var bound bounds
	bound.between(1, m.config().Context, "length", c.Length)
	bound.between(2, m.config().Context, "block-length", c.BlockLength)
	if err := bound.err(); err != nil {
		return err
	}
	length := or(c.Length, min(1024, m.config().Context))
	att, err := c.Method.resolve(m, length, c.Seed, line)
	if err != nil {
		return err
	}
	b := stepBench{
		Model: m.name, Method: att.method, Sparsity: att.Sparsity, GroupSize: att.groupSize(), Precision: att.Precision.String(), Host: thisHost(),
		Length: length,
	}
	ctx, stop := untilInterrupted()
	defer stop()
	measure := c.measure
	if att.Cache != pulsecol.NoCache {
		measure = c.measureCached
	}
	if err := measure(ctx, m, att, &b, std.err); err != nil {
		return err
	}
	if c.JSON {
		return printJSON(std.out, b)
	}
	return b.print(std.out)
}

// turns is a schedule that repeats its modes in order.
type turns []pulsecol.Mode

func (t turns) Mode(step, _ int) pulsecol.Mode { return t[(step-1)%len(t)] }

// measure runs the generations that b reports.
func (c *benchStepCmd) measure(ctx context.Context, m *openModel, att attention, b *stepBench, progress io.Writer) error {
	modes := turns{pulsecol.Dense, pulsecol.Refresh, pulsecol.Reuse}
	configs := []pulsecol.Config{att.Config}
	switch att.Pattern.(type) {
	case pulsecol.SlidingWindow, pulsecol.Streaming: // never anything but reuse
		modes = turns{pulsecol.Dense}
		configs = append([]pulsecol.Config{{Device: att.Device, Precision: att.Precision}}, configs...)
	default:
		if att.Sparsity == 0 {
			modes = turns{pulsecol.Dense}
		}
		configs[0].Schedule = modes
	}
	steps := len(modes) * (c.StepsPerMode + 1)
	tokens := max(32, steps) // at least one for each step to fill
	if b.Length < tokens {
		return usagef("--length %d: want at least %d, the number of tokens that the steps fill", b.Length, tokens)
	}
	if err := checkLength(m, b.Length-tokens, tokens); err != nil {
		return err
	}
	alg := "maskgit_plus"
	s := m.sampler(&samplerFlags{Steps: &steps, Seed: c.Seed, GenLength: &tokens, MaxNewTokens: &tokens, BlockLength: &tokens, Alg: &alg})
	prompt := randomTokens(b.Length-tokens, m.config(), c.Seed)
	mem, err := s.memory(1, len(prompt), att.Config)
	if err != nil {
		return err
	}
	if err := c.Open.checkMemory(mem, 1, b.Length); err != nil {
		return err
	}
	limitGarbage(dataBytes(mem))

	b.Density = 1
	d := newDisplay(progress, m, false)
	defer d.close()
	s.onLoad(d.load)
	for _, cfg := range configs {
		taken := map[pulsecol.Mode][]float64{}
		res, err := s.generate(ctx, prompt, cfg, func(p models.Progress) {
			taken[p.Mode] = append(taken[p.Mode], p.Seconds)
			d.step(p)
		})
		if err != nil {
			return err
		}
		b.Density = min(b.Density, density(res.Stats))
		for _, mode := range []pulsecol.Mode{pulsecol.Dense, pulsecol.Refresh, pulsecol.Reuse} {
			if t := taken[mode]; len(t) > 1 {
				b.Modes = append(b.Modes, newModeTime(mode, t, b.Length))
			}
		}
	}
	return nil
}

// randomTokens returns n tokens other than the mask.
func randomTokens(n int, c architecture, seed uint64) []int32 {
	rng := rand.New(rand.NewPCG(seed, 0))
	ids := make([]int32, n)
	for i := range ids {
		ids[i] = rng.Int32N(int32(max(1, c.Vocab-1)))
		if ids[i] >= c.MaskID {
			ids[i]++
		}
	}
	return ids
}

func newModeTime(mode pulsecol.Mode, taken []float64, length int) modeTime {
	t := modeTime{Mode: mode.String(), Warmup: taken[0], Seconds: taken[1:]}
	t.Min, t.Max, t.Median = slices.Min(t.Seconds), slices.Max(t.Seconds), median(t.Seconds)
	t.TokensSecond = float64(length) / t.Median
	return t
}

// median of v, which has elements.
func median(v []float64) float64 {
	sorted := slices.Sorted(slices.Values(v))
	half := len(sorted) / 2
	if len(sorted)%2 == 0 {
		return (sorted[half-1] + sorted[half]) / 2
	}
	return sorted[half]
}

func (b *stepBench) print(w io.Writer) error {
	fmt.Fprintf(w, "%s, %d tokens, %s", b.Model, b.Length, b.Method)
	if b.Sparsity > 0 {
		fmt.Fprintf(w, " at sparsity %g", b.Sparsity)
	}
	if b.Density < 1 {
		fmt.Fprintf(w, ", which keeps %.1f %% of pairs", 100*b.Density)
	}
	if b.Block > 0 {
		fmt.Fprintf(w, ", %s cache, blocks of %d", b.Modes[0].Cache, b.Block)
	}
	if b.Precision != pulsecol.Float32.String() {
		fmt.Fprintf(w, ", products of %s", b.Precision)
	}
	fmt.Fprintf(w, "\n%s, %d threads, %s\n\n", b.Host.CPU, b.Host.Threads, b.Host.Features)
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', tabwriter.AlignRight)
	if b.Block > 0 {
		fmt.Fprint(t, "step\trows\t")
	}
	fmt.Fprintln(t, "mode\tsteps\tmedian s\tmin\tmax\twarm-up\ttokens/s\t")
	for _, m := range b.Modes {
		if b.Block > 0 {
			fmt.Fprintf(t, "%s\t%d\t", m.Kind, m.Rows)
		}
		fmt.Fprintf(t, "%s\t%d\t%.4g\t%.4g\t%.4g\t%.4g\t%.4g\t\n", m.Mode, len(m.Seconds), m.Median, m.Min, m.Max, m.Warmup, m.TokensSecond)
	}
	return t.Flush()
}
