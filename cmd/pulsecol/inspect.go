package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"path/filepath"
	"slices"

	"github.com/alecthomas/kong"
	"github.com/pulsecol/pulsecol"
	"github.com/pulsecol/pulsecol/internal/inspect"
	"github.com/pulsecol/pulsecol/internal/outfile"
)

type inspectCmd struct {
	Open    modelFlag      `embed:""`
	Prompt  promptFlags    `embed:""`
	Methods attentionFlags `embed:""`
	Sampler samplerFlags   `embed:""`

	Cache        string `group:"Attention" enum:"none,prefix,dual" default:"none" placeholder:"NAME" help:"Generate with a cache of keys and values, in blocks of --block-length, and look at the columns of each block: none, prefix or dual. Default: none."`
	PrefillEvery *int   `group:"Attention" placeholder:"N" help:"With --cache: compute all tokens in the first step of every N-th block, or with 0 of the first block alone. Default: 0."`

	Queries string `enum:"all,generated" default:"all" help:"Queries that count: all, or those of the generated tokens alone."`

	Out   *string `group:"Pictures" placeholder:"DIR" help:"Write attention.png and steps.png into DIR, which is made if it is not there."`
	Shown *string `name:"method" group:"Pictures" enum:"oracle,pulsecol,column-ss,block-pr,sparsed,streaming,window" placeholder:"NAME" help:"Whose keys attention.png shows. Default: pulsecol."`
	Step  *int    `group:"Pictures" placeholder:"N" help:"Step of attention.png, from 1. Default: a quarter of the steps."`
	Layer *int    `group:"Pictures" placeholder:"N" help:"Its layer, from 0. Default: the middle one."`
	Head  *int    `group:"Pictures" placeholder:"N" help:"Its head, from 0. Default: 0."`

	JSON bool `name:"json" group:"Output" help:"Print one JSON object with recall and mass of every method, step, layer and head."`
}

func (inspectCmd) Help() string {
	return `Generates once, with full attention, and holds the keys that each method would have kept at each step to the attention that there is:

  recall   share of a query's k most probable keys that is kept, k being how many are kept
  mass     sum of the probabilities of the kept keys
  density  share of query-key pairs that is kept
  churn    share of these that a refresh replaces
  union    different keys that the groups of 128 neighbouring queries keep together, over the number that one of them keeps: 1 if they keep the same, 4 if groups of 32 share none

Numbers are means over queries, heads, layers, and the steps for which a method has selected keys. The oracle selects its columns anew in every step: no schedule of columns keeps more mass. Every method takes the flags that apply to it; the sparsity is that of all of them, 0.8 unless --sparsity is given.

With --cache the queries are the active rows of each step. A method selects the columns of a block in its first step, in groups counted from the first active row, and keeps them for the block, with the keys of the block itself; the oracle selects anew in every step. SparseD has no caches.

Examples:
  pulsecol inspect --out pictures                    the small model and its own question
  pulsecol inspect --sparsity 0.9 --schedule power --json
  pulsecol inspect --cache dual --block-length 8 --out pictures
  pulsecol inspect --model LLaDA-8B-Instruct --chat --prompt-file question.txt --out . --step 4 --layer 20 --head 3`
}

// inspectedMethods are the methods in the order they are listed.
var inspectedMethods = []string{"oracle", "pulsecol", "column-ss", "block-pr", "sparsed", "streaming", "window"}

