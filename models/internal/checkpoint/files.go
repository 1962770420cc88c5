package checkpoint

import (
	"errors"
	"fmt"
	"io/fs"
	"sync/atomic"

	"github.com/pulsecol/pulsecol/internal/chattemplate"
	"github.com/pulsecol/pulsecol/internal/gguf"
	"github.com/pulsecol/pulsecol/internal/hfcache"
	"github.com/pulsecol/pulsecol/internal/infile"
	"github.com/pulsecol/pulsecol/internal/jsonfile"
	"github.com/pulsecol/pulsecol/internal/mapped"
	"github.com/pulsecol/pulsecol/internal/safetensors"
	"github.com/pulsecol/pulsecol/internal/tokenizer"
	"github.com/pulsecol/pulsecol/models"
)

// Files are the parts of a HuggingFace model directory, or what a GGUF file has of them.
type Files struct {
	GGUF       *gguf.File           // in place of Config and Generation; nil if there is none
	Config     jsonfile.File        // config.json
	Generation jsonfile.File        // generation_config.json; without text if there is none
	Tokenizer  *tokenizer.Tokenizer // nil if there is none
	Context    int                  // above 0: replaces that of Config
	Source     safetensors.Source   // of the weights, from OpenWeights; nil if they are random

	chat    *chattemplate.Template // of the directory; nil if there is no directory
	chatErr error                  // why it is broken

	names  map[string]string // see GGUF
	paired int               // see Loader

	dir    string // or the GGUF file; "" if there is none
	open   func() (safetensors.Source, error)
	random *randomWeights // nil if the weights are a checkpoint's
	closed atomic.Bool
}

func readConfig(fsys fs.FS, name string) (jsonfile.File, error) {
	data, err := infile.ReadFS(fsys, name, infile.Configuration)
	return jsonfile.File{Name: infile.Name(fsys, name), Text: data}, err
}

// Open reads a model directory, a model of the HuggingFace cache by its name (see
// hfcache.Find) or a GGUF file, without the weights.
func Open(model string) (*Files, error) {
	if gguf.Is(model) {
		return openGGUF(model)
	}
	m, err := hfcache.Find(model)
	if err != nil {
		return nil, err
	}
	f, err := openText(infile.Dir(m.Dir), func() (safetensors.Source, error) {
		src, err := safetensors.OpenDir(m.Dir)
		return src, m.Explain(err)
	})
	if err != nil {
		return nil, m.Explain(err)
	}
	f.dir = m.Dir
	return f, nil
}

// OpenFS reads a model from a file system. weights is the content of model.safetensors,
// which is not copied.
func OpenFS(fsys fs.FS, weights []byte) (*Files, error) {
	if fsys == nil {
		return nil, errors.New("the file system is nil")
	}
	return openText(fsys, func() (safetensors.Source, error) { return safetensors.Parse(weights, safetensors.SingleFile) })
}

// OpenWeights opens the checkpoint of an architecture, after the configuration has been
// checked. Its files stay mapped until Close.
func (f *Files) OpenWeights(c models.Config) error {
	if f.random != nil {
		return f.random.fill(int64(max(c.Vocab, c.FeedForward, c.Heads*c.HeadDim)) * int64(c.Hidden))
	}
	// Assigned where there is no error: a nil *Checkpoint is no nil Source.
	src, err := f.open()
	if err == nil {
		f.Source = src
	}
	return err
}

func openText(fsys fs.FS, open func() (safetensors.Source, error)) (*Files, error) {
	f := Files{open: open}
	var err error
	if f.Config, err = readConfig(fsys, "config.json"); err != nil {
		return nil, err
	}
	if f.Generation, err = readConfig(fsys, "generation_config.json"); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	if f.Tokenizer, err = tokenizer.Open(fsys); err != nil && !errors.Is(err, tokenizer.ErrNotFound) {
		return nil, err
	}
	f.openChat(fsys)
	return &f, nil
}

// Close unmaps the weights.
func (f *Files) Close() error {
	f.closed.Store(true)
	if f.Source == nil {
		return nil
	}
	return f.Source.Close()
}

// CheckOpen returns models.ErrClosed after Close: reading an unmapped weight would end the
// process.
func (f *Files) CheckOpen() error {
	if f.closed.Load() {
		return models.ErrClosed
	}
	return nil
}

// Intact returns models.ErrWeights where a file of the weights has changed since it was
// opened: what was computed since may be wrong.
func (f *Files) Intact() error {
	if f.Source == nil {
		return nil
	}
	return WeightsError(f.Source.Intact())
}

// WeightsError wraps an error about a mapped file in models.ErrWeights; it returns others
// as they are.
func WeightsError(err error) error {
	if e := new(mapped.Error); errors.As(err, &e) {
		return fmt.Errorf("%w: %w", models.ErrWeights, e)
	}
	return err
}

// Encode returns the token ids of text, added tokens recognised.
func (f *Files) Encode(text string) ([]int32, error) {
	if f.Tokenizer == nil {
		return nil, models.ErrNoTokenizer
	}
	return f.Tokenizer.Encode(text)
}

// Decode returns the text of ids, leaving out special tokens.
func (f *Files) Decode(ids []int32) (string, error) {
	if f.Tokenizer == nil {
		return "", models.ErrNoTokenizer
	}
	return f.Tokenizer.Decode(ids, true)
}
