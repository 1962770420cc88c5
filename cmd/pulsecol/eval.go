package main

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/fnv"
	"io"
	"math"
	"math/rand/v2"
	"runtime"
	"slices"
	"strconv"
	"time"

	"github.com/alecthomas/kong"
	"github.com/pulsecol/pulsecol"
	"github.com/pulsecol/pulsecol/internal/eval"
	"github.com/pulsecol/pulsecol/internal/task"
	"github.com/pulsecol/pulsecol/models/llada"
)

type evalCmd struct {
	Open modelFlag `embed:""`

	Task      []string `group:"Tasks" required:"" placeholder:"NAME" help:"Tasks to measure: ${tasks}. @N behind a name is a length in tokens."`
	Samples   int      `group:"Tasks" default:"100" placeholder:"N" help:"Samples of each task, or all that there are. Default: 100."`
	Seeds     int      `group:"Tasks" default:"1" placeholder:"N" help:"Repeat with N seeds, --seed and those that follow it. Default: 1."`
	Data      string   `group:"Tasks" placeholder:"PATH" help:"File or folder of the tasks that need one."`
	Exemplars string   `group:"Tasks" placeholder:"FILE" help:"Solved examples for gsm8k, a JSON array of {\"question\", \"answer\"}."`

	Method []string `group:"Attention" enum:"${methods}" default:"full,pulsecol" placeholder:"NAME" help:"Methods to compare. Every list below is multiplied with the methods that it applies to. Default: full,pulsecol."`
	settingLists
	deviceFlag

	Sampler samplerFlags `embed:""`

	Results     string `group:"Output" placeholder:"FILE" help:"Keep the answers in FILE, JSON lines. Started again, the command goes on from there. Several commands may share a file."`
	Completions string `group:"Output" placeholder:"FILE" help:"Write the completions of humaneval for its official checker, JSON lines. Nothing is executed."`
	Plots       string `group:"Output" placeholder:"DIR" help:"Draw the scores against sparsity, refreshes and group size, as far as they were varied, into DIR."`
	PlotFormat  string `group:"Output" enum:"png,svg" default:"png" help:"png or svg. Default: png."`
	JSON        bool   `name:"json" group:"Output" help:"Print JSON lines, one for each method and task, instead of a table."`
	Jobs        *int   `group:"Output" placeholder:"N" help:"Samples at once; the processor's threads are shared among them. Default: one for each thread with a small model, else 1."`
}

func (evalCmd) Help() string {
	return `Every method answers the same samples. The result is a Markdown table: a row for each method, a column for each task, scores in per cent with standard errors, and the differences on equal samples.

Examples:
  pulsecol eval --task retrieval@1024,lists@600 --method full,pulsecol,sparsed --sparsity 0.5,0.8,0.9 --samples 200
  pulsecol eval --task arithmetic@600 --refreshes 1,2,4,8,16 --sparsity 0.9 --results r.jsonl --plots pictures
  pulsecol eval --model LLaDA-8B-Instruct --task gsm8k --data test.jsonl --exemplars shots.json --gen-length 256 --block-length 32

An interrupt (Ctrl-C) loses the samples in progress; with --results the same command goes on later.`
}

// evaluation is an eval command about to run.
type evaluation struct {
	*evalCmd
	model   *openModel
	device  pulsecol.Device
	threads int      // of a generation
	tasks   []string // names
	methods []eval.Method
	made    map[taskSeed]task.Task
	stops   []int32 // tokens that end an answer
}

type taskSeed struct {
	name string
	seed uint64
}

func (c *evalCmd) Run(line *kong.Context, std stdio) error {
	e, err := c.prepare(line)
	if err != nil {
		return err
	}
	defer e.model.Close()
	shapes, err := e.shapes()
	if err != nil {
		return err
	}
	atOnce := or(c.Jobs, 1)
	if c.Jobs == nil && e.model.embedded {
		atOnce = runtime.GOMAXPROCS(0)
	}
	most := int64(0)
	for _, s := range shapes {
		most = max(most, s.memory)
	}
	limitGarbage(int64(atOnce) * most)
	e.threads = max(1, runtime.GOMAXPROCS(0)/atOnce)

	have, keep, done, err := e.results(line, std)
	if err != nil {
		return err
	}
	defer done()
	ctx, stop := untilInterrupted()
	defer stop()
	bar := newProgressBar(std.err)
	jobs := e.jobs()
	runner := eval.Runner{
		Jobs: atOnce, Answer: e.answer, Keep: keep, Progress: bar.show,
		Cost: func(c eval.Cell) float64 { return shapes[c].cost },
	}
	records, err := runner.Run(ctx, jobs, have)
	bar.close()
	if c.Results != "" && errors.Is(err, context.Canceled) {
		fmt.Fprintf(std.err, "%d of %d samples are in %s; the same command goes on from there\n", len(records), len(jobs), c.Results)
	}
	if err != nil {
		return err
	}
	return e.report(std.out, records)
}