func (c *inspectCmd) Run(line *kong.Context, std stdio) error {
	m, err := c.Open.open()
	if err != nil {
		return err
	}
	defer m.Close()
	s, err := c.Sampler.configure(m, line)
	if err != nil {
		return err
	}
	p, err := c.Prompt.read(m, std.in)
	if err != nil {
		return err
	}
	in, err := c.prepare(m, s, p.ids, line)
	if err != nil {
		return err
	}
	defer in.close()

	ctx, stop := untilInterrupted()
	defer stop()
	ctx, in.stop = context.WithCancel(ctx)
	defer in.stop()
	cfg := in.config()
	mem, err := s.memory(1, len(p.ids), cfg)
	if err != nil {
		return err
	}
	if err := c.Open.checkMemory(mem, 1, len(p.ids)+s.newTokens()); err != nil {
		return err
	}
	limitGarbage(dataBytes(mem))
	d := newDisplay(std.err, m, false)
	res, err := s.generate(ctx, p.ids, cfg, d.step)
	d.close()
	if in.err != nil { // the reason why the context ended
		return in.err
	}
	if err != nil {
		return err
	}
	i := inspection{
		Model: m.name, ModelType: m.kind(), PromptTokens: len(p.ids), NewTokens: s.newTokens(), Steps: res.Steps,
		Layers: m.config().Layers, Heads: m.config().Heads, Seed: c.Sampler.Seed, Queries: c.Queries, title: m.title(),
	}
	if in.cache.name != "" {
		i.Cache, i.PrefillEvery, i.BlockLength, i.Steps = in.cache.name, &in.cache.prefillEvery, s.blockLength(), len(in.methods[0].steps)
	}
	for _, method := range in.methods {
		i.Methods = append(i.Methods, method.summary())
	}
	if c.Out != nil {
		i.Pictures = c.pictures()
	}
	// The table comes first: pictures that cannot be written do not cost it.
	printed := i.print(std.out, c.JSON)
	if c.Out == nil {
		return printed
	}
	return errors.Join(printed, c.draw(&i, in))
}

// prepare checks the flags and returns the observer of the generation from prompt.
func (c *inspectCmd) prepare(m *openModel, s sampler, prompt []int32, line *kong.Context) (*inspector, error) {
	methods, err := c.methods(m, s, line)
	if err != nil {
		return nil, err
	}
	if err := checkLength(m, len(prompt), s.newTokens()); err != nil {
		return nil, err
	}
	in := &inspector{methods: methods, layers: m.config().Layers, device: methods[0].Device}
	if in.cache, err = c.caching(); err != nil {
		return nil, err
	}
	if c.Queries == "generated" {
		if in.from = len(prompt); s.newTokens() == 0 {
			return nil, usagef("--queries generated: no tokens are generated after the prompt")
		}
	}
	total, err := s.steps(prompt, in.config())
	if err != nil {
		return nil, err
	}
	if in.shown, err = c.shown(m, methods, total); err != nil {
		return nil, err
	}
	return in, c.makeOut() // before the work, not after it
}

// methods returns all methods as the flags set them up.
func (c *inspectCmd) methods(m *openModel, s sampler, line *kong.Context) ([]*inspected, error) {
	// Two schedules are in use: that of --schedule, and SparseD's.
	schedule := or(c.Methods.Schedule, "uniform")
	if err := checkApplies(line, "schedule", schedule+" skip", "--schedule "+schedule); err != nil {
		return nil, err
	}
	switch schedule {
	case "adaptive":
		return nil, usagef("--schedule adaptive: follows the attention of its own generation; inspect looks at that of full attention")
	case "dense":
		return nil, usagef("--schedule dense: selects no keys to look at")
	}
	sparsity := or(c.Methods.Sparsity, 0.8)
	if sparsity == 0 {
		return nil, usagef("--sparsity 0: want above 0, below 1: full attention keeps all keys")
	}
	flags := c.Methods
	flags.Sparsity = &sparsity
	cache, err := c.caching()
	if err != nil {
		return nil, err
	}
	var all []*inspected
	for _, name := range inspectedMethods {
		if name == "sparsed" && cache.name != "" {
			continue
		}
		base := name
		if name == "oracle" {
			base = "pulsecol"
		}
		att, err := flags.attention(base, m, c.Sampler.Seed)
		if err != nil {
			return nil, err
		}
		att.method = name
		switch p := att.Pattern.(type) {
		case pulsecol.SparseD:
			p.Generation = s.newTokens()
			att.Pattern = p
		case pulsecol.SlidingWindow, pulsecol.Streaming:
			// The table of a group has what at least one of its queries keeps.
			att.GroupSize = 1
		default:
			cache.set(&att.Config)
		}
		if name == "oracle" {
			att.Schedule = pulsecol.Always{}
		}
		all = append(all, &inspected{attention: att})
	}
	return all, nil
}

