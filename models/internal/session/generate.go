package session

import (
	"context"
	"fmt"
	"slices"
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

// Request is a generation to run.
type Request struct {
	Generation
	Build   Builder
	Intact  func() error // reports weights that have changed; see checkpoint.Files.Intact
	Prompts [][]int32    // of any lengths; shorter ones are padded on the left
	Sampler func(onStep func(sampler.StepInfo)) Sampler

	Context              int // most tokens of a sequence
	Vocab                int
	MaskID, PadID        int32
	PositionsSkipPadding bool // positions count from the first real token
}

// Generate runs req. An interrupted generation returns the sequences so far, together
// with the context's error.
func Generate(ctx context.Context, req Request) (results []models.Result, err error) {
	prompts, padding, err := req.pad()
	if err != nil {
		return nil, err
	}
	length, masks := len(prompts[0])+req.NewTokens, 0
	for _, p := range prompts {
		for _, id := range p {
			if id == req.MaskID {
				masks++
			}
		}
	}
	shape := models.Shape{Batch: len(prompts), Len: length, Rows: len(prompts)*req.NewTokens + masks, Padded: anyPositive(padding)}
	if req.Guided {
		shape.Batch *= 2
		shape.Rows *= 2
		padding = append(padding, padding...)
	}
	shape.Rows = max(1, min(shape.Rows, shape.Batch*length))

	var sess *Session
	last := time.Now()
	smp := req.Sampler(func(s sampler.StepInfo) {
		now := time.Now()
		if req.OnStep != nil {
			req.OnStep(models.Progress{
				Step: s.Step, Total: s.Total, Mode: sess.ctl.LastMode(), Seconds: now.Sub(last).Seconds(),
				IDs: s.IDs, Prompt: length - req.NewTokens, Committed: len(s.Committed),
			})
		}
		last = now
	})
	total, err := smp.TotalSteps(prompts)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", models.ErrRequest, err)
	}
	if sess, err = NewSession(req.Build, shape, req.Config); err != nil {
		return nil, err
	}
	sess.intact = req.Intact
	defer func() {
		if cerr := sess.Close(); err == nil {
			err = cerr
		}
	}()
	if shape.Padded {
		sess.SetPadding(padding, req.PositionsSkipPadding)
	}
	if err := sess.load(ctx, req.OnLoad); err != nil {
		return nil, err
	}
	if err := sess.ctl.Start(total); err != nil {
		return nil, err
	}
	start := time.Now()
	last = start
	out, err := smp.Generate(ctx, prompts, sess.Forward)
	if out == nil {
		return nil, err
	}
	stats := sess.ctl.Stats()
	for b, ids := range out.IDs {
		results = append(results, models.Result{
			PromptIDs: req.Prompts[b], OutputIDs: ids[length-req.NewTokens:], Filled: ids[length-req.NewTokens-len(req.Prompts[b]):],
			Steps: out.Steps, Forwards: out.Forwards, RefreshSteps: stats.RefreshSteps, Stats: stats,
			Seconds: time.Since(start).Seconds(),
		})
	}
	return results, err
}

// pad checks the prompts and brings them to one length.
func (req *Request) pad() (prompts [][]int32, padding []int, err error) {
	if len(req.Prompts) == 0 {
		return nil, nil, fmt.Errorf("%w: no prompt", models.ErrRequest)
	}
	longest := 0
	for _, p := range req.Prompts {
		longest = max(longest, len(p))
	}
	switch {
	case req.NewTokens < 0:
		return nil, nil, fmt.Errorf("%w: %d new tokens, want at least 0", models.ErrRequest, req.NewTokens)
	case req.NewTokens > req.Context || longest > req.Context-req.NewTokens:
		return nil, nil, fmt.Errorf("%w: a prompt of %d tokens and %d new ones exceed the model's context of %d", models.ErrRequest, longest, req.NewTokens, req.Context)
	case longest+req.NewTokens == 0:
		return nil, nil, fmt.Errorf("%w: an empty prompt and no new tokens", models.ErrRequest)
	}
	for b, p := range req.Prompts {
		if err := CheckIDs(p, req.Vocab); err != nil {
			return nil, nil, fmt.Errorf("prompt %d: %w", b, err)
		}
		row := make([]int32, longest)
		pad := longest - len(p)
		for i := range pad {
			row[i] = req.PadID
		}
		copy(row[pad:], p)
		prompts, padding = append(prompts, row), append(padding, pad)
	}
	return prompts, padding, nil
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

// LogitsRequest is a forward pass to run.
type LogitsRequest struct {
	Build                Builder
	Intact               func() error // as in Request
	IDs                  [][]int32    // of one length
	Padding              []int        // tokens on the left of each sequence; nil for none
	PositionsSkipPadding bool         // positions count from the first real token
	Vocab                int
	Context              int
}

// Logits runs one dense forward pass in float32 and returns the logits of every
// token: [len(IDs),n,Vocab], flat.
func Logits(ctx context.Context, req LogitsRequest) ([]float32, error) {
	if err := req.check(); err != nil {
		return nil, err
	}
	n := len(req.IDs[0])
	shape := models.Shape{Batch: len(req.IDs), Len: n, Rows: len(req.IDs) * n, Padded: req.Padding != nil}
	sess, err := NewSession(req.Build, shape, pulsecol.Config{Precision: pulsecol.Float32})
	if err != nil {
		return nil, err
	}
	defer sess.Close()
	sess.intact = req.Intact
	if req.Padding != nil {
		sess.SetPadding(req.Padding, req.PositionsSkipPadding)
	}
	if err := sess.load(ctx, nil); err != nil {
		return nil, err
	}
	if err := sess.ctl.Start(1); err != nil {
		return nil, err
	}
	var rows []sampler.Row
	for b := range req.IDs {
		for i := range n {
			rows = append(rows, sampler.Row{Batch: b, Pos: i})
		}
	}
	logits, err := sess.Forward(ctx, sampler.Pass{IDs: req.IDs, Rows: rows})
	if err != nil {
		return nil, err
	}
	if sess.onGPU == nil {
		return sess.values(), nil
	}
	all, err := logits.Rows(len(rows), 0)
	if err != nil {
		return nil, err
	}
	return slices.Concat(all...), nil
}

func (req *LogitsRequest) check() error {
	if len(req.IDs) == 0 || len(req.IDs[0]) == 0 {
		return fmt.Errorf("%w: no token ids", models.ErrRequest)
	}
	n := len(req.IDs[0])
	if n > req.Context {
		return fmt.Errorf("%w: a sequence of %d tokens exceeds the model's context of %d", models.ErrRequest, n, req.Context)
	}
	if req.Padding != nil && len(req.Padding) != len(req.IDs) {
		return fmt.Errorf("%w: padding of %d sequences, there are %d", models.ErrRequest, len(req.Padding), len(req.IDs))
	}
	for b, ids := range req.IDs {
		if len(ids) != n {
			return fmt.Errorf("%w: sequence %d has %d tokens, sequence 0 has %d", models.ErrRequest, b, len(ids), n)
		}
		if err := CheckIDs(ids, req.Vocab); err != nil {
			return fmt.Errorf("sequence %d: %w", b, err)
		}
		if req.Padding != nil && (req.Padding[b] < 0 || req.Padding[b] > n) {
			return fmt.Errorf("%w: sequence %d has %d padding tokens, want 0 to %d", models.ErrRequest, b, req.Padding[b], n)
		}
	}
	return nil
}
