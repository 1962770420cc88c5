package main

import (
	"fmt"

	"github.com/pulsecol/pulsecol"
	"github.com/pulsecol/pulsecol/internal/eval"
	"github.com/pulsecol/pulsecol/internal/task"
)

// makeTasks makes every task with every seed.
func (e *evaluation) makeTasks() error {
	count := func(text string) int {
		ids, _ := e.model.Encode(text) // fails without a tokenizer only, which stops has checked
		return len(ids)
	}
	for _, spec := range e.Task {
		for seed := range e.seeds() {
			t, err := task.New(spec, task.Options{Seed: seed, Count: count, Data: or(e.Data, ""), Exemplars: or(e.Exemplars, "")})
			switch {
			case err != nil && e.Data == nil && e.Exemplars == nil:
				return usagef("--task: %w", err)
			case err != nil: // of the files, not of the flags
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

// maxJobs bounds the generations of a command, so that a mistyped number is an error
// and does not fill the memory.
const maxJobs = 1 << 20

// checkJobs reports more than maxJobs generations.
func (e *evaluation) checkJobs() error {
	left := maxJobs
	for _, t := range e.made {
		n := min(e.Samples, t.Len())
		if n > left/len(e.methods) {
			return usagef("--samples %d: want at most %d generations in all, of samples, tasks, seeds and methods", e.Samples, maxJobs)
		}
		left -= n * len(e.methods)
	}
	return nil
}

// jobs lists all samples: the first sample of every cell, then the second, and so on, so
// that at any time all cells have about the same number of answers.
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

// shape is the cost of a cell's samples, estimated from the first one.
type shape struct {
	cost   float64 // operations
	memory int64   // bytes
}

// firstShapes checks the first sample of every cell, so that a cell that cannot run is an
// error before anything runs.
func (e *evaluation) firstShapes() (map[eval.Cell]shape, error) {
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
		for _, m := range e.methods {
			cfg := attentionConfig(m, e.device, 0)
			steps, err := sampler.steps(prompt, cfg)
			if err != nil {
				return nil, fmt.Errorf("%s: %w", name, err)
			}
			mem, err := sampler.memory(1, len(prompt), cfg)
			if err != nil {
				return nil, fmt.Errorf("%s: %w", name, err)
			}
			tokens := len(prompt) + sampler.newTokens()
			if err := e.Open.checkMemory(mem, e.atOnce(), tokens); err != nil {
				return nil, fmt.Errorf("%s: %w", name, err)
			}
			out[eval.Cell{Task: name, Method: m}] = shape{
				cost:   e.operations(tokens, steps, m, cfg.Schedule) * rowsShare(sampler, tokens, steps, cfg),
				memory: dataBytes(mem),
			}
		}
	}
	return out, nil
}

// rowsShare estimates the share of a generation's rows that its steps compute.
func rowsShare(s sampler, tokens, steps int, cfg pulsecol.Config) float64 {
	if cfg.Cache == pulsecol.NoCache {
		return 1
	}
	blocks, prefills := s.newTokens()/s.blockLength(), 1
	if cfg.PrefillEvery > 0 {
		prefills = (blocks + cfg.PrefillEvery - 1) / cfg.PrefillEvery
	}
	rows := float64(s.blockLength()) // of another step
	if cfg.Cache == pulsecol.PrefixCache {
		rows *= float64(blocks+1) / 2
	}
	rest := max(0, steps-prefills)
	return (float64(prefills*tokens) + float64(rest)*rows) / float64((prefills+rest)*tokens)
}

// operations estimates the multiplications of a generation that computes all rows in every
// step.
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
