package dream

import (
	"context"

	"github.com/pulsecol/pulsecol"
	"github.com/pulsecol/pulsecol/internal/sampler"
	"github.com/pulsecol/pulsecol/models"
	"github.com/pulsecol/pulsecol/models/internal/session"
)

// Session runs generations of one model under one configuration. It keeps what they have in
// common: compiled graphs, the memory of intermediate values, column tables, and with a
// Config's Cache keys and values. Sessions of a model share its weights. A Session serves
// one call at a time; another one meanwhile is an error that wraps pulsecol.ErrBusy.
//
// An error, such as that of a context that is done, ends the generation. The session may be
// used again.
type Session struct {
	model *Model
	base  *session.Session
}

// NewSession returns a session with attention as configured by cfg. Nothing is built before
// the first generation. The model must stay open.
func (m *Model) NewSession(cfg pulsecol.Config) (*Session, error) {
	base, err := m.base.NewSession(cfg)
	if err != nil {
		return nil, err
	}
	return &Session{m, base}, nil
}

// Generate is Model.Generate in the session.
func (s *Session) Generate(ctx context.Context, prompt []int32, o GenerateOptions) (*models.Result, error) {
	return session.First(s.GenerateBatch(ctx, [][]int32{prompt}, o))
}

// GenerateBatch is Model.GenerateBatch in the session.
func (s *Session) GenerateBatch(ctx context.Context, prompts [][]int32, o GenerateOptions) ([]models.Result, error) {
	if err := o.checkPrefills(s.base.Config); err != nil {
		return nil, err
	}
	o = s.model.Options(o)
	return s.model.base.Generate(ctx, s.base, prompts, generation(o), func(onStep func(sampler.StepInfo)) session.Sampler {
		return s.model.sampler(o, s.base.Config.Cache, onStep)
	})
}

// Close frees the session's memory. A second Close does nothing.
func (s *Session) Close() error { return s.base.Close() }
