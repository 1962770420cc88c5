package main

import (
	"fmt"
	"math"
	"slices"
	"strings"

	"github.com/alecthomas/kong"
	"github.com/pulsecol/pulsecol"
	"github.com/pulsecol/pulsecol/cudaop"
	"github.com/pulsecol/pulsecol/internal/eval"
)

// methodFlags select what attention computes.
type methodFlags struct {
	Method *string `group:"Attention" enum:"${methods}" placeholder:"NAME" help:"full, pulsecol, sparsed, window, streaming, block-pr (blocks, periodic refresh) or column-ss (columns, SparseD's schedule). Default: pulsecol if --sparsity, --group-size, --eta, --refreshes or --schedule is given, and with the small model from 256 tokens on; else full."`
	attentionFlags
	cacheFlags

	Precision string `group:"Attention" enum:"auto,float32,bfloat16,int16,int8" default:"auto" help:"What the operands of products are rounded to: auto (float32 on the CPU, bfloat16 on GPUs), float32 (not at all), bfloat16 or int16, with other results; int8: the inputs of quantized weights alone. Which is fastest depends on the processor. Default: auto."`
}

// precisions are the values of --precision.
var precisions = map[string]pulsecol.Precision{"auto": pulsecol.AutoPrecision, "float32": pulsecol.Float32, "bfloat16": pulsecol.BFloat16, "int16": pulsecol.Int16, "int8": pulsecol.Int8}

// attentionFlags set up the methods.
type attentionFlags struct {
	oneSetting
	deviceFlag
}

// methods lists the names that --method takes.
const methods = "full,pulsecol,sparsed,window,streaming,block-pr,column-ss"

// settings are the flags that configure a method. F, I and S are the types of flags for
// numbers, integers and names: one value, or a list.
type settings[F, I, S any] struct {
	Sparsity  F `group:"Attention" method:"pulsecol sparsed block-pr column-ss" placeholder:"SHARE" help:"Share of query-key pairs to drop, at least 0, below 1. Default: 0.8; sparsed 0.7."`
	GroupSize I `group:"Attention" method:"pulsecol block-pr column-ss" placeholder:"N" help:"Consecutive queries that share their keys. Default: 32."`
	Eta       F `group:"Attention" method:"pulsecol block-pr" schedule:"uniform random power adaptive" placeholder:"SHARE" help:"First part of the steps, in which refreshes fall. Default: 0.3; adaptive 1."`
	Refreshes I `group:"Attention" method:"pulsecol block-pr" schedule:"uniform random power adaptive" placeholder:"N" help:"Number of refreshes; the most, if adaptive. Default: 16; Dream 8."`
	Schedule  S `group:"Attention" method:"pulsecol block-pr" enum:"uniform,random,power,adaptive,skip,always,dense" placeholder:"NAME" help:"When to refresh: uniform, random, power (densest at the start), adaptive (when attention has drifted), skip (SparseD's), always or dense (never). Default: uniform."`
	Drift     F `group:"Attention" method:"pulsecol block-pr" schedule:"adaptive" placeholder:"SHARE" help:"Share of attention that must have left the columns of a query group before a refresh. Default: 0.02."`
	Window    I `group:"Attention" method:"window streaming" placeholder:"N" help:"Width of the window, in keys. Default: 256."`
	Sinks     F `group:"Attention" method:"streaming" placeholder:"SHARE" help:"First part of the keys, always kept. Default: 0.1."`
	BlockSize I `group:"Attention" method:"sparsed block-pr" placeholder:"N" help:"Keys in a block (sparsed: and queries). Default: 128; block-pr 32."`
	Skip      F `group:"Attention" method:"pulsecol sparsed block-pr column-ss" schedule:"skip" placeholder:"SHARE" help:"First part of the steps, with full attention. Default: 0.2."`

	ScoreScale F `group:"Attention" method:"sparsed" placeholder:"X" help:"Factor of q·k where blocks are ranked. Default: that of attention. (SparseD's LLaDA code has 1/sqrt(heads).)"`
}

// oneSetting is at most one value of each.
type oneSetting settings[*float64, *int, *string]

// deviceFlag selects where to compute.
type deviceFlag struct {
	Device string `group:"Attention" enum:"auto,cpu,cuda" default:"auto" help:"Where to compute: auto, cpu or cuda."`
}

func (f deviceFlag) device() (pulsecol.Device, error) {
	device := map[string]pulsecol.Device{"auto": pulsecol.Auto, "cpu": pulsecol.CPU, "cuda": pulsecol.CUDA}[f.Device]
	if device == pulsecol.CUDA {
		if err := cudaop.Available(); err != nil {
			return device, fmt.Errorf("--device cuda: %w", err)
		}
	}
	return device, nil
}