// Bounds of what a command asks for, far above what anyone waits for.
const (
	maxSeeds  = 1000
	maxAtOnce = 1000
)

// prepare checks the flags and opens the model.
func (c *evalCmd) prepare(line *kong.Context) (_ *evaluation, err error) {
	var b bounds
	b.atLeast(1, "samples", &c.Samples)
	b.between(1, maxSeeds, "seeds", &c.Seeds)
	b.between(1, maxAtOnce, "jobs", c.Jobs)
	if c.Sampler.Infill {
		b.errs = append(b.errs, usagef("--infill does not apply to eval"))
	}
	if err := b.err(); err != nil {
		return nil, err
	}
	e := &evaluation{evalCmd: c, made: map[taskSeed]task.Task{}}
	if e.model, err = c.Open.open(); err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			e.model.Close()
		}
	}()
	if _, err := c.Sampler.choose(e.model, line); err != nil {
		return nil, err
	}
	if e.device, err = c.device(); err != nil {
		return nil, err
	}
	if e.methods, err = c.product(line, c.Method, e.model.refreshes()); err != nil {
		return nil, err
	}
	for _, m := range e.methods {
		if err := attentionConfig(m, e.device, 0).Validate(); err != nil {
			return nil, err
		}
	}
	if c.Completions != "" && (!slices.Equal(c.Task, []string{"humaneval"}) || len(e.methods) > 1) {
		return nil, usagef("--completions wants --task humaneval and a single method")
	}
	if e.stops, err = e.model.stops(); err != nil {
		return nil, err
	}
	return e, e.makeTasks()
}

// makeTasks makes every task with every seed.
func (e *evaluation) makeTasks() error {
	count := func(text string) int {
		ids, _ := e.model.Encode(text) // fails without a tokenizer only, which stops has found out
		return len(ids)
	}
	for _, spec := range e.Task {
		for seed := range e.seeds() {
			t, err := task.New(spec, task.Options{Seed: seed, Count: count, Data: e.Data, Exemplars: e.Exemplars})
			switch {
			case err != nil && e.Data == "" && e.Exemplars == "":
				return usagef("--task: %w", err)
			case err != nil: // the files are what is wrong
				return err
			}
			key := taskSeed{t.Name(), seed}
			if e.made[key] != nil {
				return usagef("--task %s: given twice", spec)
			}
			e.made[key] = t
			if seed == e.Sampler.Seed {
				e.tasks = append(e.tasks, t.Name())
			}
		}
	}
	return nil
}

// seeds yields the seeds of the evaluation.
func (e *evaluation) seeds() func(func(uint64) bool) {
	return func(yield func(uint64) bool) {
		for i := range e.Seeds {
			if !yield(e.Sampler.Seed + uint64(i)) {
				return
			}
		}
	}
}

// jobs lists all samples. The first sample of all cells comes first, then the
// second, so that at any time all cells have about as many.
func (e *evaluation) jobs() []eval.Job {
	var jobs []eval.Job
	for seed := range e.seeds() {
		for i := range e.Samples {
			for _, name := range e.tasks {
				if i >= e.made[taskSeed{name, seed}].Len() {
					continue
				}
				for _, m := range e.methods {
					jobs = append(jobs, eval.Job{Cell: eval.Cell{Task: name, Method: m}, Seed: seed, Index: i})
				}
			}
		}
	}
	return jobs
}

// answer runs one generation and marks it.
func (e *evaluation) answer(ctx context.Context, j eval.Job) (rec eval.Record, err error) {
	start := time.Now()
	t := e.made[taskSeed{j.Task, j.Seed}]
	s, err := t.Sample(j.Index)
	if err != nil {
		return rec, err
	}
	prompt, err := e.prompt(t, s)
	if err != nil {
		return rec, err
	}
	// A stream of its own for each sample, the same with all methods.
	seed := rand.NewPCG(j.Seed, uint64(j.Index)).Uint64()
	sampler := e.sampler(t, seed)
	if err := checkLength(e.model, len(prompt), sampler.newTokens()); err != nil {
		return rec, err
	}
	cfg := attentionConfig(j.Method, e.device, seed)
	cfg.Threads = e.threads
	res, err := sampler.generate(ctx, prompt, cfg, nil)
	if err != nil {
		return rec, err
	}
	output, err := e.model.Decode(e.untilStop(res.OutputIDs))
	if err != nil {
		return rec, err
	}
	rec = eval.Record{
		ID: s.ID, PromptHash: promptHash(prompt), Output: output,
		Tokens: len(prompt) + sampler.newTokens(), Steps: res.Steps, RefreshSteps: res.RefreshSteps, Kept: density(res.Stats),
		Seconds: time.Since(start).Seconds(),
	}
	if score := t.Score(s, output); !math.IsNaN(score) {
		rec.Score = &score
	}
	return rec, nil
}

