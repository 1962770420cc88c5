package main

import (
	"runtime"
	"slices"

	"github.com/alecthomas/kong"
	"github.com/pulsecol/pulsecol"
	"github.com/pulsecol/pulsecol/internal/eval"
	"github.com/pulsecol/pulsecol/internal/task"
)

type evalCmd struct {
	Open modelFlag `embed:""`

	Task      []string `group:"Tasks" required:"" placeholder:"NAME" help:"Tasks to measure: ${tasks}. @N after a name is a length in tokens."`
	Samples   int      `group:"Tasks" default:"100" placeholder:"N" help:"Samples of each task, or all that there are. Default: 100."`
	Seeds     int      `group:"Tasks" default:"1" placeholder:"N" help:"Repeat with N seeds, --seed and those that follow it. Default: 1."`
	Data      *string  `group:"Tasks" placeholder:"PATH" help:"File or folder of the tasks that need one."`
	Exemplars *string  `group:"Tasks" placeholder:"FILE" help:"Solved examples for gsm8k, a JSON array of {\"question\", \"answer\"}."`

	Method []string `group:"Attention" enum:"${methods}" default:"full,pulsecol" placeholder:"NAME" help:"Methods to compare. Every list below is multiplied with the methods that it applies to. Default: full,pulsecol."`
	settingLists
	cacheLists
	deviceFlag

	Sampler samplerFlags `embed:""`

	Results     []string `group:"Output" placeholder:"FILE" help:"Keep the answers in FILE, JSON lines. Started again, the command goes on from there. Several commands may share a file, at the same time as well. Of several files, one for each shard, the table is made; nothing is answered then."`
	Shard       *string  `group:"Output" placeholder:"I/N" help:"Answer part I of N of the samples, from 1/N to N/N: auto takes I and N from a Slurm job array, auto/N takes I from it or from a Kubernetes indexed Job. Needs --results."`
	Completions *string  `group:"Output" placeholder:"FILE" help:"Write the completions of humaneval for its official checker, JSON lines. Nothing is executed."`
	Plots       *string  `group:"Output" placeholder:"DIR" help:"Draw the scores against sparsity, refreshes and group size, as far as they were varied, into DIR."`
	PlotFormat  string   `group:"Output" enum:"png,svg" default:"png" help:"png or svg. Default: png."`
	JSON        bool     `name:"json" group:"Output" help:"Print JSON lines, one for each method and task, instead of a table."`
	Jobs        *int     `group:"Output" placeholder:"N" help:"Samples at once; the processor's threads are shared among them. Default: one for each thread with a small model, else 1."`
}

func (evalCmd) Help() string {
	return `Every method answers the same samples. The result is a Markdown table: a row for each method, a column for each task, scores in per cent with standard errors, and the differences on equal samples.

Examples:
  pulsecol eval --task retrieval@1024,lists@600 --method full,pulsecol,sparsed --sparsity 0.5,0.8,0.9 --samples 200
  pulsecol eval --task lists@600 --block-length 8 --cache none,dual --prefill-every 1,0
  pulsecol eval --task arithmetic@600 --refreshes 1,2,4,8,16 --sparsity 0.9 --results r.jsonl --plots pictures
  pulsecol eval --model LLaDA-8B-Instruct --task gsm8k --data test.jsonl --exemplars shots.json --gen-length 256 --block-length 32

A scheduler spreads an evaluation over machines by --shard. The same command without it, with the results files of all shards, prints the table as one machine would:
  pulsecol eval --task lists@600 --shard 1/2 --results 1.jsonl
  pulsecol eval --task lists@600 --shard 2/2 --results 2.jsonl
  pulsecol eval --task lists@600 --results 1.jsonl,2.jsonl

An interrupt (Ctrl-C) loses the samples in progress and prints the table of the others; with --results the same command goes on later. Commands that share a results file have the same model and sampler; a sample that two of them answer at the same time is kept once. Answers count for the data and exemplars that they were made with: others need a results file of their own.`
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
	pool    sessionPool
	shapes  map[eval.Cell]shape
	shard   shard
}

