package session

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/pulsecol/pulsecol"
	"github.com/pulsecol/pulsecol/internal/sampler"
	"github.com/pulsecol/pulsecol/models/internal/checkpoint"
)

// Sampler is a sampler of package sampler.
type Sampler interface {
	TotalSteps(prompts [][]int32) (int, error)
	Generate(ctx context.Context, prompts [][]int32, forward sampler.Forward) (*sampler.Result, error)
}

// Request is a generation to run.
type Request struct {
	Build   Builder
	Intact  func() error // reports weights that have changed; see Files.Intact
	Config  pulsecol.Config
	Prompts [][]int32 // of any lengths; shorter ones are padded on the left
	Sampler func(onStep func(sampler.StepInfo)) Sampler
	OnLoad  func(done, total int64) // may be nil
	OnStep  func(Progress)          // may be nil

	New     int // tokens generated after each prompt
	Guided  bool
	Context int // most tokens of a sequence
	Vocab   int
	MaskID  int32
	PadID   int32
	Restart bool // positions count from the first real token
}

// Progress describes a denoising step that has just been done.
type Progress struct {
	Step, Total int           // 1-based; with a confidence threshold Total is an upper bound
	Mode        pulsecol.Mode // of attention in this step
	Seconds     float64       // the step took

	// IDs are the sequences after the step, padding and prompt included; the
	// response starts at Prompt. They are a live view: read, do not keep.
	IDs    [][]int32
	Prompt int

	Committed int // tokens written in this step, over all sequences; a predicted mask counts
}

// Result is one finished (or interrupted) generation.
type Result struct {
	PromptIDs    []int32
	OutputIDs    []int32 // behind the prompt; masked where interrupted, or where the model predicted the mask
	Filled       []int32 // prompt and output together; masks inside the prompt may be filled
	Steps        int     // denoising steps done
	Forwards     int     // forward passes; a guided one counts once
	RefreshSteps []int   // 1-based
	Stats        pulsecol.Stats
	Seconds      float64 // of the denoising steps, building the graph left out
}

// Generate runs req. An interrupted generation returns what there is, together
// with the context's error.
func Generate(ctx context.Context, req Request) (results []Result, err error) {
	prompts, padding, err := req.pad()
	if err != nil {
		return nil, err
	}
	length, masks := len(prompts[0])+req.New, 0
	for _, p := range prompts {
		for _, id := range p {
			if id == req.MaskID {
				masks++
			}
		}
	}
	shape := Shape{Batch: len(prompts), Len: length, Rows: len(prompts)*req.New + masks, Padded: anyPositive(padding)}
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
			req.OnStep(Progress{
				Step: s.Step, Total: s.Total, Mode: sess.ctl.LastMode(), Seconds: now.Sub(last).Seconds(),
				IDs: s.IDs, Prompt: length - req.New, Committed: len(s.Committed),
			})
		}
		last = now
	})
	total, err := smp.TotalSteps(prompts)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", checkpoint.ErrRequest, err)
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
		sess.SetPadding(padding, req.Restart)
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
		results = append(results, Result{
			PromptIDs: req.Prompts[b], OutputIDs: ids[length-req.New:], Filled: ids[length-req.New-len(req.Prompts[b]):],
			Steps: out.Steps, Forwards: out.Forwards, RefreshSteps: stats.RefreshSteps, Stats: stats,
			Seconds: time.Since(start).Seconds(),
		})
	}
	return results, err
}

// pad checks the prompts and brings them to one length.
func (req *Request) pad() (prompts [][]int32, padding []int, err error) {
	if len(req.Prompts) == 0 {
		return nil, nil, fmt.Errorf("%w: no prompt", checkpoint.ErrRequest)
	}
	longest := 0
	for _, p := range req.Prompts {
		longest = max(longest, len(p))
	}
	switch {
	case req.New < 0:
		return nil, nil, fmt.Errorf("%w: %d new tokens, want at least 0", checkpoint.ErrRequest, req.New)
	case req.New > req.Context || longest > req.Context-req.New:
		return nil, nil, fmt.Errorf("%w: a prompt of %d tokens and %d new ones exceed the model's context of %d", checkpoint.ErrRequest, longest, req.New, req.Context)
	case longest+req.New == 0:
		return nil, nil, fmt.Errorf("%w: an empty prompt and no new tokens", checkpoint.ErrRequest)
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
			return fmt.Errorf("%w: token id %d at position %d is outside the vocabulary [0, %d)", checkpoint.ErrRequest, id, i, vocab)
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
	Build   Builder
	Intact  func() error // as in Request
	IDs     [][]int32    // of one length
	Padding []int        // tokens on the left of each sequence; nil for none
	Restart bool         // positions count from the first real token
	Vocab   int
	Context int
}

// Logits runs one dense forward pass in float32 and returns the logits of every
// token: [len(IDs),n,Vocab], flat.
func Logits(ctx context.Context, req LogitsRequest) ([]float32, error) {
	if err := req.check(); err != nil {
		return nil, err
	}
	n := len(req.IDs[0])
	shape := Shape{Batch: len(req.IDs), Len: n, Rows: len(req.IDs) * n, Padded: req.Padding != nil}
	sess, err := NewSession(req.Build, shape, pulsecol.Config{Precision: pulsecol.Float32})
	if err != nil {
		return nil, err
	}
	defer sess.Close()
	sess.intact = req.Intact
	if req.Padding != nil {
		sess.SetPadding(req.Padding, req.Restart)
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
	logits, err := sess.Forward(ctx, req.IDs, rows)
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
		return fmt.Errorf("%w: no token ids", checkpoint.ErrRequest)
	}
	n := len(req.IDs[0])
	if n > req.Context {
		return fmt.Errorf("%w: a sequence of %d tokens exceeds the model's context of %d", checkpoint.ErrRequest, n, req.Context)
	}
	if req.Padding != nil && len(req.Padding) != len(req.IDs) {
		return fmt.Errorf("%w: padding of %d sequences, there are %d", checkpoint.ErrRequest, len(req.Padding), len(req.IDs))
	}
	for b, ids := range req.IDs {
		if len(ids) != n {
			return fmt.Errorf("%w: sequence %d has %d tokens, sequence 0 has %d", checkpoint.ErrRequest, b, len(ids), n)
		}
		if err := CheckIDs(ids, req.Vocab); err != nil {
			return fmt.Errorf("sequence %d: %w", b, err)
		}
		if req.Padding != nil && (req.Padding[b] < 0 || req.Padding[b] > n) {
			return fmt.Errorf("%w: sequence %d has %d padding tokens, want 0 to %d", checkpoint.ErrRequest, b, req.Padding[b], n)
		}
	}
	return nil
}
