// Package dream runs Dream checkpoints (Dream-v0-Base-7B, Dream-v0-Instruct-7B
// and models of their architecture) as Gorgonia graphs with PulseCol attention.
//
// [Open] reads a HuggingFace model directory, [Model.Generate] runs the
// published sampler on it. [Model.Build] adds the bare transformer to a graph of
// your own.
package dream

import (
	"context"
	"fmt"
	"io/fs"

	"github.com/pulsecol/pulsecol"
	"github.com/pulsecol/pulsecol/graph"
	"github.com/pulsecol/pulsecol/models/internal/checkpoint"
	"github.com/pulsecol/pulsecol/models/internal/session"
	"gorgonia.org/gorgonia"
)

// Model is an open checkpoint. Its weights stay mapped, in their storage type,
// until Close. A Model may be used by several goroutines at once.
type Model struct {
	cfg      Config
	files    *checkpoint.Files
	weights  *weights
	defaults GenerateOptions
}

// Errors that callers may test for with errors.Is.
var (
	ErrConfig      = checkpoint.ErrConfig      // a configuration is wrong or asks for something unsupported
	ErrWeights     = checkpoint.ErrWeights     // the checkpoint does not hold what its config calls for, or changed while in use
	ErrNoTokenizer = checkpoint.ErrNoTokenizer // the model has no tokenizer files
	ErrClosed      = checkpoint.ErrClosed      // the model was closed
	ErrRequest     = checkpoint.ErrRequest     // a generation the model cannot do

	// ErrChatTemplate: a chat template is broken, uses what is not supported, or does
	// not fit the conversation.
	ErrChatTemplate = checkpoint.ErrChatTemplate
)

// Open reads the model directory dir: config.json, the weights
// (model.safetensors, or shards with model.safetensors.index.json) and, if they
// are there, tokenizer files and generation_config.json.
//
// Where no such path exists, dir may be the name of a model that HuggingFace's
// libraries or hf download have put into their cache folder (HF_HUB_CACHE,
// HF_HOME/hub or ~/.cache/huggingface/hub), with a revision or without:
// "Dream-org/Dream-v0-Instruct-7B" or "Dream-org/Dream-v0-Instruct-7B@main". Nothing is downloaded.
func Open(dir string) (*Model, error) {
	f, err := checkpoint.OpenDir(dir)
	if err != nil {
		return nil, fmt.Errorf("dream: %w", err)
	}
	return open(f)
}

// OpenFS reads a model from fsys with the content of model.safetensors given
// apart. weights is kept, not copied, and must not change until Close.
func OpenFS(fsys fs.FS, weights []byte) (*Model, error) {
	f, err := checkpoint.OpenFS(fsys, weights)
	if err != nil {
		return nil, fmt.Errorf("dream: %w", err)
	}
	return open(f)
}

func open(f *checkpoint.Files) (*Model, error) {
	m := &Model{files: f}
	err := func() (err error) {
		if m.cfg, err = parseConfig(f.Config); err != nil {
			return err
		}
		if m.defaults, err = parseGeneration(f.Generation); err != nil {
			return err
		}
		if err := f.OpenWeights(); err != nil {
			return err
		}
		m.weights, err = loadWeights(f, m.cfg)
		return err
	}()
	if err != nil {
		f.Close()
		return nil, fmt.Errorf("dream: %w", err)
	}
	return m, nil
}

// Close unmaps the weights. Nothing of the model may be in use.
func (m *Model) Close() error { return m.files.Close() }

// Config returns the model's configuration.
func (m *Model) Config() Config { return m.cfg }

// Shape is what a graph is built for.
type Shape = session.Shape

// Graph is the model in a Gorgonia graph: input nodes and logits.
type Graph = session.Graph

// Build adds the transformer to g with its attention under ctl, whose layers
// 0..Layers-1 it takes. Row i of the logits predicts token i+1: the model was made
// from an autoregressive one.
//
// The graph reads the model's weights: it must not run after Close.
func (m *Model) Build(g *gorgonia.ExprGraph, s Shape, ctl *pulsecol.Controller) (*Graph, error) {
	out, err := m.build(g, s, ctl)
	if err != nil {
		return nil, fmt.Errorf("dream: %w", err)
	}
	return out, nil
}

func (m *Model) build(g *gorgonia.ExprGraph, s Shape, ctl *pulsecol.Controller) (*Graph, error) {
	if err := m.files.CheckOpen(); err != nil {
		return nil, err
	}
	if s.Len > m.cfg.Context {
		return nil, fmt.Errorf("%w: a sequence of %d tokens exceeds the model's context of %d", ErrRequest, s.Len, m.cfg.Context)
	}
	out, err := session.NewGraph(g, s, m.cfg.Vocab, ctl)
	if err != nil {
		return nil, err
	}
	w := m.weights
	embed := w.embed
	embed.Precision = ctl.PrecisionFor(m.cfg.HeadDim)
	x, err := graph.Embed("model.embed_tokens", out.IDs, embed, ctl.DeviceFor(m.cfg.HeadDim), session.Ahead(out)...) // [B,N,D]
	if err != nil {
		return nil, err
	}
	for i := range w.blocks {
		var rows *gorgonia.Node
		if i == len(w.blocks)-1 {
			rows = out.Rows // nobody reads the other tokens behind the last attention
		}
		if x, err = w.blocks[i].BuildRows(x, out.Positions, rows, ctl.Layer(i), out.Options()...); err != nil {
			return nil, err
		}
	} // [1,R,D]
	if x, err = graph.RMSNorm(x, w.norm); err != nil {
		return nil, err
	}
	if out.Logits, err = graph.Logits("lm_head", x, out.Rows, w.head); err != nil { // [R,V]
		return nil, err
	}
	return out, nil
}

// Logits runs one forward pass with full attention over sequences of one length, in
// float32 on any device, and returns the logits of every token, [len(ids), n, Vocab].
// padding gives the number of padding tokens on the left of each sequence; nil is
// none.
func (m *Model) Logits(ctx context.Context, ids [][]int32, padding []int) ([]float32, error) {
	out, err := session.Logits(ctx, session.LogitsRequest{
		Build: m.build, Intact: m.files.Intact, IDs: ids, Padding: padding, Restart: true,
		Vocab: m.cfg.Vocab, Context: m.cfg.Context,
	})
	if err != nil {
		return nil, fmt.Errorf("dream: %w", err)
	}
	return out, nil
}

// Encode returns the token ids of text. Added tokens in it are recognised, the mask
// and the end of a turn among them; nothing is put before or after it. Text of a
// conversation is for EncodeChat.
func (m *Model) Encode(text string) ([]int32, error) { return m.files.Encode(text) }

// Decode returns the text of ids without special tokens.
func (m *Model) Decode(ids []int32) (string, error) { return m.files.Decode(ids) }