// attention is a method with its configuration.
type attention struct {
	method string
	pulsecol.Config
}

// groupSize is the number of queries that share keys; nil if none do.
func (a *attention) groupSize() *int {
	switch p := a.Pattern.(type) {
	case pulsecol.Columns, pulsecol.Blocks:
		return &a.GroupSize
	case pulsecol.SparseD:
		return &p.BlockSize
	}
	return nil
}

// sparse reports whether a flag was given that applies to sparse attention only.
func (f *attentionFlags) sparse() bool {
	return f.Sparsity != nil || f.GroupSize != nil || f.Eta != nil || f.Refreshes != nil || f.Schedule != nil
}

// shortSequence is the number of tokens below which the small model gets full
// attention by default: of 70 tokens, 80 % sparsity keeps 14, too few to answer.
const shortSequence = 256

// resolve returns the attention that the flags select for m and a sequence of tokens tokens.
// seed is that of the generation.
func (f *methodFlags) resolve(m *openModel, tokens int, seed uint64, line *kong.Context) (attention, error) {
	method := "full"
	if f.sparse() || m.embedded && tokens >= shortSequence {
		method = "pulsecol"
	}
	method = or(f.Method, method)
	if err := checkApplies(line, "method", method, "--method "+method); err != nil {
		return attention{}, err
	}
	schedule := f.scheduleOf(method)
	if err := checkApplies(line, "schedule", schedule, "--schedule "+schedule); err != nil {
		return attention{}, err
	}
	cache, err := f.cache(method, schedule)
	if err != nil {
		return attention{}, err
	}
	att, err := f.attention(method, m, seed)
	if err != nil {
		return attention{}, err
	}
	cache.set(&att.Config)
	att.Precision = precisions[f.Precision]
	ctl, err := pulsecol.NewController(att.Config)
	if err != nil {
		return attention{}, err
	}
	att.Precision = ctl.PrecisionFor(m.config().HeadDim) // not AutoPrecision, for reports
	return att, ctl.Close()
}

// answer is resolve for a generation from a prompt of ids.
func (f *methodFlags) answer(m *openModel, s sampler, ids []int32, seed uint64, line *kong.Context) (attention, error) {
	if s.fillsAtPrefill() && f.Cache != nil && f.PrefillEvery == nil {
		every, with := 1, *f
		with.PrefillEvery = &every
		f = &with
	}
	att, err := f.resolve(m, len(ids)+s.newTokens(), seed, line)
	if err != nil || slices.Contains(ids, m.config().MaskID) {
		return att, err
	}
	return f.cacheByDefault(att, m, s)
}

// cacheByDefault gives a small model a cache of keys and values, unless --cache is given or
// something else asks for what a cache cannot do.
func (f *methodFlags) cacheByDefault(att attention, m *openModel, s sampler) (attention, error) {
	if f.Cache != nil || !m.embedded || s.newTokens() == 0 {
		return att, nil
	}
	cached := att
	cached.Cache = pulsecol.DualCache
	if cached.Validate() != nil {
		return att, nil
	}
	return cached, nil
}

// attention returns a method as the flags configure it for m.
func (f *attentionFlags) attention(method string, m *openModel, seed uint64) (attention, error) {
	if err := f.validate(); err != nil {
		return attention{}, err
	}
	device, err := f.device()
	if err != nil {
		return attention{}, err
	}
	cfg := attentionConfig(f.of(method, m.refreshes()), device, seed)
	return attention{method, cfg}, cfg.Validate()
}

func (f *oneSetting) validate() error {
	var b bounds
	b.share(false, "sparsity", f.Sparsity)
	b.between(1, maxTokens, "group-size", f.GroupSize)
	b.share(true, "eta", f.Eta)
	b.between(1, maxRefreshes, "refreshes", f.Refreshes)
	b.share(true, "drift", f.Drift)
	b.between(1, maxTokens, "window", f.Window)
	b.share(true, "sinks", f.Sinks)
	b.between(1, maxTokens, "block-size", f.BlockSize)
	b.share(false, "skip", f.Skip)
	b.interval(1/maxScale, maxScale, "score-scale", f.ScoreScale)
	return b.err()
}

// scheduleOf names the schedule of a method; "" if it has none.
func (f *oneSetting) scheduleOf(method string) string {
	switch method {
	case "pulsecol", "block-pr":
		return or(f.Schedule, "uniform")
	case "sparsed", "column-ss":
		return "skip"
	}
	return ""
}

