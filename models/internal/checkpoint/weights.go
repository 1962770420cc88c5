package checkpoint

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/pulsecol/pulsecol/graph"
	"github.com/pulsecol/pulsecol/internal/quant"
	"github.com/pulsecol/pulsecol/internal/safetensors"
	"github.com/pulsecol/pulsecol/models"
	"github.com/pulsecol/pulsecol/op"
)

// Weights are the tensors of a model, in their storage type.
type Weights struct {
	Embed  op.Weight // [Vocab,Hidden]
	Blocks []graph.Block
	Norm   graph.Norm
	Head   op.Weight // [Vocab,Hidden]; Embed if tied
	Bytes  int64     // that a run brings into memory
}

// Loader takes tensors out of a checkpoint by name and collects every problem, so that
// one error describes a broken checkpoint.
type Loader struct {
	dir    string // of the checkpoint, or its one file; "" if there is none
	src    safetensors.Source
	random *randomWeights // in place of src, if not nil
	used   map[string]bool
	bytes  int64
	errs   []error

	names  map[string]string // see GGUF; nil if src has the names that are asked for
	paired int               // rows of a head, if those of Q and K are in pairs
}

// Loader returns a loader of the files' weights.
func (f *Files) Loader() *Loader {
	return &Loader{dir: f.dir, src: f.Source, random: f.random, used: map[string]bool{}, names: f.names, paired: f.paired}
}

// Matrix returns the weight [rows, cols] under name, in its storage type.
func (l *Loader) Matrix(name string, rows, cols int) op.Weight {
	t, ok := l.take(name, rows, cols)
	if !ok {
		return op.Weight{}
	}
	if !t.DType.OfWeights() {
		l.fail("tensor %q has dtype %s, want one of %v", t.Name, t.DType, quant.WeightTypes())
		return op.Weight{}
	}
	var err error
	if l.isPaired(t.Name) {
		if t.Data, err = halves(t.Data, rows, l.paired); err != nil {
			l.fail("tensor %q: %v", t.Name, err)
			return op.Weight{}
		}
		l.bytes -= int64(len(t.Data)) // in memory already, as is the copy
	}
	w, err := op.NewWeight(rows, cols, t.DType, t.Data)
	if err != nil {
		l.fail("tensor %q: %v", t.Name, err)
	}
	return w
}

// Vector returns the n values under name as float32.
func (l *Loader) Vector(name string, n int) []float32 {
	t, ok := l.take(name, n)
	if !ok {
		return nil
	}
	if t.DType.Quantized() {
		l.fail("tensor %q has dtype %s, want BF16, F16 or F32", t.Name, t.DType)
		return nil
	}
	v, err := t.Float32s()
	if err != nil {
		l.fail("%v", err)
	}
	return v
}

// Projection returns the linear map whose tensors are name+".weight" and, if
// biased, name+".bias".
func (l *Loader) Projection(name string, outputs, inputs int, biased bool) graph.Projection {
	p := graph.Projection{Path: name, Weight: l.Matrix(name+".weight", outputs, inputs)}
	if biased {
		p.Bias = l.Vector(name+".bias", outputs)
	}
	return p
}

// Norm returns the RMSNorm whose tensor is name+".weight".
func (l *Loader) Norm(name string, n int, eps float64) graph.Norm {
	if l.random != nil {
		return graph.Norm{Path: name, Weight: slices.Repeat([]float32{1}, n), Eps: eps}
	}
	return graph.Norm{Path: name, Weight: l.Vector(name+".weight", n), Eps: eps}
}

func (l *Loader) take(name string, shape ...int) (safetensors.Tensor, bool) {
	if l.random != nil {
		return l.random.tensor(name, shape), true
	}
	name = l.fileName(name)
	l.used[name] = true
	t, err := l.src.Tensor(name)
	switch {
	case errors.Is(err, safetensors.ErrNotFound):
		l.fail("no tensor %q", name)
	case err != nil:
		l.fail("%v", err)
	case !slices.Equal(t.Shape, shape):
		l.fail("tensor %q has shape %v, the config calls for %v", name, t.Shape, shape)
	default:
		l.bytes += int64(len(t.Data))
		return t, true
	}
	return t, false
}

func (l *Loader) fail(format string, args ...any) {
	l.errs = append(l.errs, fmt.Errorf("%w: %s", models.ErrWeights, fmt.Sprintf(format, args...)))
}

// maxErrors is the number of problems that Done lists: a wrong config can give one for
// every tensor.
const maxErrors = 5

// unusedSuffix ends the names of rotary frequencies, which some exporters store and which
// are computed.
const unusedSuffix = "rotary_emb.inv_freq"

// Done returns the memory of the weights, or an error about tensors that are missing, of
// another shape or type, or unused.
func (l *Loader) Done() (bytes int64, err error) {
	if l.random != nil {
		return int64(len(l.random.block)), nil
	}
	for _, name := range l.src.Names() {
		if !l.used[name] && !strings.HasSuffix(name, unusedSuffix) {
			l.fail("tensor %q has no place in this architecture", name)
		}
	}
	if n := len(l.errs); n > maxErrors {
		l.errs = append(l.errs[:maxErrors], fmt.Errorf("%w: and %d more", models.ErrWeights, n-maxErrors))
	}
	if err = errors.Join(l.errs...); err != nil && l.dir != "" {
		err = fmt.Errorf("%s: %w", l.dir, err)
	}
	return l.bytes, err
}

// pageRun is about how much of a mapped file comes into memory around a byte
// that is read: Linux maps 64 KiB, or the whole of a larger unit of its cache.
const pageRun = 128 << 10

// TouchedWeights returns the bytes of weights that a run over a number of tokens brings into
// memory, and the bytes with a checkpoint in bfloat16. They are equal unless the weights are
// random, which share memory and are in it already. all means that the run reads all of a
// checkpoint.
//
// Otherwise the part of the embedding table that is read depends on the tokens: at most a
// run of pages for each. Texts repeat tokens, and frequent tokens are neighbours, so a third
// of that is assumed.
func (f *Files) TouchedWeights(w *Weights, all bool, tokens int) (touched, checkpoint int64) {
	checkpoint = w.Bytes
	if f.random != nil {
		checkpoint = f.random.bytes
	}
	if !all {
		table := int64(len(w.Embed.Data))
		checkpoint += min(table, int64(tokens)*pageRun)/3 - table
	}
	if f.random != nil {
		return w.Bytes, checkpoint
	}
	return checkpoint, checkpoint
}
