package main

import (
	"context"
	"encoding/json"
	"fmt"
	"hash/fnv"
	"math"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/pulsecol/pulsecol/internal/eval"
	"github.com/pulsecol/pulsecol/internal/task"
	"github.com/pulsecol/pulsecol/models"
)

// answer runs one generation and marks it.
func (e *evaluation) answer(ctx context.Context, j eval.Job) (rec eval.Record, err error) {
	start := time.Now()
	t, s, prompt, err := e.sample(j)
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
	res, err := e.pool.generate(ctx, sampler, cfg, prompt)
	if err != nil {
		return rec, err
	}
	output, err := e.model.Decode(e.untilStop(res.OutputIDs))
	if err != nil {
		return rec, err
	}
	rec = eval.Record{
		ID: s.ID, Asked: asked(s, prompt), Output: output,
		Tokens: len(prompt) + sampler.newTokens(), Steps: res.Steps, RefreshSteps: res.RefreshSteps, Kept: density(res.Stats),
		Seconds: time.Since(start).Seconds(),
	}
	if score := t.Score(s, output); !math.IsNaN(score) {
		rec.Score = &score
	}
	return rec, nil
}

// ask returns the identity of a sample and its prompt.
func (e *evaluation) ask(j eval.Job) (eval.Asked, error) {
	_, s, prompt, err := e.sample(j)
	if err != nil {
		return eval.Asked{}, err
	}
	return asked(s, prompt), nil
}

// asked identifies a sample and its prompt.
func asked(s task.Sample, prompt []int32) eval.Asked {
	a := eval.Asked{PromptHash: hashOf(prompt), DataHash: hashOf(s.ID, s.Prompt, s.Prefix, s.Answers)}
	if len(s.History) > 0 {
		a.ExemplarsHash = hashOf(s.History)
	}
	return a
}

// hashOf returns a hash of values.
func hashOf(values ...any) string {
	h := fnv.New64a()
	if err := json.NewEncoder(h).Encode(values); err != nil {
		panic(err) // neither numbers nor text can fail, nor hashes
	}
	return fmt.Sprintf("%016x", h.Sum64())
}

// sample returns the sample of a job, its task and its prompt.
func (e *evaluation) sample(j eval.Job) (task.Task, task.Sample, []int32, error) {
	t := e.made[taskSeed{j.Task, j.Seed}]
	s, err := t.Sample(j.Index)
	if err != nil {
		return nil, s, nil, err
	}
	prompt, err := e.prompt(t, s)
	return t, s, prompt, err
}

// prompt returns the tokens to continue. Prompts of chat tasks take the template of the
// model's Instruct version and end with the prefix of the answer. A small model has no
// template: it gets questions and answers in the form that it was trained on.
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
	var messages []models.Message
	for _, turn := range s.History {
		messages = append(messages, models.Message{Role: turn.Role, Content: turn.Text})
	}
	return e.model.EncodeChat(append(messages,
		models.Message{Role: "user", Content: s.Prompt}, models.Message{Role: "assistant", Content: s.Prefix}))
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

// untilStop returns an answer up to its first end token.
func (e *evaluation) untilStop(ids []int32) []int32 {
	if end := slices.IndexFunc(ids, func(id int32) bool { return slices.Contains(e.stops, id) }); end >= 0 {
		return ids[:end]
	}
	return ids
}
