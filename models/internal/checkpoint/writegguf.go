package checkpoint

import (
	"context"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/pulsecol/pulsecol/internal/gguf"
	"github.com/pulsecol/pulsecol/internal/safetensors"
	"github.com/pulsecol/pulsecol/models"
)

// WriteGGUF writes the model as a file of llama.cpp.
func (f *Files) WriteGGUF(ctx context.Context, w io.Writer, d *GGUF, c models.Config, o models.GGUFOptions) error {
	at := slices.IndexFunc(gguf.FileTypes(), func(t gguf.FileType) bool { return t.Name == o.Type })
	switch {
	case ctx == nil || w == nil:
		return fmt.Errorf("%w: the context or the writer is nil", models.ErrRequest)
	case at < 0:
		return fmt.Errorf("%w: the type of a GGUF file is %.40q, want one of %s", models.ErrRequest, o.Type, strings.Join(models.GGUFTypes(), ", "))
	case o.Threads < 0:
		return fmt.Errorf("%w: Threads is %d, want 0 for all, or more", models.ErrRequest, o.Threads)
	case f.random != nil:
		return fmt.Errorf("%w: random weights are no model to write", models.ErrRequest)
	}
	e := &ggufEncoder{ctx: ctx, files: f, config: c, options: o, pair: d.Paired && f.paired == 0}
	if err := e.list(d, gguf.FileTypes()[at]); err != nil {
		return err
	}
	keys, err := e.keys(d, gguf.FileTypes()[at])
	if err != nil {
		return err
	}
	if err := gguf.Write(w, keys, e.infos, e.elements); err != nil {
		return WeightsError(err)
	}
	return f.Intact()
}

// list makes the list of tensors, in the order of their names in the model.
func (e *ggufEncoder) list(d *GGUF, t gguf.FileType) error {
	f := e.files
	shape := gguf.ModelShape{Layers: e.config.Layers, QueriesPerKV: e.config.Heads / e.config.KVHeads, Tied: e.config.TiedHead}
	names := &Loader{names: d.Names}
	if f.GGUF != nil {
		names.names = nil
	}
	for _, name := range f.Source.Names() {
		if strings.HasSuffix(name, unusedSuffix) {
			continue
		}
		x, err := f.Source.Tensor(name)
		if err != nil {
			return err
		}
		to := names.fileName(name)
		info := safetensors.Info{Name: to, DType: t.Tensor(to, x.Shape, shape), Shape: x.Shape}
		if x.DType.Quantized() && x.DType != info.DType {
			e.requantized++
		}
		e.sources, e.infos = append(e.sources, x), append(e.infos, info)
		e.total += int64(elements(x.Shape))
	}
	if e.requantized > 0 {
		e.note("%d tensors were quantized before and are quantized again: the errors add up; a file made of the float weights is better", e.requantized)
	}
	return nil
}

func elements(shape []int) int {
	n := 1
	for _, d := range shape {
		n *= d
	}
	return n
}

func (e *ggufEncoder) note(format string, args ...any) {
	if e.options.Note != nil {
		e.options.Note(fmt.Sprintf(format, args...))
	}
}

// keys returns the metadata. That of a file of llama.cpp stays but for what depends on the
// types.
func (e *ggufEncoder) keys(d *GGUF, t gguf.FileType) ([]gguf.Key, error) {
	const typeKey, versionKey = "general.file_type", "general.quantization_version"
	types := []gguf.Key{{Name: versionKey, Value: uint32(2)}, {Name: typeKey, Value: t.ID}}
	g := e.files.GGUF
	if g == nil || g.ArchitectureKey() != gguf.ArchitectureKey {
		return e.newKeys(d, types)
	}
	var keys []gguf.Key
	for _, name := range g.Keys() {
		if name != typeKey && name != versionKey && name != "general.alignment" && !strings.HasPrefix(name, "split.") {
			keys = append(keys, gguf.Key{Name: name, Value: g.Value(name)})
		}
	}
	return append(keys, types...), nil
}

// newKeys returns the metadata of a model that is no file of llama.cpp.
func (e *ggufEncoder) newKeys(d *GGUF, types []gguf.Key) ([]gguf.Key, error) {
	c := e.config
	keys := []gguf.Key{{Name: gguf.ArchitectureKey, Value: d.Name}, {Name: "general.type", Value: "model"}}
	add := func(name string, value any) { keys = append(keys, gguf.Key{Name: name, Value: value}) }
	size := func(name string, n int) { add(d.Name+"."+name, uint32(n)) }
	if e.options.Name != "" {
		add("general.name", e.options.Name)
	}
	add("general.size_label", sizeLabel(e.total))
	size("block_count", c.Layers)
	size("context_length", c.Context)
	size("embedding_length", c.Hidden)
	size("feed_forward_length", c.FeedForward)
	size("attention.head_count", c.Heads)
	size("attention.head_count_kv", c.KVHeads)
	if c.HeadDim*c.Heads != c.Hidden {
		size("attention.key_length", c.HeadDim)
		size("attention.value_length", c.HeadDim)
	}
	size("rope.dimension_count", c.HeadDim)
	add(d.Name+".rope.freq_base", float32(c.RopeTheta))
	add(d.Name+".attention.layer_norm_rms_epsilon", float32(c.Eps))
	add(d.Name+".attention.causal", false)
	size("vocab_size", c.Vocab)
	add("diffusion.shift_logits", d.ShiftLogits)
	keys = append(keys, types...)
	add("tokenizer.ggml.eos_token_id", uint32(c.EOSID))
	add("tokenizer.ggml.padding_token_id", uint32(c.PadID))
	add("tokenizer.ggml.mask_token_id", uint32(c.MaskID))
	return e.tokenizerKeys(d, keys)
}

// tokenizerKeys adds the tokenizer and the chat template.
func (e *ggufEncoder) tokenizerKeys(d *GGUF, keys []gguf.Key) ([]gguf.Key, error) {
	f := e.files
	if f.Tokenizer == nil {
		e.note("the model has no tokenizer, and so the file has none: llama.cpp does not open it")
		return keys, nil
	}
	tokenizer, notes, err := f.Tokenizer.GGUFKeys(e.config.Vocab)
	if err != nil {
		return nil, err
	}
	for _, text := range notes {
		e.note("%s", text)
	}
	keys = append(keys, tokenizer...)
	switch {
	case f.chatErr != nil:
		e.note("the file has no chat template: %v", f.chatErr)
	case f.chat != nil:
		keys = append(keys, f.chat.GGUFKeys(f.Tokenizer.TokenID)...)
	}
	bos := slices.ContainsFunc(keys, func(k gguf.Key) bool { return k.Name == "tokenizer.ggml.bos_token_id" })
	return append(keys, gguf.Key{Name: "tokenizer.ggml.add_bos_token", Value: d.AddBOS && bos}, gguf.Key{Name: "tokenizer.ggml.add_eos_token", Value: false}), nil
}

// sizeLabel is a number of weights to two digits at least, such as 8.0B.
func sizeLabel(weights int64) string {
	x, unit := float64(weights)/1e3, "K"
	for _, next := range []string{"M", "B", "T"} {
		if x < 1e3 {
			break
		}
		x, unit = x/1e3, next
	}
	if x < 9.5 {
		return fmt.Sprintf("%.1f%s", x, unit)
	}
	return fmt.Sprintf("%.0f%s", x, unit)
}
