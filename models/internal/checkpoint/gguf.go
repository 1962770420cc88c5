package checkpoint

import (
	"errors"
	"fmt"
	"math"
	"path/filepath"
	"strings"

	"github.com/pulsecol/pulsecol/internal/chattemplate"
	"github.com/pulsecol/pulsecol/internal/gguf"
	"github.com/pulsecol/pulsecol/internal/infile"
	"github.com/pulsecol/pulsecol/internal/jsonfile"
	"github.com/pulsecol/pulsecol/internal/mapped"
	"github.com/pulsecol/pulsecol/internal/safetensors"
	"github.com/pulsecol/pulsecol/internal/tokenizer"
	"github.com/pulsecol/pulsecol/models"
)

// GGUF says how an architecture's models are in GGUF files: those of llama.cpp, where
// general.architecture is Name, and those of diffuse-cpp, where it is "diffuse" and
// diffuse.model_type is Name.
type GGUF struct {
	Name string

	// Paired: in llama.cpp's files the rows of Q and K, which its rotary embedding takes as
	// neighbours, are neighbours. In those of diffuse-cpp, and everywhere else, they are in
	// the two halves of a head.
	Paired bool

	QKVBias     bool
	ShiftLogits bool // row i of the logits predicts token i+1
	AddBOS      bool // llama.cpp puts a token before prompts; only written

	// MaskID and EOSID are those of the published models, for files that have none.
	MaskID, EOSID int32

	// Names are the file's names of tensors by the checkpoint's, without ".weight" and
	// ".bias"; # is the number of a layer.
	Names map[string]string
}

// openGGUF opens a GGUF file, with the tokenizer that it has or else that of its folder.
func openGGUF(path string) (*Files, error) {
	g, err := gguf.Open(path)
	if err != nil {
		return nil, err
	}
	f := &Files{GGUF: g, Source: g, dir: path, open: func() (safetensors.Source, error) { return g, nil }}
	if f.Tokenizer, err = tokenizer.OpenGGUF(g); err != nil && !errors.Is(err, tokenizer.ErrNotFound) {
		return nil, errors.Join(err, g.Close())
	}
	if !tokenizer.InGGUF(g) {
		f.openChat(infile.Dir(filepath.Dir(path)))
	} else if f.chat, f.chatErr = chattemplate.OpenGGUF(g, f.Tokenizer.Token); f.chatErr != nil {
		f.chatErr = fmt.Errorf("%w: %w", models.ErrChatTemplate, f.chatErr)
	}
	return f, nil
}

// ggufConfig is the metadata of a file with a checker of its values.
type ggufConfig struct {
	*ConfigChecker
	file   *gguf.File
	prefix string // of keys
}

// GGUFConfig returns the configuration in the metadata of the file. A value that is not
// supported is an error that names its key.
func (f *Files) GGUFConfig(d *GGUF) (models.Config, error) {
	prefix, _, err := f.GGUF.String("general.architecture")
	if err != nil {
		return models.Config{}, configError{err}
	}
	name, err := f.GGUF.Architecture()
	if err != nil {
		return models.Config{}, configError{err}
	}
	g := &ggufConfig{&ConfigChecker{file: jsonfile.File{Name: f.GGUF.Name()}}, f.GGUF, prefix + "."}
	g.Unsupported(name != d.Name, f.GGUF.ArchitectureKey(), name, d.Name)
	if err := g.Err(); err != nil {
		return models.Config{}, err
	}
	c := g.config(d)
	f.names = d.Names
	if d.Paired && prefix != gguf.Diffuse {
		f.paired = c.HeadDim
	}
	return c, g.Err()
}

func (g *ggufConfig) config(d *GGUF) models.Config {
	theta := 10000.0 // llama.cpp's default
	if g.prefix == gguf.Diffuse+"." {
		theta = 0
	}
	c := models.Config{
		Layers: g.integer(g.prefix+"block_count", nil), Hidden: g.integer(g.prefix+"embedding_length", nil),
		Heads: g.integer(g.prefix+"attention.head_count", nil), FeedForward: g.integer(g.prefix+"feed_forward_length", nil),
		Context: g.integer(g.prefix+"context_length", nil), QKVBias: d.QKVBias, TiedHead: !g.hasTensor("output.weight"),
		RopeTheta: g.float(g.prefix+"rope.freq_base", theta), Eps: g.float(g.prefix+"attention.layer_norm_rms_epsilon", 0),
	}
	c.KVHeads = g.integer(g.prefix+"attention.head_count_kv", &c.Heads)
	rows := g.tableRows()
	c.Vocab = g.integer(g.prefix+"vocab_size", &rows)

	g.Layers(g.prefix+"block_count", c.Layers)
	g.Size(g.prefix+"embedding_length", c.Hidden)
	g.Size(g.prefix+"feed_forward_length", c.FeedForward)
	g.Size(g.prefix+"vocab_size", c.Vocab)
	g.Size(g.prefix+"context_length", c.Context)
	var dim *int
	if key := g.prefix + "attention.key_length"; g.file.Has(key) {
		n := g.integer(key, nil)
		dim = &n
	}
	c.HeadDim = g.Heads(g.prefix+"attention.head_count", c.Heads, g.prefix+"attention.head_count_kv", c.KVHeads, g.prefix+"embedding_length", c.Hidden, dim)
	for _, name := range []string{"rope.dimension_count", "attention.value_length"} {
		n := g.integer(g.prefix+name, &c.HeadDim)
		g.Unsupported(c.HeadDim > 0 && n != c.HeadDim, g.prefix+name, n, c.HeadDim)
	}
	g.Positive(g.prefix+"rope.freq_base", c.RopeTheta)
	g.Positive(g.prefix+"attention.layer_norm_rms_epsilon", c.Eps)
	g.features(d)

	maskKey, eosKey := "tokenizer.ggml.mask_token_id", "tokenizer.ggml.eos_token_id"
	if g.prefix == gguf.Diffuse+"." {
		maskKey, eosKey = "diffuse.mask_token_id", "diffuse.eos_token_id"
	}
	c.MaskID = g.token(maskKey, d.MaskID, c.Vocab)
	c.EOSID = g.token(eosKey, d.EOSID, c.Vocab)
	c.PadID = g.token("tokenizer.ggml.padding_token_id", c.EOSID, c.Vocab)
	return c
}

