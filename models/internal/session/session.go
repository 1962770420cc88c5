package session

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync/atomic"

	"github.com/pulsecol/pulsecol"
	"github.com/pulsecol/pulsecol/internal/lmhead"
	"github.com/pulsecol/pulsecol/internal/sampler"
	"github.com/pulsecol/pulsecol/models"
	"github.com/pulsecol/pulsecol/op"
)

// Settings are what a session is made with.
type Settings struct {
	Build  Builder
	Config pulsecol.Config
	Intact func() error // reports weights that have changed; see checkpoint.Files.Intact. nil if they cannot

	Context              int // most tokens of a sequence
	Vocab                int
	MaskID, PadID        int32
	PositionsSkipPadding bool // positions count from the first real token
}

// Session is a model ready to run under one configuration. It keeps its compiled graphs,
// their memory, the columns' and the cache's over generations of any length, and on a GPU
// the copy of the weights, which all sessions share. It serves one call at a time.
type Session struct {
	Settings
	ctl      *pulsecol.Controller
	ws       *op.Workspace
	programs []*program // the latest first
	busy     atomic.Bool
	closed   bool
}

// maxPrograms bounds the graphs that a session keeps: several lengths, and of a length
// several numbers of rows.
const maxPrograms = 32

// New returns a session without graphs.
func New(s Settings) (*Session, error) {
	sess := &Session{Settings: s}
	return sess, sess.reset(0)
}

// reset drops all graphs and their controller. newTokens are those of a generation.
func (s *Session) reset(newTokens int) error {
	if err := s.drop(); err != nil {
		return err
	}
	cfg := s.Config
	if p, ok := cfg.Pattern.(pulsecol.SparseD); ok && p.Generation == 0 {
		p.Generation = newTokens
		cfg.Pattern = p
	}
	ctl, err := pulsecol.NewController(cfg)
	if err != nil {
		return err
	}
	s.ctl, s.ws = ctl, op.NewWorkspace()
	return nil
}

// drop closes all machines and the controller.
func (s *Session) drop() error {
	var errs []error
	for _, p := range s.programs {
		errs = append(errs, p.machine.Close())
	}
	if s.ctl != nil {
		errs = append(errs, s.ctl.Close())
	}
	s.programs, s.ctl, s.ws = nil, nil, nil
	return errors.Join(errs...)
}

// enter begins a call, which leave ends.
func (s *Session) enter(newTokens int) error {
	if !s.busy.CompareAndSwap(false, true) {
		return fmt.Errorf("the session is in use: %w", pulsecol.ErrBusy)
	}
	err := s.ready(newTokens)
	if err != nil {
		s.leave()
	}
	return err
}

func (s *Session) leave() { s.busy.Store(false) }

func (s *Session) ready(newTokens int) error {
	if s.closed {
		return fmt.Errorf("the session: %w", pulsecol.ErrClosed)
	}
	p, ok := s.Config.Pattern.(pulsecol.SparseD)
	if s.ctl == nil || ok && p.Generation == 0 && s.ctl.Config().Pattern.(pulsecol.SparseD).Generation != newTokens {
		return s.reset(newTokens)
	}
	return nil
}

// program returns the graph of a shape.
func (s *Session) program(shape models.Shape) (*program, error) {
	i := slices.IndexFunc(s.programs, func(p *program) bool { return p.shape == shape })
	if i >= 0 {
		p := s.programs[i]
		copy(s.programs[1:], s.programs[:i])
		s.programs[0] = p
		return p, nil
	}
	if len(s.programs) == maxPrograms {
		last := s.programs[maxPrograms-1]
		if err := last.machine.Close(); err != nil {
			return nil, err
		}
		s.ws.Forget(last.expr)
		s.programs = s.programs[:maxPrograms-1]
	}
	p, err := newProgram(s.Build, shape, s.ctl, s.ws)
	if err != nil {
		return nil, err
	}
	s.programs = slices.Insert(s.programs, 0, p)
	return p, nil
}

// passShape is the shape of a step that computes so many rows of each sequence of s.
func passShape(s models.Shape, rows int) models.Shape {
	s.Len = rows
	s.Rows = min(s.Rows, s.Batch*rows)
	return s
}

// start opens the program of a generation's first step, with its weights loaded, and begins
// the generation.
func (s *Session) start(ctx context.Context, shape models.Shape, steps int, report func(done, total int64)) error {
	p, err := s.program(shape)
	if err != nil {
		return err
	}
	if err := p.load(ctx, report); err != nil {
		return err
	}
	if err := s.checkIntact(); err != nil {
		return err
	}
	return s.ctl.Start(steps)
}

// checkIntact reports weights that have changed.
func (s *Session) checkIntact() error {
	if s.Intact == nil {
		return nil
	}
	return s.Intact()
}

// Close frees the session's memory. A second Close does nothing.
func (s *Session) Close() error {
	if !s.busy.CompareAndSwap(false, true) {
		return fmt.Errorf("the session is in use: %w", pulsecol.ErrBusy)
	}
	defer s.leave()
	s.closed = true
	return s.drop()
}

// run is a generation in progress.
type run struct {
	*Session
	*inputs
	shape  models.Shape // of a step that computes all rows
	passes []pulsecol.Pass
}

// forward runs one denoising step; it is a sampler.Forward.
func (r *run) forward(ctx context.Context, p sampler.Pass) (lmhead.Logits, error) {
	if len(p.IDs) != r.shape.Batch || len(p.IDs[0]) != r.len || len(p.Rows) > r.shape.Rows {
		return nil, fmt.Errorf("%w: %d sequences of %d tokens and %d rows of logits, the generation has %d, %d and %d",
			models.ErrRequest, len(p.IDs), len(p.IDs[0]), len(p.Rows), r.shape.Batch, r.len, r.shape.Rows)
	}
	shape := r.shape
	if shape.Cached > 0 {
		if err := r.ctl.SetBlock(pulsecol.Block{Len: r.len, First: p.Block.First, End: p.Block.End}); err != nil {
			return nil, err
		}
	}
	pass := r.ctl.Pass()
	if pass.Kind != pulsecol.Whole {
		shape = passShape(shape, pass.Rows)
	}
	prog, err := r.program(shape)
	if err != nil {
		return nil, err
	}
	logits, err := prog.step(ctx, r.inputs, p.IDs, pass.First, p.Rows)
	if err != nil {
		return nil, err
	}
	if !prog.gpu {
		if err := r.checkIntact(); err != nil {
			return nil, err
		}
	}
	r.passes = append(r.passes, pass)
	return logits, nil
}
