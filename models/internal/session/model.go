package session

import (
	"context"
	"fmt"
	"io"
	"slices"

	"github.com/pulsecol/pulsecol"
	"github.com/pulsecol/pulsecol/graph"
	"github.com/pulsecol/pulsecol/internal/jsonfile"
	"github.com/pulsecol/pulsecol/internal/sampler"
	"github.com/pulsecol/pulsecol/models"
	"github.com/pulsecol/pulsecol/models/internal/checkpoint"
	"gorgonia.org/gorgonia"
)

// Architecture is what distinguishes the models of a package.
type Architecture struct {
	Name    string // of the package; its errors begin with it
	Config  func(jsonfile.File) (models.Config, error)
	GGUF    checkpoint.GGUF // of files of this format, in place of Config
	Weights func(*checkpoint.Loader, models.Config) *checkpoint.Weights

	// Forward adds the forward pass to a graph that has its inputs, and returns the
	// logits.
	Forward func(models.Config, *checkpoint.Weights, *models.Graph, *pulsecol.Controller) (*gorgonia.Node, error)

	PositionsSkipPadding bool // positions count from the first real token
	PredictsNext         bool // row i of the logits predicts token i+1
	Chat                 checkpoint.ChatForm
}

// Model is an open model. Its errors begin with the name of its package.
type Model struct {
	*Architecture
	*checkpoint.Files
	Config  models.Config
	Weights *checkpoint.Weights
}

// Open reads configuration and weights of a model's files, and closes these on an
// error. err is that of opening the files.
func Open(a *Architecture, f *checkpoint.Files, err error) (*Model, error) {
	if err != nil {
		return nil, a.wrap(err)
	}
	m := &Model{Architecture: a, Files: f}
	if err := m.load(); err != nil {
		f.Close()
		return nil, a.wrap(err)
	}
	return m, nil
}

func (m *Model) load() (err error) {
	if m.Files.GGUF != nil {
		m.Config, err = m.GGUFConfig(&m.Architecture.GGUF)
	} else {
		m.Config, err = m.Architecture.Config(m.Files.Config)
	}
	if err != nil {
		return err
	}
	if m.Files.Context > 0 {
		m.Config.Context = m.Files.Context
	}
	if err := m.OpenWeights(m.Config); err != nil {
		return err
	}
	l := m.Loader()
	m.Weights = m.Architecture.Weights(l, m.Config)
	m.Weights.Bytes, err = l.Done()
	return err
}

func (a *Architecture) wrap(err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("%s: %w", a.Name, err)
}

// Build adds the model to g.
func (m *Model) Build(g *gorgonia.ExprGraph, s models.Shape, ctl *pulsecol.Controller) (*models.Graph, error) {
	out, err := m.build(g, s, ctl)
	return out, m.wrap(err)
}

// BuildTrained is Build of a copy of the weights whose blocks prepare changes.
func (m *Model) BuildTrained(g *gorgonia.ExprGraph, s models.Shape, ctl *pulsecol.Controller, prepare func(i int, b *graph.Block) error) (*models.Graph, error) {
	if prepare == nil {
		return nil, m.wrap(fmt.Errorf("%w: the function that prepares blocks is nil", models.ErrRequest))
	}
	own := *m
	weights := func() (*checkpoint.Weights, error) {
		if err := m.CheckOpen(); err != nil {
			return nil, err
		}
		w := *m.Weights
		w.Blocks = slices.Clone(w.Blocks)
		for i := range w.Blocks {
			if err := prepare(i, &w.Blocks[i]); err != nil {
				return nil, err
			}
		}
		return &w, nil
	}
	var err error
	if own.Weights, err = weights(); err != nil {
		return nil, m.wrap(err)
	}
	return own.Build(g, s, ctl)
}

// build is a Builder.
func (m *Model) build(g *gorgonia.ExprGraph, s models.Shape, ctl *pulsecol.Controller) (*models.Graph, error) {
	if err := m.CheckOpen(); err != nil {
		return nil, err
	}
	if n := s.Tokens(); n > m.Config.Context {
		return nil, fmt.Errorf("%w: a sequence of %d tokens exceeds the model's context of %d", models.ErrRequest, n, m.Config.Context)
	}
	out, err := NewGraph(g, s, m.Config.Vocab, ctl)
	if err != nil {
		return nil, err
	}
	if out.Logits, err = m.Forward(m.Config, m.Weights, out, ctl); err != nil {
		return nil, err
	}
	return out, nil
}