// features reports keys that select what is not supported.
func (g *ggufConfig) features(d *GGUF) {
	scaling, _, err := g.file.String(g.prefix + "rope.scaling.type")
	g.add(err)
	g.Unsupported(scaling != "" && scaling != "none", g.prefix+"rope.scaling.type", scaling, "none")
	zero := 0
	experts := g.integer(g.prefix+"expert_count", &zero)
	g.Unsupported(experts != 0, g.prefix+"expert_count", experts, 0)
	shift, ok, err := g.file.Bool("diffusion.shift_logits")
	g.add(err)
	g.Unsupported(ok && shift != d.ShiftLogits, "diffusion.shift_logits", shift, d.ShiftLogits)
}

func (g *ggufConfig) add(err error) {
	if err != nil {
		g.errs = append(g.errs, configError{err})
	}
}

// integer returns the integer under a key, or otherwise, which is nil for a required key.
func (g *ggufConfig) integer(key string, otherwise *int) int {
	n, ok, err := g.file.Int(key)
	switch {
	case err != nil:
		g.add(err)
	case !ok && otherwise == nil:
		g.bad(key, "is missing")
	case !ok:
		return *otherwise
	case n < math.MinInt32 || n > math.MaxInt32:
		g.bad(key, "is %d, want 0 to %d", n, maxSize)
	default:
		return int(n)
	}
	return 0
}

// float returns the number under a key, or otherwise, which is 0 for a required key.
func (g *ggufConfig) float(key string, otherwise float64) float64 {
	x, ok, err := g.file.Float(key)
	g.add(err)
	if !ok {
		return otherwise
	}
	return x
}

// token returns the id under a key, or otherwise, if the vocabulary has it.
func (g *ggufConfig) token(key string, otherwise int32, vocab int) int32 {
	if !g.file.Has(key) {
		if int(otherwise) >= vocab {
			g.bad(key, "is missing")
		}
		return otherwise
	}
	id := int32(g.integer(key, nil))
	return g.Token(key, &id, vocab)
}

const tableName = "token_embd.weight"

// tableRows is the number of tokens in the table of embeddings.
func (g *ggufConfig) tableRows() int {
	t, err := g.file.Tensor(tableName)
	if err != nil {
		g.add(err)
		return 0
	}
	return t.Shape[0]
}

func (g *ggufConfig) hasTensor(name string) bool {
	_, err := g.file.Tensor(name)
	return err == nil
}

// fileName is the file's name of a tensor.
func (l *Loader) fileName(name string) string {
	if l.names == nil {
		return name
	}
	for _, suffix := range []string{".weight", ".bias"} {
		stem, ok := strings.CutSuffix(name, suffix)
		if !ok {
			continue
		}
		parts := strings.Split(stem, ".")
		for i, part := range parts {
			if part != "" && strings.Trim(part, "0123456789") == "" { // the layer
				parts[i] = "#"
				return strings.Replace(l.names[strings.Join(parts, ".")], "#", part, 1) + suffix
			}
		}
		return l.names[stem] + suffix
	}
	return name
}

// isPaired reports whether the rows of a tensor are in pairs; see GGUF.
func (l *Loader) isPaired(fileName string) bool {
	return l.paired > 0 && isPaired(fileName)
}

func isPaired(fileName string) bool {
	return strings.HasSuffix(fileName, ".attn_q.weight") || strings.HasSuffix(fileName, ".attn_k.weight")
}

// halves returns a copy of rows of heads of dim rows each, whose pairs of neighbours go to the
// two halves of the head. Blocks of quantized types lie within rows, so rows move whole.
func halves(data []byte, rows, dim int) (moved []byte, err error) {
	moved = make([]byte, len(data))
	size := len(data) / rows
	err = mapped.Guard(func() error {
		for i := range rows {
			head, at := i/dim*dim, i%dim
			from := head + 2*at
			if at >= dim/2 {
				from = head + 2*(at-dim/2) + 1
			}
			copy(moved[i*size:][:size], data[from*size:])
		}
		return nil
	})
	return moved, err
}
