package modeltest

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/pulsecol/pulsecol/internal/gguf"
	"github.com/pulsecol/pulsecol/internal/golden"
	"github.com/pulsecol/pulsecol/internal/quant"
	"github.com/pulsecol/pulsecol/internal/safetensors"
	"github.com/pulsecol/pulsecol/models"
)

// Writer is a model that can be written.
type Writer interface {
	Model
	WriteGGUF(ctx context.Context, w io.Writer, o models.GGUFOptions) error
}

// WriteGGUF writes a model to a file and returns its path.
func WriteGGUF(t testing.TB, m Writer, o models.GGUFOptions) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), o.Type+".gguf")
	f, err := os.Create(path)
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(m.WriteGGUF(t.Context(), f, o), f.Close()); err != nil {
		t.Fatal(err)
	}
	return path
}

// WithTokenizer returns a folder with a model of testdata and, as HuggingFace's files, the
// tokenizer and the chat template of a GGUF file.
func WithTokenizer(t testing.TB, model, ggufFile string) string {
	t.Helper()
	f := openGGUF(t, ggufFile)
	tokens, _, err := f.Strings("tokenizer.ggml.tokens")
	if err != nil {
		t.Fatal(err)
	}
	types, _, err := f.Ints("tokenizer.ggml.token_type")
	if err != nil {
		t.Fatal(err)
	}
	merges, _, err := f.Strings("tokenizer.ggml.merges")
	if err != nil {
		t.Fatal(err)
	}
	type object = map[string]any
	vocabulary, added := object{}, []object{}
	for id, content := range tokens {
		switch types[id] {
		case 1:
			vocabulary[content] = id
		case 3, 4:
			added = append(added, object{"id": id, "content": content, "special": types[id] == 3, "normalized": false})
		}
	}
	pattern := map[string]string{
		"qwen2":      `(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+`,
		"bailingmoe": `'(?i:[sdmt]|ll|ve|re)|[^\r\n\p{L}\p{N}]?+\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]++[\r\n]*|\s*[\r\n]|\s+(?!\S)|\s+`,
	}
	pre, _, _ := f.String("tokenizer.ggml.pre")
	tokenizer := object{
		"added_tokens": added, "decoder": object{"type": "ByteLevel"},
		"pre_tokenizer": object{"type": "Sequence", "pretokenizers": []object{
			{"type": "Split", "behavior": "Isolated", "pattern": object{"Regex": pattern[pre]}}, {"type": "ByteLevel", "use_regex": false},
		}},
		"model": object{"type": "BPE", "vocab": vocabulary, "merges": merges},
	}
	if pre == "qwen2" {
		tokenizer["normalizer"] = object{"type": "NFC"}
	}
	config := object{}
	if id, ok, _ := f.Int("tokenizer.ggml.bos_token_id"); ok {
		config["bos_token"] = tokens[id]
	}
	config["chat_template"], _, _ = f.String("tokenizer.chat_template")
	dir := filepath.Join(t.TempDir(), "Named")
	if err := os.CopyFS(dir, os.DirFS(golden.Dir(t, model))); err != nil {
		t.Fatal(err)
	}
	for name, content := range map[string]object{"tokenizer.json": tokenizer, "tokenizer_config.json": config} {
		text, err := json.Marshal(content)
		if err == nil {
			err = os.WriteFile(filepath.Join(dir, name), text, 0o600)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

func openGGUF(t testing.TB, path string) *gguf.File {
	t.Helper()
	f, err := gguf.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { f.Close() })
	return f
}

// WrittenEqualsReference writes the model of testdata in the types of the files of
// llama.cpp, and holds the result to them: the same metadata but for general.name and the
// keys of more, which the reference lacks; the same tensors in the same types; equal bytes of
// floats and of Q8_0; and of other types errors of at most 1.02 of the reference's.
func WrittenEqualsReference(t *testing.T, model string, open func(dir string) Writer, more ...string) {
	files := GGUFFiles(t, model+"-tiny.*.gguf")
	if len(files) == 0 {
		t.Fatal("no files")
	}
	src, err := safetensors.OpenDir(golden.Dir(t, model))
	if err != nil {
		t.Fatal(err)
	}
	defer src.Close()
	for _, path := range files {
		t.Run(filepath.Base(path), func(t *testing.T) {
			m := open(WithTokenizer(t, model, path))
			typ := strings.Split(filepath.Base(path), ".")[1]
			var notes []string
			o := models.GGUFOptions{Type: typ, Name: "Named", Note: func(text string) { notes = append(notes, text) }}
			got, want := openGGUF(t, WriteGGUF(t, m, o)), openGGUF(t, path)
			if len(notes) > 0 {
				t.Errorf("notes %q", notes)
			}
			equalKeys(t, got, want, more)
			exact := openGGUF(t, WriteGGUF(t, m, models.GGUFOptions{Type: "F32"}))
			equalTensors(t, got, want, exact)
		})
	}
}

func equalKeys(t *testing.T, got, want *gguf.File, more []string) {
	for _, key := range want.Keys() {
		if !bytes.Equal(got.Raw(key), want.Raw(key)) && key != "general.name" {
			t.Errorf("%s is %q, llama.cpp's %q", key, got.Raw(key), want.Raw(key))
		}
	}
	for _, key := range got.Keys() {
		if !want.Has(key) && !slices.Contains(more, key) {
			t.Errorf("llama.cpp's file lacks %s", key)
		}
	}
	if name, _, err := got.String("general.name"); name != "Named" || err != nil {
		t.Errorf("general.name %q, %v", name, err)
	}
}

func equalTensors(t *testing.T, got, want, exact *gguf.File) {
	if g, w := got.Names(), want.Names(); !slices.Equal(g, w) {
		t.Fatalf("tensors %q\nwant    %q", g, w)
	}
	for _, name := range want.Names() {
		x, _ := exact.Tensor(name)
		g, _ := got.Tensor(name)
		w, err := want.Tensor(name)
		if err != nil {
			t.Fatal(err)
		}
		if g.DType != w.DType || !slices.Equal(g.Shape, w.Shape) {
			t.Errorf("%s is %v %v, want %v %v", name, g.DType, g.Shape, w.DType, w.Shape)
			continue
		}
		if !g.DType.Quantized() {
			if !bytes.Equal(g.Data, w.Data) {
				t.Errorf("%s differs", name)
			}
			continue
		}
		mine, theirs := weightError(g, x), weightError(w, x)
		if !(mine <= 1.02*theirs) {
			t.Errorf("%s, %v: the error is %.3f of that of llama.cpp", name, g.DType, mine/theirs)
		}
	}
}

// weightError is the root mean square difference of two tensors.
func weightError(a, b safetensors.Tensor) float64 {
	x, y := decoded(a), decoded(b)
	sum := 0.0
	for i := range x {
		sum += math.Pow(float64(x[i])-float64(y[i]), 2)
	}
	return math.Sqrt(sum / float64(len(x)))
}

func decoded(x safetensors.Tensor) []float32 {
	cols := x.Shape[len(x.Shape)-1]
	size := x.DType.Bytes(cols)
	var values []float32
	for at := 0; at < len(x.Data); at += size {
		row := make([]float32, cols)
		x.DType.Decode(row, x.Data[at:][:size], 0)
		values = append(values, row...)
	}
	return values
}

// WrittenBytesStay: the bytes do not depend on the number of threads, and a file that is
// written from a file in the same type has the same tensors.
func WrittenBytesStay(t *testing.T, m Writer, open func(path string) Writer) {
	for _, typ := range []string{"F32", "Q4_K_M", "Q5_0"} {
		one := WriteGGUF(t, m, models.GGUFOptions{Type: typ, Threads: 1})
		want, err := os.ReadFile(one)
		if err != nil {
			t.Fatal(err)
		}
		got, err := os.ReadFile(WriteGGUF(t, m, models.GGUFOptions{Type: typ}))
		if err != nil || !bytes.Equal(got, want) {
			t.Errorf("%s: more threads give other bytes (%v)", typ, err)
		}
		noted := false
		again := openGGUF(t, WriteGGUF(t, open(one), models.GGUFOptions{Type: typ, Note: func(string) { noted = true }}))
		first := openGGUF(t, one)
		if noted {
			t.Errorf("%s: tensors of the same type were quantized again", typ)
		}
		for _, name := range first.Names() {
			x, _ := first.Tensor(name)
			y, err := again.Tensor(name)
			if err != nil || !bytes.Equal(x.Data, y.Data) {
				t.Errorf("%s: %s differs (%v)", typ, name, err)
			}
		}
		for _, key := range first.Keys() {
			if !bytes.Equal(first.Raw(key), again.Raw(key)) {
				t.Errorf("%s: %s differs", typ, key)
			}
		}
	}
}

// LogitErrors writes a model in types and returns the relative L2 error of its logits for
// ids, by type.
func LogitErrors(t *testing.T, m Writer, ids []int32, types []string, open func(path string) Writer) map[string]float64 {
	t.Helper()
	want, err := m.Logits(t.Context(), [][]int32{ids}, nil)
	if err != nil {
		t.Fatal(err)
	}
	found := map[string]float64{}
	for _, typ := range types {
		got, err := open(WriteGGUF(t, m, models.GGUFOptions{Type: typ})).Logits(t.Context(), [][]int32{ids}, nil)
		if err != nil {
			t.Fatal(err)
		}
		var off, size float64
		for i := range want {
			off += math.Pow(float64(got[i])-float64(want[i]), 2)
			size += math.Pow(float64(want[i]), 2)
		}
		found[typ] = math.Sqrt(off / size)
		t.Logf("%-7s %.2g", typ, found[typ])
	}
	return found
}

// Broken returns a folder with a model of testdata in which one element of a tensor has
// other bits.
func Broken(t testing.TB, model, tensor string, at int, bits uint32) string {
	t.Helper()
	dir := filepath.Join(t.TempDir(), "broken")
	if err := os.CopyFS(dir, os.DirFS(golden.Dir(t, model))); err != nil {
		t.Fatal(err)
	}
	src, err := safetensors.OpenDir(golden.Dir(t, model))
	if err != nil {
		t.Fatal(err)
	}
	defer src.Close()
	var list []safetensors.Tensor
	for _, name := range src.Names() {
		x, err := src.Tensor(name)
		if err != nil {
			t.Fatal(err)
		}
		if name == tensor && x.DType == quant.F32 {
			x.Data = slices.Clone(x.Data)
			for i := range 4 {
				x.Data[4*at+i] = byte(bits >> (8 * i))
			}
		}
		list = append(list, x)
	}
	if err := safetensors.WriteFile(filepath.Join(dir, safetensors.SingleFile), list, nil); err != nil {
		t.Fatal(err)
	}
	return dir
}
