package gguf_test

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"math"
	"slices"
	"strings"
	"testing"

	"github.com/pulsecol/pulsecol/internal/gguf"
	"github.com/pulsecol/pulsecol/internal/gguf/gguftest"
	"github.com/pulsecol/pulsecol/internal/quant"
	"github.com/pulsecol/pulsecol/internal/safetensors"
)

// infos describes tensors.
func infos(tensors []gguftest.Tensor) (list []safetensors.Info) {
	for _, t := range tensors {
		list = append(list, safetensors.Info{Name: t.Name, DType: t.Type, Shape: t.Shape})
	}
	return list
}

// written is a file by Write, with the elements of tensors.
func written(t *testing.T, keys []gguf.Key, tensors []gguftest.Tensor) []byte {
	t.Helper()
	var b bytes.Buffer
	err := gguf.Write(&b, keys, infos(tensors), func(i int, w io.Writer) error {
		_, err := w.Write(tensors[i].Data)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

// TestWrite: a file is, byte by byte, that of another writer, and keys that were read can be
// written again.
func TestWrite(t *testing.T) {
	var keys []gguf.Key
	var plain []gguftest.Key
	for _, k := range values {
		switch k.Value.(type) {
		case []float32, []bool, []any: // no key of a model is
		default:
			keys, plain = append(keys, gguf.Key(k)), append(plain, k)
		}
	}
	want := gguftest.File(plain, tensors)
	if got := written(t, keys, tensors); !bytes.Equal(got, want) {
		t.Error("the files differ")
	}
	want = gguftest.File(values, tensors)
	f, err := gguf.Parse(want, "test")
	if err != nil {
		t.Fatal(err)
	}
	var again []gguf.Key
	for _, name := range f.Keys() {
		again = append(again, gguf.Key{Name: name, Value: f.Value(name)})
	}
	if got := written(t, again, tensors); !bytes.Equal(got, want) {
		t.Error("the files with keys that were read differ")
	}
}

// TestWriteRefuses: what no reader would take is an error before the first byte.
func TestWriteRefuses(t *testing.T) {
	for _, c := range []struct {
		keys []gguf.Key
		info safetensors.Info
		want string
	}{
		{[]gguf.Key{{Name: "k", Value: struct{}{}}}, safetensors.Info{}, `key "k": values of type struct {} are not supported`},
		{[]gguf.Key{{Name: "", Value: true}}, safetensors.Info{}, "want keys of 1 to 65536 bytes"},
		{[]gguf.Key{{Name: "k", Value: true}, {Name: "k", Value: true}}, safetensors.Info{}, `key "k": want keys`},
		{nil, safetensors.Info{Name: strings.Repeat("n", 64), Shape: []int{1}}, "want a name of 1 to 63 bytes"},
		{nil, safetensors.Info{Name: "x", DType: quant.I64, Shape: []int{1}}, `tensor "x": type I64 is not one of F32`},
		{nil, safetensors.Info{Name: "x", Shape: []int{2, 0}}, "shape [2 0]: want 1 to 4 dimensions of at least 1"},
		{nil, safetensors.Info{Name: "x", Shape: []int{1, 1, 1, 1, 1}}, "want 1 to 4 dimensions"},
		{nil, safetensors.Info{Name: "x", DType: quant.Q4_K, Shape: []int{4, 128}}, "rows have 128 elements, want a multiple of the 256 of a block of Q4_K"},
		{nil, safetensors.Info{Name: "x", Shape: []int{math.MaxInt, math.MaxInt}}, fmt.Sprintf("shape [%d %d] of F32", math.MaxInt, math.MaxInt)},
		{nil, safetensors.Info{Name: "b", Shape: []int{1}}, `tensor "b": comes twice`},
	} {
		list := []safetensors.Info{{Name: "b", Shape: []int{1}}, c.info}
		if c.keys != nil {
			list = list[:1]
		}
		var b bytes.Buffer
		err := gguf.Write(&b, c.keys, list, func(int, io.Writer) error { return nil })
		if err == nil || !strings.HasPrefix(err.Error(), "gguf: ") || !strings.Contains(err.Error(), c.want) || b.Len() > 0 {
			t.Errorf("error %v after %d bytes, want %s", err, b.Len(), c.want)
		}
	}
}

// TestWriteElements: too few or too many elements are an error, and errors of the elements
// and of the file come back.
func TestWriteElements(t *testing.T) {
	list := []safetensors.Info{{Name: "x", Shape: []int{3}}}
	for n, want := range map[int]string{0: `tensor "x": 0 bytes were written, want 12`, 13: "13 bytes were written"} {
		err := gguf.Write(io.Discard, nil, list, func(_ int, w io.Writer) error {
			_, err := w.Write(make([]byte, n))
			return err
		})
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("error %v, want %s", err, want)
		}
	}
	broken := errors.New("broken")
	if err := gguf.Write(io.Discard, nil, list, func(int, io.Writer) error { return broken }); !errors.Is(err, broken) {
		t.Errorf("error %v, want that of the elements", err)
	}
	r, w := io.Pipe()
	r.CloseWithError(broken)
	if err := gguf.Write(w, nil, list, func(int, io.Writer) error { return nil }); !errors.Is(err, broken) {
		t.Errorf("error %v, want that of the file", err)
	}
}

// FuzzWrite: the metadata of any file that can be read can be written, and reads as the same.
func FuzzWrite(f *testing.F) {
	f.Add(gguftest.File(values, nil))
	f.Fuzz(func(t *testing.T, data []byte) {
		file, err := gguf.Parse(data, "m.gguf")
		if err != nil {
			return
		}
		var keys []gguf.Key
		for _, name := range file.Keys() {
			if name != "general.alignment" {
				keys = append(keys, gguf.Key{Name: name, Value: file.Value(name)})
			}
		}
		var b bytes.Buffer
		if err := gguf.Write(&b, keys, nil, nil); err != nil {
			t.Fatal(err)
		}
		again, err := gguf.Parse(b.Bytes(), "again")
		if err != nil {
			if strings.Contains(err.Error(), "split.") { // a number of tensors that there are not
				return
			}
			t.Fatal(err)
		}
		for _, k := range keys {
			if !bytes.Equal(again.Raw(k.Name), file.Raw(k.Name)) {
				t.Fatalf("key %q differs", k.Name)
			}
		}
		if len(again.Keys()) != len(keys) || !slices.IsSorted(again.Names()) {
			t.Fatalf("%d keys, want %d", len(again.Keys()), len(keys))
		}
	})
}
