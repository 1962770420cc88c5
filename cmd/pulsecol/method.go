package main

import (
	"fmt"
	"math"
	"strings"

	"github.com/alecthomas/kong"
	"github.com/pulsecol/pulsecol"
	"github.com/pulsecol/pulsecol/cudaop"
)

// methodFlags choose what attention computes.
type methodFlags struct {
	Method *string `group:"Attention" enum:"full,pulsecol,sparsed,window,streaming,block-pr,column-ss" placeholder:"NAME" help:"full, pulsecol, sparsed, window, streaming, block-pr (blocks, periodic refresh) or column-ss (columns, SparseD's schedule). Default: pulsecol if --sparsity, --group-size, --eta, --refreshes or --schedule is given, and with the small model from 256 tokens on; else full."`

	attentionFlags
}

// attentionFlags set up the methods.
type attentionFlags struct {
	Sparsity  *float64 `group:"Attention" method:"pulsecol sparsed block-pr column-ss" placeholder:"SHARE" help:"Share of query-key pairs to drop, at least 0, below 1. Default: 0.8; sparsed 0.7."`
	GroupSize *int     `group:"Attention" method:"pulsecol block-pr column-ss" placeholder:"N" help:"Consecutive queries that share their keys. Default: 32."`
	Eta       *float64 `group:"Attention" method:"pulsecol block-pr" schedule:"uniform random power adaptive" placeholder:"SHARE" help:"First part of the steps, in which refreshes fall. Default: 0.3; adaptive 1."`
	Refreshes *int     `group:"Attention" method:"pulsecol block-pr" schedule:"uniform random power adaptive" placeholder:"N" help:"Number of refreshes; the most, if adaptive. Default: 16; Dream 8."`
	Schedule  *string  `group:"Attention" method:"pulsecol block-pr" enum:"uniform,random,power,adaptive,skip,always,dense" placeholder:"NAME" help:"When to refresh: uniform, random, power (densest at the start), adaptive (when attention has drifted), skip (SparseD's), always or dense (never). Default: uniform."`
	Drift     *float64 `group:"Attention" method:"pulsecol block-pr" schedule:"adaptive" placeholder:"SHARE" help:"Share of attention that must have left the columns of a query group before a refresh. Default: 0.02."`
	Window    *int     `group:"Attention" method:"window streaming" placeholder:"N" help:"Width of the window, in keys. Default: 256."`
	Sinks     *float64 `group:"Attention" method:"streaming" placeholder:"SHARE" help:"First part of the keys, always kept. Default: 0.1."`
	BlockSize *int     `group:"Attention" method:"sparsed block-pr" placeholder:"N" help:"Keys in a block (sparsed: and queries). Default: 128; block-pr 32."`
	Skip      *float64 `group:"Attention" method:"pulsecol sparsed block-pr column-ss" schedule:"skip" placeholder:"SHARE" help:"First part of the steps, with full attention. Default: 0.2."`

	ScoreScale *float64 `group:"Attention" method:"sparsed" placeholder:"X" help:"Factor of q·k where blocks are ranked. Default: that of attention. (SparseD's LLaDA code has 1/sqrt(heads).)"`

	Device string `group:"Attention" enum:"auto,cpu,cuda" default:"auto" help:"Where to compute: auto, cpu or cuda."`
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

// sparse says whether a flag was given that is about sparse attention only.
func (f *attentionFlags) sparse() bool {
	return f.Sparsity != nil || f.GroupSize != nil || f.Eta != nil || f.Refreshes != nil || f.Schedule != nil
}

// shortSequence is the number of tokens below which the small model gets full
// attention by default: of 70 tokens, 80 % sparsity keeps 14, too few to answer.
const shortSequence = 256

// choose returns what the flags ask for with m and a sequence of tokens tokens.
// seed is that of the generation.
func (f *methodFlags) choose(m *openModel, tokens int, seed uint64, line *kong.Context) (attention, error) {
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
	return f.attention(method, m, seed)
}

// scheduleOf names the schedule of a method; "" if it has none.
func (f *attentionFlags) scheduleOf(method string) string {
	return map[string]string{
		"pulsecol": or(f.Schedule, "uniform"), "block-pr": or(f.Schedule, "uniform"), "sparsed": "skip", "column-ss": "skip",
	}[method]
}

// attention returns a method as the flags set it up for m.
func (f *attentionFlags) attention(method string, m *openModel, seed uint64) (attention, error) {
	if err := f.validate(); err != nil {
		return attention{}, err
	}
	cfg := pulsecol.Config{
		Device:   map[string]pulsecol.Device{"auto": pulsecol.Auto, "cpu": pulsecol.CPU, "cuda": pulsecol.CUDA}[f.Device],
		Schedule: f.schedule(f.scheduleOf(method), m.refreshes(), seed),
	}
	f.pattern(method, &cfg)
	if cfg.Device == pulsecol.CUDA {
		if err := cudaop.Available(); err != nil {
			return attention{}, fmt.Errorf("--device cuda: %w", err)
		}
	}
	return attention{method, cfg}, cfg.Validate()
}

func (f *attentionFlags) validate() error {
	var b bounds
	b.share(false, "sparsity", f.Sparsity)
	b.atLeast(1, "group-size", f.GroupSize)
	b.share(true, "eta", f.Eta)
	b.atLeast(1, "refreshes", f.Refreshes)
	b.share(true, "drift", f.Drift)
	b.atLeast(1, "window", f.Window)
	b.share(true, "sinks", f.Sinks)
	b.atLeast(1, "block-size", f.BlockSize)
	b.share(false, "skip", f.Skip)
	b.positive("score-scale", f.ScoreScale)
	return b.err()
}

// pattern sets what of attention is kept.
func (f *attentionFlags) pattern(method string, c *pulsecol.Config) {
	switch method {
	case "pulsecol", "column-ss":
		c.Pattern, c.Sparsity, c.GroupSize = pulsecol.Columns{}, or(f.Sparsity, 0.8), or(f.GroupSize, 32)
	case "block-pr":
		c.Pattern, c.Sparsity, c.GroupSize = pulsecol.Blocks{Size: or(f.BlockSize, 32)}, or(f.Sparsity, 0.8), or(f.GroupSize, 32)
	case "sparsed":
		c.Sparsity = or(f.Sparsity, 0.7)
		c.Pattern = pulsecol.SparseD{BlockSize: or(f.BlockSize, 128), ScoreScale: or(f.ScoreScale, 0)}
	case "window":
		c.Pattern = pulsecol.SlidingWindow{Width: or(f.Window, 256)}
	case "streaming":
		c.Pattern = pulsecol.Streaming{Width: or(f.Window, 256), SinkFraction: or(f.Sinks, 0.1)}
	}
}

func (f *attentionFlags) schedule(name string, refreshes int, seed uint64) pulsecol.Schedule {
	eta, refreshes := or(f.Eta, 0.3), or(f.Refreshes, refreshes)
	switch name {
	case "uniform":
		return pulsecol.Uniform{Window: eta, Refreshes: refreshes}
	case "random":
		return pulsecol.Random{Window: eta, Refreshes: refreshes, Seed: seed}
	case "power":
		return pulsecol.Power{Window: eta, Refreshes: refreshes}
	case "skip":
		// A zero Fraction would be the default; this one rounds to no step.
		return pulsecol.Skip{Fraction: max(or(f.Skip, 0.2), math.SmallestNonzeroFloat64)}
	case "adaptive":
		return pulsecol.Adaptive{Window: or(f.Eta, 1), Refreshes: refreshes, Threshold: or(f.Drift, 0.02)}
	case "always":
		return pulsecol.Always{}
	case "dense":
		return pulsecol.AlwaysDense{}
	}
	return nil
}

// describe says how the steps of a generation went: "refreshed at 1 2 3, reused
// 13 (20 % of pairs)".
func (a *attention) describe(s pulsecol.Stats) string {
	var parts []string
	switch {
	case a.method == "full" || s.Dense == s.Steps:
		return "full attention"
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