// caching returns the cache of the generation.
func (c *inspectCmd) caching() (caching, error) {
	f := cacheFlags{&c.Cache, c.PrefillEvery}
	return f.cache("pulsecol", or(c.Methods.Schedule, "uniform"))
}

// shown is what attention.png shows.
type shown struct {
	method            *inspected
	step, layer, head int
}

// shown returns the step, layer, head and method to draw in a generation of at most total
// steps.
func (c *inspectCmd) shown(m *openModel, methods []*inspected, total int) (*shown, error) {
	a := m.config()
	name := or(c.Shown, "pulsecol")
	w := &shown{
		step: or(c.Step, (total+3)/4), layer: or(c.Layer, a.Layers/2), head: or(c.Head, 0),
	}
	var errs []error
	if at := slices.IndexFunc(methods, func(m *inspected) bool { return m.method == name }); at >= 0 {
		w.method = methods[at]
	} else {
		errs = append(errs, usagef("--method %s and --cache %s can't be used together", name, c.Cache))
	}
	within := func(flag string, v, least, most int) {
		if v < least || v > most {
			errs = append(errs, usagef("--%s %d: want %d to %d", flag, v, least, most))
		}
	}
	within("step", w.step, 1, total)
	within("layer", w.layer, 0, a.Layers-1)
	within("head", w.head, 0, a.Heads-1)
	if c.Out == nil && (c.Shown != nil || c.Step != nil || c.Layer != nil || c.Head != nil) {
		errs = append(errs, usagef("--method, --step, --layer and --head are about pictures, which need --out"))
	}
	if len(errs) > 0 || c.Out == nil {
		return nil, errors.Join(errs...)
	}
	if first := w.method.firstChoice(total); w.step < first {
		return nil, usagef("--step %d: %s selects its first keys in step %d", w.step, name, first)
	}
	return w, nil
}

// pictures are the files of the pictures.
func (c *inspectCmd) pictures() []string {
	return []string{filepath.Join(*c.Out, "attention.png"), filepath.Join(*c.Out, "steps.png")}
}

// makeOut makes the directory of the pictures, and reports if they cannot be
// written.
func (c *inspectCmd) makeOut() error {
	switch {
	case c.Out == nil:
		return nil
	case *c.Out == "":
		return usagef("--out is empty")
	}
	if err := outfile.CheckDir(*c.Out); err != nil {
		return fmt.Errorf("--out %s: %w", *c.Out, err)
	}
	for _, file := range c.pictures() {
		if err := outfile.Check(file); err != nil {
			return fmt.Errorf("--out %w", err)
		}
	}
	return nil
}

// draw writes the pictures.
func (c *inspectCmd) draw(i *inspection, in *inspector) error {
	if in.seen == nil {
		return fmt.Errorf("--step %d: the generation was over after step %d", in.shown.step, i.Steps)
	}
	var series []inspect.Series
	for k, method := range in.methods {
		s := inspect.Series{Name: method.method, Density: or(i.Methods[k].Density, 1)}
		for _, step := range i.Methods[k].Steps {
			s.Steps = append(s.Steps, step.fidelity())
		}
		if method.method != "oracle" {
			s.Refreshes = method.refreshes
		}
		series = append(series, s)
	}
	title := fmt.Sprintf("Fidelity to full attention over a generation: %s, %d tokens, sparsity %g, %s queries",
		i.title, i.PromptTokens+i.NewTokens, in.methods[0].Sparsity, i.Queries)
	draw := []func(io.Writer) error{
		func(w io.Writer) error { return inspect.DrawMap(w, in.seen, in.caption(i)) },
		func(w io.Writer) error { return inspect.DrawSteps(w, title, series) },
	}
	for k, file := range c.pictures() {
		if err := outfile.Write(file, draw[k]); err != nil {
			return err
		}
	}
	return nil
}
