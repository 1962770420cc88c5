package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"path/filepath"

	"github.com/pulsecol/pulsecol"
	"github.com/pulsecol/pulsecol/internal/gguf"
	"github.com/pulsecol/pulsecol/internal/hfcache"
	"github.com/pulsecol/pulsecol/internal/infile"
	"github.com/pulsecol/pulsecol/internal/jsonfile"
	"github.com/pulsecol/pulsecol/internal/safetensors"
	"github.com/pulsecol/pulsecol/internal/tinymodel"
	"github.com/pulsecol/pulsecol/internal/tokenizer"
	"github.com/pulsecol/pulsecol/models"
	"github.com/pulsecol/pulsecol/models/dream"
	"github.com/pulsecol/pulsecol/models/llada"
)

// model has the methods of both model types that the commands use.
type model interface {
	Encode(text string) ([]int32, error)
	Decode(ids []int32) (string, error)
	EncodeChat(messages []models.Message) ([]int32, error)                        // in the model's own form
	EncodeChatTemplate(source string, messages []models.Message) ([]int32, error) // "" is the form of the published models
	Logits(ctx context.Context, ids [][]int32, padding []int) ([]float32, error)
	WriteGGUF(ctx context.Context, w io.Writer, o models.GGUFOptions) error
	Close() error

	kind() string // the model_type of its config.json
	config() architecture
	refreshes() int // of a generation; the paper's number for the model
	parameters() int64
	endOfTurn() string // the token that ends an answer in a conversation
	sampler(f *samplerFlags) sampler
	newSession(cfg pulsecol.Config) (session, error)
}

// architecture is models.Config as JSON.
type architecture struct {
	Layers      int     `json:"layers"`
	Hidden      int     `json:"hidden"`
	Heads       int     `json:"heads"`
	KVHeads     int     `json:"kv_heads"`
	HeadDim     int     `json:"head_dim"`
	FeedForward int     `json:"feed_forward"`
	Vocab       int     `json:"vocab"`
	Context     int     `json:"context"`
	RopeTheta   float64 `json:"rope_theta"`
	Eps         float64 `json:"norm_eps"`
	QKVBias     bool    `json:"-"`
	TiedHead    bool    `json:"tied_head"`
	MaskID      int32   `json:"mask_id"`
	EOSID       int32   `json:"eos_id"`
	PadID       int32   `json:"pad_id"`
}

type lladaModel struct{ *llada.Model }

func (lladaModel) kind() string           { return "llada" }
func (m lladaModel) config() architecture { return architecture(m.Config()) }
func (lladaModel) refreshes() int         { return 16 }
func (m lladaModel) parameters() int64    { return m.Config().Parameters() }
func (lladaModel) endOfTurn() string      { return "<|eot_id|>" }

func (m lladaModel) newSession(cfg pulsecol.Config) (session, error) { return m.NewSession(cfg) }

type dreamModel struct{ *dream.Model }

func (dreamModel) kind() string           { return "Dream" }
func (m dreamModel) config() architecture { return architecture(m.Config()) }
func (dreamModel) refreshes() int         { return 8 }
func (m dreamModel) parameters() int64    { return m.Config().Parameters() }

func (dreamModel) endOfTurn() string { return "<|im_end|>" }

func (m dreamModel) newSession(cfg pulsecol.Config) (session, error) { return m.NewSession(cfg) }

// openModel is an open model and where it came from.
type openModel struct {
	model
	name     string // its directory
	embedded bool
}

// title names the model in pictures.
func (m *openModel) title() string {
	switch {
	case !m.embedded:
		return filepath.Base(m.name)
	case m.kind() == "llada":
		return "the small LLaDA model"
	}
	return "the small " + m.kind() + " model"
}