// Logits runs one forward pass with full attention in float32.
func (m *Model) Logits(ctx context.Context, ids [][]int32, padding []int) ([]float32, error) {
	s, err := New(m.settings(pulsecol.Config{Precision: pulsecol.Float32}))
	if err != nil {
		return nil, m.wrap(err)
	}
	defer s.Close()
	out, err := s.Logits(ctx, ids, padding)
	return out, m.wrap(err)
}

// WriteGGUF writes the model as a GGUF file.
func (m *Model) WriteGGUF(ctx context.Context, w io.Writer, o models.GGUFOptions) error {
	if err := m.CheckOpen(); err != nil {
		return m.wrap(err)
	}
	return m.wrap(m.Files.WriteGGUF(ctx, w, &m.Architecture.GGUF, m.Config, o))
}

// EncodeChat returns the token ids of a conversation in the checkpoint's form.
func (m *Model) EncodeChat(messages []models.Message) ([]int32, error) {
	return m.Files.EncodeChat(&m.Chat, messages)
}

// EncodeChatTemplate returns the token ids of a conversation in the form of a template.
func (m *Model) EncodeChatTemplate(source string, messages []models.Message) ([]int32, error) {
	return m.Files.EncodeChatTemplate(source, &m.Chat, messages)
}

// NewSession returns a session under a configuration.
func (m *Model) NewSession(cfg pulsecol.Config) (*Session, error) {
	if err := m.CheckOpen(); err != nil {
		return nil, m.wrap(err)
	}
	s, err := New(m.settings(cfg))
	return s, m.wrap(err)
}

func (m *Model) settings(cfg pulsecol.Config) Settings {
	return Settings{
		Build: m.build, Config: cfg, Intact: m.Intact,
		Context: m.Config.Context, Vocab: m.Config.Vocab, MaskID: m.Config.MaskID, PadID: m.Config.PadID,
		PositionsSkipPadding: m.PositionsSkipPadding,
	}
}

// Generate runs a sampler in a session of the model.
func (m *Model) Generate(ctx context.Context, s *Session, prompts [][]int32, o Generation, newSampler func(onStep func(sampler.StepInfo)) Sampler) ([]models.Result, error) {
	results, err := s.Generate(ctx, prompts, o, newSampler)
	return results, m.wrap(err)
}

// activeRows is the number of rows that a step of a block of so many tokens computes.
func (a *Architecture) activeRows(tokens int) int {
	if a.PredictsNext {
		return tokens + 1
	}
	return tokens
}

// First returns the only result of a batch of one prompt.
func First(results []models.Result, err error) (*models.Result, error) {
	if len(results) == 0 {
		return nil, err
	}
	return &results[0], err
}

// TotalSteps returns the number of denoising steps of a sampler for prompts.
func (m *Model) TotalSteps(s Sampler, prompts [][]int32) (int, error) {
	total, err := s.TotalSteps(prompts)
	if err != nil {
		return 0, m.wrap(fmt.Errorf("%w: %w", models.ErrRequest, err))
	}
	return total, nil
}

// PredictMemory returns the memory of generating from prompts of promptLength tokens.
func (m *Model) PredictMemory(batch, promptLength int, cfg pulsecol.Config, o Generation) (models.Memory, error) {
	s := models.Shape{Batch: batch, Len: promptLength + o.NewTokens, Rows: batch * o.NewTokens}
	if o.NewTokens == 0 {
		s.Rows = 1
	}
	var parts []int
	if cfg.Cache != pulsecol.NoCache {
		s.Cached, s.Rows = s.Len, min(batch*o.BlockLength, batch*s.Len)
		parts = passes(cfg, promptLength, o.NewTokens, o.BlockLength, m.activeRows(0))
	}
	if o.Guided {
		s.Batch, s.Rows = 2*s.Batch, 2*s.Rows
	}
	mem, err := PredictMemory(m.build, s, cfg, m.activeRows(o.BlockLength), parts...)
	if err != nil {
		return mem, m.wrap(err)
	}
	all := m.Config.TiedHead || mem.GPU.Weights > 0 // a head or a GPU reads the whole embedding table
	mem.Weights, mem.Checkpoint = m.TouchedWeights(m.Weights, all, s.Len)
	return mem, nil
}
