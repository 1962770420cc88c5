package llada

import (
	"context"
	_ "embed"
	"io"
	"io/fs"

	"github.com/pulsecol/pulsecol"
	"github.com/pulsecol/pulsecol/graph"
	"github.com/pulsecol/pulsecol/models"
	"github.com/pulsecol/pulsecol/models/internal/checkpoint"
	"github.com/pulsecol/pulsecol/models/internal/session"
	"gorgonia.org/gorgonia"
)

// Model is an open checkpoint. Its weights stay mapped, in their storage type,
// until Close. A Model may be used by several goroutines at once.
type Model struct {
	base     *session.Model
	defaults GenerateOptions
}

// architecture is what distinguishes LLaDA from other models.
var architecture = session.Architecture{
	Name: "llada", Config: parseConfig, GGUF: ggufForm, Weights: loadWeights, Forward: forward,
	// The form of LLaDA-8B-Instruct and LLaDA-1.5.
	Chat: checkpoint.ChatForm{
		Begin: "<|startoftext|>", BeforeRole: "<|start_header_id|>", AfterRole: "<|end_header_id|>\n\n", End: "<|eot_id|>", TrimSpace: true,
	},
}

// Open reads the model directory dir: config.json, the weights
// (model.safetensors, or shards with model.safetensors.index.json) and, if they
// are there, tokenizer files and generation_config.json.
//
// dir may also be a GGUF file, the first of a split one: docs/gguf.md says what is read.
// Its metadata is the configuration and the tokenizer; without a tokenizer in it the model
// has that of the file's folder.
//
// Where no such path exists, dir may be the name of a model that HuggingFace's
// libraries or hf download have put into their cache folder (HF_HUB_CACHE,
// HF_HOME/hub or ~/.cache/huggingface/hub), with a revision or without:
// "GSAI-ML/LLaDA-8B-Instruct" or "GSAI-ML/LLaDA-8B-Instruct@main". Nothing is downloaded.
func Open(dir string) (*Model, error) { return open(checkpoint.Open(dir)) }

// OpenFS reads a model from fsys; weights is the content of model.safetensors. It is
// kept, not copied, and must not change until Close.
func OpenFS(fsys fs.FS, weights []byte) (*Model, error) {
	return open(checkpoint.OpenFS(fsys, weights))
}

// Random returns a model of a config.json with random weights, for measuring times and
// memory without a checkpoint. context above 0 replaces max_sequence_length, on which
// neither depends. Equal seeds give equal weights. The model has no tokenizer.
//
// Weights are bfloat16, normally distributed with a standard deviation of 0.02;
// norms are 1. All tensors are windows of one block in host memory, little larger
// than the largest of them.
func Random(config []byte, context int, seed uint64) (*Model, error) {
	return open(checkpoint.RandomFiles(config, context, seed))
}

//go:embed llada-8b.json
var published string

// Published returns the config.json of LLaDA-8B-Base, LLaDA-8B-Instruct and LLaDA-1.5.
func Published() []byte { return []byte(published) }

func open(f *checkpoint.Files, err error) (*Model, error) {
	m := new(Model)
	if err == nil {
		m.defaults, err = parseGeneration(f.Generation)
	}
	if m.base, err = session.Open(&architecture, f, err); err != nil {
		return nil, err
	}
	return m, nil
}

// Close unmaps the weights. Nothing of the model may be in use.
func (m *Model) Close() error { return m.base.Close() }

// Config returns the model's architecture.
func (m *Model) Config() models.Config { return m.base.Config }

// Build adds the transformer to g with its attention under ctl, whose layers
// 0..Layers-1 it takes. Row i of the logits predicts token i.
//
// The graph reads the model's weights: it must not run after Close.
func (m *Model) Build(g *gorgonia.ExprGraph, s models.Shape, ctl *pulsecol.Controller) (*models.Graph, error) {
	return m.base.Build(g, s, ctl)
}

// BuildTrained is Build for training: prepare is called for each block before it is built, to
// make nodes of its weights (graph.Block.Train) or give it adapters (Block.Adapt), and changes
// this graph's copy of the block alone. Embedding, last norm and head are constants. It runs on
// the CPU.
func (m *Model) BuildTrained(g *gorgonia.ExprGraph, s models.Shape, ctl *pulsecol.Controller, prepare func(i int, b *graph.Block) error) (*models.Graph, error) {
	return m.base.BuildTrained(g, s, ctl, prepare)
}

// Logits runs one forward pass with full attention over sequences of one length, in
// float32 on any device, and returns the logits of every token, [len(ids), n, Vocab].
// padding gives the number of padding tokens on the left of each sequence; nil is
// none.
func (m *Model) Logits(ctx context.Context, ids [][]int32, padding []int) ([]float32, error) {
	return m.base.Logits(ctx, ids, padding)
}

// WriteGGUF writes the model as a GGUF file, which llama.cpp and Open read. A part of a
// tensor at a time is in memory, and the bytes do not depend on the number of threads. The
// file is not complete if there is an error.
//
// Matrices are of the type of o; norms and biases are float32. A number that the type
// cannot hold is an error that names the tensor.
func (m *Model) WriteGGUF(ctx context.Context, w io.Writer, o models.GGUFOptions) error {
	return m.base.WriteGGUF(ctx, w, o)
}

// Encode returns the token ids of text. Added tokens in it are recognised, the mask
// and the end of a turn among them; nothing is put before or after it. Text of a
// conversation is for EncodeChat.
func (m *Model) Encode(text string) ([]int32, error) { return m.base.Encode(text) }

// Decode returns the text of ids without special tokens.
func (m *Model) Decode(ids []int32) (string, error) { return m.base.Decode(ids) }

// EncodeChat returns the token ids of a conversation, ready for the assistant's answer.
// A last message of the assistant is the beginning of that answer, taken as it is.
//
// The form is the checkpoint's own chat template (chat_template.jinja, or chat_template
// in tokenizer_config.json), as transformers renders it. Without one it is that of
// LLaDA-8B-Instruct and LLaDA-1.5, which leaves out white space at the ends of
// messages.
//
// Special tokens are recognised in the form only: a message that spells
// "<|eot_id|>" does not end its turn, and has the ids of these ten characters.
//
// The error is models.ErrNoTokenizer, models.ErrChatTemplate, which says what of the
// template is not supported or which message it changes, or names text that is not valid
// UTF-8.
func (m *Model) EncodeChat(messages []models.Message) ([]int32, error) {
	return m.base.EncodeChat(messages)
}

// EncodeChatTemplate is EncodeChat with source, a Jinja template, in place of the
// checkpoint's own. If it is empty, the form is the one that EncodeChat takes without
// a template.
func (m *Model) EncodeChatTemplate(source string, messages []models.Message) ([]int32, error) {
	return m.base.EncodeChatTemplate(source, messages)
}