// stops returns the tokens that end an answer.
func (m *openModel) stops() ([]int32, error) {
	stops := []int32{m.config().EOSID}
	ids, err := m.Encode(m.endOfTurn())
	if err != nil {
		return nil, fmt.Errorf("%s: %w", m.name, err)
	}
	if len(ids) == 1 { // else the tokenizer has no such token
		stops = append(stops, ids[0])
	}
	return stops, nil
}

// modelFlag are the flags of all commands that open a model.
type modelFlag struct {
	Model *string `placeholder:"DIR" xor:"model" help:"Model directory as published on HuggingFace: config.json, *.safetensors, tokenizer files; or the name ORG/NAME[@REVISION] of a model in the HuggingFace cache, where hf download puts it; or a GGUF file, the first of a split one. Default: a small model in the program."`
	Small *string `placeholder:"TYPE" xor:"model" enum:"llada,dream" help:"Which of the small models in the program: llada (the default) or dream."`

	IgnoreMemory bool `name:"ignore-memory" help:"Run even what needs more memory than this machine has available."`

	RandomWeights bool    `name:"random-weights" help:"Random weights, for measuring time and memory without a checkpoint: of --shape, or of --model's config.json. There is no tokenizer then."`
	Shape         *string `placeholder:"NAME" xor:"model" enum:"llada-8b,dream-7b" help:"With --random-weights: the published configuration of LLaDA-8B or of Dream-7B, for up to 131072 tokens."`
}

// open opens the model directory, or the embedded model if none is given.
func (f *modelFlag) open() (*openModel, error) {
	if f.RandomWeights || f.Shape != nil {
		return f.openRandom()
	}
	if f.Model == nil {
		return f.openSmall()
	}
	dir := *f.Model
	kind, err := f.kind()
	if err != nil {
		return nil, err
	}
	switch kind {
	case "llada":
		m, err := llada.Open(dir)
		if err != nil {
			return nil, err
		}
		return &openModel{lladaModel{m}, dir, false}, nil
	case "Dream":
		m, err := dream.Open(dir)
		if err != nil {
			return nil, err
		}
		return &openModel{dreamModel{m}, dir, false}, nil
	}
	return nil, errModelType(dir, kind)
}

// randomContext is the context of models of --shape, in tokens: the limit of the GPU's
// operators.
const randomContext = 131072

// openRandom makes a model with random weights.
func (f *modelFlag) openRandom() (*openModel, error) {
	var name, kind string
	var config []byte
	context := 0 // the config's own
	switch {
	case f.RandomWeights && f.Shape != nil:
		name, kind, config, context = *f.Shape, "llada", llada.Published(), randomContext
		if name == "dream-7b" {
			kind, config = "Dream", dream.Published()
		}
	case f.RandomWeights && f.Model != nil && gguf.Is(*f.Model):
		return nil, usagef("--random-weights takes no GGUF file: want --shape, or a --model that is a directory")
	case f.RandomWeights && f.Model != nil:
		name = *f.Model
		var err error
		if kind, config, err = f.configuration(); err != nil {
			return nil, err
		}
	case f.RandomWeights:
		return nil, usagef("--random-weights needs --shape or --model")
	default:
		return nil, usagef("--shape %s: want --random-weights with it; there is no checkpoint of it in the program", *f.Shape)
	}
	const seed = 0
	switch kind {
	case "llada":
		m, err := llada.Random(config, context, seed)
		if err != nil {
			return nil, err
		}
		return &openModel{lladaModel{m}, name, false}, nil
	case "Dream":
		m, err := dream.Random(config, context, seed)
		if err != nil {
			return nil, err
		}
		return &openModel{dreamModel{m}, name, false}, nil
	}
	return nil, errModelType(name, kind)
}

// errModelType returns the error for a directory or GGUF file with a model of an unknown
// type.
func errModelType(dir, kind string) error {
	if gguf.Is(dir) {
		return fmt.Errorf("%s: the architecture is %q, want llada or dream", dir, kind)
	}
	return fmt.Errorf("%s: model_type is %q, want llada or Dream", filepath.Join(dir, "config.json"), kind)
}