// prompt returns the tokens to continue. Chat tasks get the template of the
// model's Instruct version, and the prefix is the beginning of the answer; a small
// model, which has no template, gets questions and answers in the form that it was
// trained on.
func (e *evaluation) prompt(t task.Task, s task.Sample) ([]int32, error) {
	switch {
	case !t.Chat():
		return e.model.Encode(s.Prompt + s.Prefix)
	case e.model.embedded:
		var text string
		for i := 0; i+1 < len(s.History); i += 2 {
			text += asQuestion(s.History[i].Text) + " " + s.History[i+1].Text + "\n"
		}
		return e.model.Encode(text + asQuestion(s.Prompt) + s.Prefix)
	}
	var messages []llada.Message
	for _, turn := range s.History {
		messages = append(messages, llada.Message{Role: turn.Role, Content: turn.Text})
	}
	return e.model.encodeChat(append(messages,
		llada.Message{Role: "user", Content: s.Prompt}, llada.Message{Role: "assistant", Content: s.Prefix}))
}

// sampler returns the model with the sampler of a task's answers.
func (e *evaluation) sampler(t task.Task, seed uint64) sampler {
	f := e.Sampler
	f.Seed = seed
	if n := t.GenLength(); n > 0 && f.GenLength == nil && f.MaxNewTokens == nil {
		if block := or(f.BlockLength, 1); n%block != 0 { // whole blocks
			n += block - n%block
		}
		f.GenLength, f.MaxNewTokens = &n, &n
	}
	return e.model.sampler(&f)
}

// untilStop cuts an answer off where the model has ended it.
func (e *evaluation) untilStop(ids []int32) []int32 {
	if end := slices.IndexFunc(ids, func(id int32) bool { return slices.Contains(e.stops, id) }); end >= 0 {
		return ids[:end]
	}
	return ids
}

// promptHash tells prompts apart.
func promptHash(ids []int32) string {
	h := fnv.New64a()
	binary.Write(h, binary.LittleEndian, ids) // hashes do not fail
	return strconv.FormatUint(h.Sum64(), 16)
}

// shape is what a sample of a cell takes, judged by the first one.
type shape struct {
	cost   float64 // operations
	memory int64   // bytes
}

// shapes looks at the first sample of every cell, so that what cannot run is an
// error before anything has run.
func (e *evaluation) shapes() (map[eval.Cell]shape, error) {
	out := map[eval.Cell]shape{}
	for _, name := range e.tasks {
		t := e.made[taskSeed{name, e.Sampler.Seed}]
		s, err := t.Sample(0)
		if err != nil {
			return nil, err
		}
		prompt, err := e.prompt(t, s)
		if err != nil {
			return nil, err
		}
		sampler := e.sampler(t, 0)
		if err := checkLength(e.model, len(prompt), sampler.newTokens()); err != nil {
			return nil, fmt.Errorf("%s: %w", name, err)
		}
		steps, err := sampler.steps(prompt)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", name, err)
		}
		for _, m := range e.methods {
			cfg := attentionConfig(m, e.device, 0)
			mem, err := sampler.memory(1, len(prompt), cfg)
			if err != nil {
				return nil, fmt.Errorf("%s: %w", name, err)
			}
			tokens := len(prompt) + sampler.newTokens()
			out[eval.Cell{Task: name, Method: m}] = shape{
				cost:   e.operations(tokens, steps, m, cfg.Schedule),
				memory: mem.Workspace + mem.Columns,
			}
		}
	}
	return out, nil
}

// operations estimates the multiplications of a generation.
func (e *evaluation) operations(tokens, steps int, m eval.Method, schedule pulsecol.Schedule) float64 {
	n, c := float64(tokens), e.model.config()
	sparse := 1 - m.Sparsity
	if m.Window > 0 {
		sparse = min(1, float64(m.Window)/n+m.Sinks)
	}
	pairs := 0.0 // in units of n²
	for step := range steps {
		switch {
		case m.Name == eval.Full || schedule != nil && schedule.Mode(step+1, steps) != pulsecol.Reuse:
			pairs++
		default:
			pairs += sparse
		}
	}
	return float64(steps)*n*float64(e.model.parameters()) + pairs*n*n*2*float64(c.Layers*c.Heads*c.HeadDim)
}

// report prints the table or its cells, and writes what else was asked for.
func (e *evaluation) report(w io.Writer, records []eval.Record) error {
	if e.Completions != "" {
		if err := writeCompletions(e.Completions, records); err != nil {
			return err
		}
	}
	table := eval.NewTable(e.tasks, e.methods, records)
	if e.Plots != "" {
		if _, err := table.Plot(e.Plots, e.PlotFormat); err != nil {
			return err
		}
	}
	if !e.JSON {
		return table.WriteMarkdown(w)
	}
	for _, s := range table.Summaries() {
		if err := printJSON(w, s); err != nil {
			return err
		}
	}
	return nil
}