// of returns a method with the settings that apply to it, defaults filled in. refreshes is
// the model's default.
func (f *oneSetting) of(method string, refreshes int) eval.Method {
	m := eval.Method{Name: method, Schedule: f.scheduleOf(method)}
	switch method {
	case "pulsecol", "column-ss":
		m.Sparsity, m.GroupSize = or(f.Sparsity, 0.8), or(f.GroupSize, 32)
	case "block-pr":
		m.Sparsity, m.GroupSize, m.BlockSize = or(f.Sparsity, 0.8), or(f.GroupSize, 32), or(f.BlockSize, 32)
	case "sparsed":
		m.Sparsity, m.BlockSize, m.ScoreScale = or(f.Sparsity, 0.7), or(f.BlockSize, 128), or(f.ScoreScale, 0)
	case "window":
		m.Window = or(f.Window, 256)
	case "streaming":
		m.Window, m.Sinks = or(f.Window, 256), or(f.Sinks, 0.1)
	}
	switch m.Schedule {
	case "uniform", "random", "power":
		m.Eta, m.Refreshes = or(f.Eta, 0.3), or(f.Refreshes, refreshes)
	case "adaptive":
		m.Eta, m.Refreshes, m.Drift = or(f.Eta, 1), or(f.Refreshes, refreshes), or(f.Drift, 0.02)
	case "skip":
		m.Skip = or(f.Skip, 0.2)
	}
	return m
}

// attentionConfig returns the library's configuration for m. seed is that of the
// generation.
func attentionConfig(m eval.Method, device pulsecol.Device, seed uint64) pulsecol.Config {
	c := pulsecol.Config{Sparsity: m.Sparsity, GroupSize: m.GroupSize, Device: device}
	caching{m.Cache, m.PrefillEvery}.set(&c)
	switch m.Name {
	case "pulsecol", "column-ss":
		c.Pattern = pulsecol.Columns{}
	case "block-pr":
		c.Pattern = pulsecol.Blocks{Size: m.BlockSize}
	case "sparsed":
		c.Pattern = pulsecol.SparseD{BlockSize: m.BlockSize, ScoreScale: m.ScoreScale}
	case "window":
		c.Pattern = pulsecol.SlidingWindow{Width: m.Window}
	case "streaming":
		c.Pattern = pulsecol.Streaming{Width: m.Window, SinkFraction: m.Sinks}
	}
	switch m.Schedule {
	case "uniform":
		c.Schedule = pulsecol.Uniform{Eta: m.Eta, Refreshes: m.Refreshes}
	case "random":
		c.Schedule = pulsecol.Random{Eta: m.Eta, Refreshes: m.Refreshes, Seed: seed}
	case "power":
		c.Schedule = pulsecol.Power{Eta: m.Eta, Refreshes: m.Refreshes}
	case "adaptive":
		c.Schedule = pulsecol.Adaptive{Eta: m.Eta, Refreshes: m.Refreshes, Threshold: m.Drift}
	case "skip":
		// A Fraction of 0 means the default; this one rounds to no step.
		c.Schedule = pulsecol.Skip{Fraction: max(m.Skip, math.SmallestNonzeroFloat64)}
	case "always":
		c.Schedule = pulsecol.Always{}
	case "dense":
		c.Schedule = pulsecol.AlwaysDense{}
	}
	return c
}

// describe summarises the steps of a generation: "refreshed at 1 2 3, reused
// 13 (20 % of pairs)".
func (a *attention) describe(s pulsecol.Stats) string {
	var parts []string
	if a.Cache != pulsecol.NoCache {
		parts = append(parts, fmt.Sprintf("%v cache with %s", a.Cache, passesText(s)))
	}
	switch {
	case a.method == "full" || s.Dense == s.Steps:
		return strings.Join(append(parts, "full attention"), ", ")
	case s.Dense > 0:
		parts = append(parts, fmt.Sprintf("full attention in %d", s.Dense))
	}
	if s.Refreshes > 0 {
		parts = append(parts, "refreshed at "+strings.Trim(fmt.Sprint(s.RefreshSteps), "[]"))
	}
	if s.Reuses > 0 {
		verb := "reused"
		if s.Refreshes == 0 {
			verb = a.Pattern.String() + " in"
		}
		parts = append(parts, fmt.Sprintf("%s %d (%.0f %% of pairs)", verb, s.Reuses, 100*density(s)))
	}
	return strings.Join(parts, ", ")
}

// density is the share of query-key pairs that the tables of a generation keep,
// on average over the layers; 1 if no step was sparse.
func density(s pulsecol.Stats) float64 {
	if s.Reuses == 0 || len(s.Layers) == 0 {
		return 1
	}
	sum := 0.0
	for _, l := range s.Layers {
		sum += l.Density
	}
	return sum / float64(len(s.Layers))
}