// openSmall opens an embedded model.
func (f *modelFlag) openSmall() (*openModel, error) {
	var m model
	files, weights := f.small()
	if f.dream() {
		d, err := dream.OpenFS(files, weights)
		if err != nil {
			return nil, fmt.Errorf("the embedded Dream model: %w", err)
		}
		m = dreamModel{d}
	} else {
		l, err := llada.OpenFS(files, weights)
		if err != nil {
			return nil, fmt.Errorf("the embedded LLaDA model: %w", err)
		}
		m = lladaModel{l}
	}
	return &openModel{m, "embedded", true}, nil
}

func (f *modelFlag) dream() bool { return or(f.Small, "llada") == "dream" }

// small returns the files and the weights of the small model.
func (f *modelFlag) small() (fs.FS, []byte) {
	if f.dream() {
		return tinymodel.DreamFS(), tinymodel.DreamWeights()
	}
	return tinymodel.FS(), tinymodel.Weights()
}

// folder finds the model's directory, which --model gives.
func (f *modelFlag) folder() (hfcache.Model, error) {
	if *f.Model == "" {
		return hfcache.Model{}, usagef("--model is empty")
	}
	return hfcache.Find(*f.Model)
}

// kind returns the model_type of the model's directory or GGUF file. The model packages
// check everything else.
func (f *modelFlag) kind() (string, error) {
	if !gguf.Is(*f.Model) {
		kind, _, err := f.configuration()
		return kind, err
	}
	g, err := gguf.Open(*f.Model)
	if err != nil {
		return "", err
	}
	defer g.Close()
	name, err := g.Architecture()
	if name == "dream" {
		name = "Dream" // as in a config.json
	}
	return name, err
}

// configuration reads the config.json of the model's directory and returns its
// model_type.
func (f *modelFlag) configuration() (kind string, text []byte, err error) {
	m, err := f.folder()
	if err != nil {
		return "", nil, err
	}
	path := filepath.Join(m.Dir, "config.json")
	if text, err = infile.Read(path, infile.Configuration); err != nil {
		return "", nil, m.Explain(err)
	}
	var c struct {
		ModelType string `json:"model_type"`
	}
	_, err = jsonfile.File{Name: path, Text: text}.Object(&c)
	return c.ModelType, text, err
}

// tokenizer opens the model's tokenizer alone. The error wraps
// tokenizer.ErrNotFound if it has none.
func (f *modelFlag) tokenizer() (*tokenizer.Tokenizer, error) {
	if f.RandomWeights {
		return nil, fmt.Errorf("random weights: %w", tokenizer.ErrNotFound)
	}
	if f.Model == nil {
		files, _ := f.small()
		return tokenizer.Open(files)
	}
	if gguf.Is(*f.Model) {
		g, err := gguf.Open(*f.Model)
		if err != nil {
			return nil, err
		}
		defer g.Close()
		return tokenizer.OpenGGUF(g)
	}
	m, err := f.folder()
	if err != nil {
		return nil, err
	}
	t, err := tokenizer.Open(infile.Dir(m.Dir))
	if errors.Is(err, tokenizer.ErrNotFound) { // the one error that names no file
		return nil, fmt.Errorf("%s: %w", *f.Model, err)
	}
	return t, err
}

// weights opens the model's checkpoint alone, which it must have.
func (f *modelFlag) weights() (safetensors.Source, error) {
	if f.Model == nil {
		_, weights := f.small()
		return safetensors.Parse(weights, safetensors.SingleFile)
	}
	if gguf.Is(*f.Model) {
		// Assigned where there is no error: a nil *File is no nil Source.
		g, err := gguf.Open(*f.Model)
		if err != nil {
			return nil, err
		}
		return g, nil
	}
	m, err := f.folder()
	if err != nil {
		return nil, err
	}
	return safetensors.OpenDir(m.Dir)
}