type taskSeed struct {
	name string
	seed uint64
}

func (c *evalCmd) Run(line *kong.Context, std stdio) error {
	e, err := c.prepare(line, std)
	if err != nil {
		return err
	}
	defer e.model.Close()
	defer e.pool.close()
	ctx, stop := untilInterrupted()
	defer stop()
	if e.joins() {
		return e.join(ctx, line, std)
	}
	atOnce := e.atOnce()
	most := int64(0)
	for _, s := range e.shapes {
		most = max(most, s.memory)
	}
	limitGarbage(int64(atOnce) * most)
	e.threads = max(1, runtime.GOMAXPROCS(0)/atOnce)

	results, err := e.results(line, std)
	if err != nil {
		return err
	}
	bar := newProgressBar(std.err)
	runner := eval.Runner{
		Jobs: atOnce, Ask: e.ask, Answer: e.answer, Results: results, Progress: bar.show,
		Cost: func(c eval.Cell) float64 { return e.shapes[c].cost },
	}
	all := e.jobs()
	jobs := eval.Shard(all, e.shard.index, e.shard.count)
	records, err := runner.Run(ctx, jobs)
	bar.close()
	if err != nil {
		e.reportPartial(std, records, len(jobs))
		return err
	}
	return e.report(std.out, records, e.shard.note(len(jobs), len(all)))
}

// atOnce is how many samples are answered at once.
func (e *evaluation) atOnce() int {
	if e.Jobs == nil && e.model.embedded {
		return runtime.GOMAXPROCS(0)
	}
	return or(e.Jobs, 1)
}

// Upper limits of flags, far above practical evaluations.
const (
	maxSeeds  = 1000
	maxAtOnce = 1000
)

// prepare checks the flags and opens the model.
func (c *evalCmd) prepare(line *kong.Context, std stdio) (_ *evaluation, err error) {
	var b bounds
	b.atLeast(1, "samples", &c.Samples)
	b.between(1, maxSeeds, "seeds", &c.Seeds)
	b.between(1, maxAtOnce, "jobs", c.Jobs)
	if c.Sampler.Infill {
		b.errs = append(b.errs, usagef("--infill does not apply to eval"))
	}
	b.notEmpty(line)
	if err := b.err(); err != nil {
		return nil, err
	}
	e := &evaluation{evalCmd: c, made: map[taskSeed]task.Task{}}
	if e.shard, err = c.part(); err != nil {
		return nil, err
	}
	if e.model, err = c.Open.open(); err != nil {
		return nil, err
	}
	e.pool.m = e.model
	defer func() {
		if err != nil {
			e.model.Close()
		}
	}()
	if _, err := c.Sampler.configure(e.model, line); err != nil {
		return nil, err
	}
	if e.methods, err = c.settingLists.product(line, c.Method, e.model.refreshes()); err != nil {
		return nil, err
	}
	if e.methods, err = c.cached(e.methods); err != nil {
		return nil, err
	}
	if !e.joins() { // nothing runs then
		if e.device, err = c.device(); err != nil {
			return nil, err
		}
	}
	for _, m := range e.methods {
		if err := attentionConfig(m, e.device, 0).Validate(); err != nil {
			return nil, err
		}
	}
	if c.Completions != nil && (!slices.Equal(c.Task, []string{"humaneval"}) || len(e.methods) > 1) {
		return nil, usagef("--completions wants --task humaneval and a single method")
	}
	if e.stops, err = e.model.stops(); err != nil {
		return nil, err
	}
	if err := e.makeTasks(); err != nil {
		return nil, err
	}
	if err := e.checkJobs(); err != nil {
		return nil, err
	}
	if !e.joins() {
		if e.shapes, err = e.firstShapes(); err != nil {
			return nil, err
		}
	}
	return e, e.checkOutputs(std) // last: a folder of pictures is made
}
