package session

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/pulsecol/pulsecol"
	"github.com/pulsecol/pulsecol/internal/sampler"
	"github.com/pulsecol/pulsecol/models"
)

// Sampler is a sampler of package sampler.
type Sampler interface {
	TotalSteps(prompts [][]int32) (int, error)
	Generate(ctx context.Context, prompts [][]int32, forward sampler.Forward) (*sampler.Result, error)
}

// Generation is what a session generates, other than the prompts and their sampler.
type Generation struct {
	NewTokens   int  // generated after each prompt
	BlockLength int  // of them in a block
	Guided      bool // by logits of the sequences with the prompt masked
	OnLoad      func(done, total int64)
	OnStep      func(models.Progress)
}

// Generate generates from prompts of any lengths; shorter ones are padded on the left. The
// sampler is what newSampler makes for a callback. An interrupted generation returns the
// sequences so far, together with the context's error. After an error the session is as
// good as before.
func (s *Session) Generate(ctx context.Context, prompts [][]int32, o Generation, newSampler func(onStep func(sampler.StepInfo)) Sampler) ([]models.Result, error) {
	if err := s.enter(o.NewTokens); err != nil {
		return nil, err
	}
	defer s.leave()
	results, err := s.generate(ctx, prompts, o, newSampler)
	if errors.Is(err, pulsecol.ErrMemory) { // of a GPU; a smaller shape may fit without what is held
		err = errors.Join(err, s.drop())
	}
	return results, err
}

func (s *Session) generate(ctx context.Context, prompts [][]int32, o Generation, newSampler func(onStep func(sampler.StepInfo)) Sampler) (results []models.Result, err error) {
	padded, padding, err := s.pad(prompts, o.NewTokens)
	if err != nil {
		return nil, err
	}
	length := len(padded[0]) + o.NewTokens
	shape := s.shape(padded, padding, o)
	if o.Guided {
		padding = append(padding, padding...)
	}
	if !shape.Padded {
		padding = nil
	}
	r := &run{Session: s, inputs: newInputs(shape.Batch, length, padding, s.PositionsSkipPadding), shape: shape}
	last := time.Now()
	smp := newSampler(func(info sampler.StepInfo) {
		now := time.Now()
		if o.OnStep != nil {
			o.OnStep(models.Progress{
				Step: info.Step, Total: info.Total, Mode: s.ctl.LastMode(), Pass: r.passes[len(r.passes)-1], Seconds: now.Sub(last).Seconds(),
				IDs: info.IDs, Prompt: length - o.NewTokens, Committed: len(info.Committed),
			})
		}
		last = now
	})
	total, err := smp.TotalSteps(padded)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", models.ErrRequest, err)
	}
	if err := s.start(ctx, shape, total, o.OnLoad); err != nil {
		return nil, err
	}
	before := s.ctl.Stats()
	start := time.Now()
	last = start
	out, err := smp.Generate(ctx, padded, r.forward)
	if out == nil {
		return nil, err
	}
	stats := since(s.ctl.Stats(), before)
	for b, ids := range out.IDs {
		results = append(results, models.Result{
			PromptIDs: prompts[b], OutputIDs: ids[length-o.NewTokens:], Filled: ids[length-o.NewTokens-len(prompts[b]):],
			Steps: out.Steps, Forwards: out.Forwards, RefreshSteps: stats.RefreshSteps, Passes: r.passes, Stats: stats,
			Seconds: time.Since(start).Seconds(),
		})
	}
	return results, err
}

// since returns s with the counts of its layers since before.
func since(s, before pulsecol.Stats) pulsecol.Stats {
	for i, old := range before.Layers {
		l := &s.Layers[i]
		l.Refreshes -= old.Refreshes
		for mode := range l.Seconds {
			l.Seconds[mode] -= old.Seconds[mode]
		}
	}
	return s
}

// shape is that of a step that computes all rows.
func (s *Session) shape(prompts [][]int32, padding []int, o Generation) models.Shape {
	length, masks := len(prompts[0])+o.NewTokens, 0
	for _, p := range prompts {
		for _, id := range p {
			if id == s.MaskID {
				masks++
			}
		}
	}
	shape := models.Shape{Batch: len(prompts), Len: length, Rows: len(prompts)*o.NewTokens + masks, Padded: anyPositive(padding)}
	if s.Config.Cache != pulsecol.NoCache {
		shape.Cached = length
		shape.Rows = len(prompts) * o.BlockLength
	}
	if o.Guided {
		shape.Batch *= 2
		shape.Rows *= 2
	}
	shape.Rows = max(1, min(shape.Rows, shape.Batch*length))
	return shape
}

// pad checks the prompts and brings them to one length, before newTokens more.
func (s *Session) pad(prompts [][]int32, newTokens int) (padded [][]int32, padding []int, err error) {
	if len(prompts) == 0 {
		return nil, nil, fmt.Errorf("%w: no prompt", models.ErrRequest)
	}
	longest := 0
	for _, p := range prompts {
		longest = max(longest, len(p))
	}
	switch {
	case newTokens < 0:
		return nil, nil, fmt.Errorf("%w: %d new tokens, want at least 0", models.ErrRequest, newTokens)
	case newTokens > s.Context || longest > s.Context-newTokens:
		return nil, nil, fmt.Errorf("%w: a prompt of %d tokens and %d new ones exceed the model's context of %d", models.ErrRequest, longest, newTokens, s.Context)
	case longest+newTokens == 0:
		return nil, nil, fmt.Errorf("%w: an empty prompt and no new tokens", models.ErrRequest)
	}
	for b, p := range prompts {
		if err := CheckIDs(p, s.Vocab); err != nil {
			return nil, nil, fmt.Errorf("prompt %d: %w", b, err)
		}
		row := make([]int32, longest)
		pad := longest - len(p)
		for i := range pad {
			row[i] = s.PadID
		}
		copy(row[pad:], p)
		padded, padding = append(padded, row), append(padding, pad)
	}
	return padded, padding, nil
}

// CheckIDs reports the first token id outside a vocabulary.
func CheckIDs(ids []int32, vocab int) error {
	for i, id := range ids {
		if id < 0 || int(id) >= vocab {
			return fmt.Errorf("%w: token id %d at position %d is outside the vocabulary [0, %d)", models.ErrRequest, id, i, vocab)
		}
	}
	return nil
}

func anyPositive(v []int) bool {
	for _, x := range v {
		if x > 0 {
			return true
		}
	}
	return false
}
