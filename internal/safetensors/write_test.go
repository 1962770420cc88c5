package safetensors_test

import (
	"bytes"
	"errors"
	"fmt"
	"maps"
	"math"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"pgregory.net/rapid"

	"github.com/pulsecol/pulsecol/internal/golden"
	"github.com/pulsecol/pulsecol/internal/quant"
	"github.com/pulsecol/pulsecol/internal/safetensors"
)

// rewrite writes tensors to memory and opens the result.
func rewrite(t testing.TB, tensors []safetensors.Tensor, metadata map[string]string) *safetensors.File {
	t.Helper()
	var b bytes.Buffer
	if err := safetensors.Write(&b, tensors, metadata); err != nil {
		t.Fatal(err)
	}
	f, err := safetensors.Parse(b.Bytes(), "rewritten")
	if err != nil {
		t.Fatal(err)
	}
	return f
}

// The reference implementation made the files in testdata: written again, they are
// equal byte for byte.
func TestWriteAsReference(t *testing.T) {
	for _, name := range []string{"kernel/attention", "llada/model", "llada/expected", "dream/model", "dream/expected", "sparsed/blockmask"} {
		t.Run(name, func(t *testing.T) {
			path := filepath.Join(golden.Dir(t, "."), filepath.FromSlash(name)+".safetensors")
			want, err := os.ReadFile(path)
			if err != nil {
				t.Fatal(err)
			}
			f, err := safetensors.Parse(want, path)
			if err != nil {
				t.Fatal(err)
			}
			var got bytes.Buffer
			if err := safetensors.Write(&got, all(t, f), f.Metadata()); err != nil {
				t.Fatal(err)
			}
			if !bytes.Equal(got.Bytes(), want) {
				t.Errorf("%d bytes differ from the %d of the original", got.Len(), len(want))
			}
		})
	}
}

func TestWriteRead(t *testing.T) {
	kinds := []quant.DType{
		quant.BOOL, quant.I8, quant.F8E4M3, quant.BF16, quant.I16,
		quant.F32, quant.I32, quant.F64, quant.U64,
	}
	// Drawn from all of Unicode, with quotes, escapes and control characters.
	text := rapid.String()
	rapid.Check(t, func(t *rapid.T) {
		var tensors []safetensors.Tensor
		names := rapid.SliceOfNDistinct(text.Filter(func(s string) bool { return s != "__metadata__" }), 0, 6, rapid.ID).Draw(t, "names")
		for _, name := range names {
			dtype := rapid.SampledFrom(kinds).Draw(t, "dtype")
			shape := rapid.SliceOfN(rapid.IntRange(0, 4), 0, 3).Draw(t, "shape")
			size := dtype.BlockBytes()
			for _, d := range shape {
				size *= d
			}
			data := rapid.SliceOfN(rapid.Byte(), size, size).Draw(t, "data")
			tensors = append(tensors, safetensors.Tensor{Info: safetensors.Info{Name: name, DType: dtype, Shape: shape}, Data: data})
		}
		metadata := rapid.MapOfN(text, text, 0, 3).Draw(t, "metadata")

		var b bytes.Buffer
		if err := safetensors.Write(&b, tensors, metadata); err != nil {
			t.Fatal(err)
		}
		f, err := safetensors.Parse(b.Bytes(), "written")
		if err != nil {
			t.Fatal(err)
		}
		if want := slices.Sorted(slices.Values(names)); !slices.Equal(f.Names(), want) {
			t.Fatalf("names %q, want %q", f.Names(), want)
		}
		for _, want := range tensors {
			got, err := f.Tensor(want.Name)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(want, got, cmpopts.EquateEmpty()); diff != "" {
				t.Fatalf("tensor (-want +got):\n%s", diff)
			}
			if at := bytes.Index(b.Bytes(), got.Data); len(got.Data) > 0 && at < 0 {
				t.Fatalf("tensor %q: data is not in the file", want.Name)
			}
		}
		if !maps.Equal(f.Metadata(), metadata) {
			t.Fatalf("metadata %q, want %q", f.Metadata(), metadata)
		}

		// The order of the argument does not matter.
		slices.Reverse(tensors)
		var again bytes.Buffer
		if err := safetensors.Write(&again, tensors, metadata); err != nil {
			t.Fatal(err)
		}
		if !bytes.Equal(b.Bytes(), again.Bytes()) {
			t.Fatal("another order of tensors gives another file")
		}
	})
}

func TestWriteAligns(t *testing.T) {
	var tensors []safetensors.Tensor
	for i, d := range []quant.DType{quant.U8, quant.F64, quant.BF16, quant.F32} {
		data := bytes.Repeat([]byte{byte(0xa0 + i)}, 3*d.BlockBytes())
		tensors = append(tensors, safetensors.Tensor{Info: safetensors.Info{Name: d.String(), DType: d, Shape: []int{3}}, Data: data})
	}
	for n := range 9 { // header lengths of every remainder
		var b bytes.Buffer
		if err := safetensors.Write(&b, tensors, map[string]string{"pad": strings.Repeat("x", n)}); err != nil {
			t.Fatal(err)
		}
		for _, x := range tensors {
			if at := bytes.Index(b.Bytes(), x.Data); at < 0 || at%x.DType.BlockBytes() != 0 {
				t.Errorf("%d bytes of padding: tensor %s is at %d", n, x.Name, at)
			}
		}
	}
}

func TestFromFloat32s(t *testing.T) {
	values := []float32{1, -2.5, 0, float32(math.Inf(1)), math.SmallestNonzeroFloat32, 3}
	shape := []int{2, 3}
	x := safetensors.FromFloat32s("logits", shape, values)
	got, err := tensor(t, rewrite(t, []safetensors.Tensor{x}, nil), "logits").Float32s()
	if err != nil || !slices.Equal(got, values) {
		t.Errorf("got %v, %v, want %v", got, err, values)
	}
	shape[0], values[0] = 7, 7
	if x.Shape[0] != 2 || x.Data[3] != 0x3f {
		t.Error("the tensor shares memory with the arguments")
	}
}

func TestWriteErrors(t *testing.T) {
	u8 := func(name string, size int, shape ...int) safetensors.Tensor {
		return safetensors.Tensor{Info: safetensors.Info{Name: name, DType: quant.U8, Shape: shape}, Data: make([]byte, size)}
	}
	for _, c := range []struct {
		name, says string
		tensors    []safetensors.Tensor
		metadata   map[string]string
	}{
		{"twice", `tensor name "x" comes twice`, []safetensors.Tensor{u8("x", 1, 1), u8("x", 2, 2)}, nil},
		{"reserved", `tensor name "__metadata__" is reserved`, []safetensors.Tensor{u8("__metadata__", 1, 1)}, nil},
		{"name not UTF-8", `tensor name "\xff" is not valid UTF-8`, []safetensors.Tensor{u8("\xff", 1, 1)}, nil},
		{"metadata not UTF-8", `metadata "k": "\xff" is not valid UTF-8`, nil, map[string]string{"k": "\xff"}},
		{"data too short", `tensor "x": shape [2 3] of U8 needs 6 bytes, data has 5`, []safetensors.Tensor{u8("x", 5, 2, 3)}, nil},
		{"data too long", `needs 6 bytes, data has 7`, []safetensors.Tensor{u8("x", 7, 2, 3)}, nil},
		{"negative", `shape [-1] has a negative dimension`, []safetensors.Tensor{u8("x", 0, -1)}, nil},
		{"overflow", `needs more bytes than`, []safetensors.Tensor{u8("x", 0, math.MaxInt, math.MaxInt)}, nil},
		{"dtype", `tensor "x": dtype "Q4_K" is none of`, []safetensors.Tensor{{Info: safetensors.Info{Name: "x", DType: quant.Q4_K}}}, nil},
	} {
		t.Run(c.name, func(t *testing.T) {
			var b bytes.Buffer
			err := safetensors.Write(&b, c.tensors, c.metadata)
			if err == nil || !strings.HasPrefix(err.Error(), "safetensors: ") || !strings.Contains(err.Error(), c.says) {
				t.Errorf("error %v, want %q", err, c.says)
			}
			if b.Len() != 0 {
				t.Errorf("%d bytes were written", b.Len())
			}
		})
	}
}

// limited fails once it has taken n bytes.
type limited struct{ n int }

var errFull = errors.New("full")

func (w *limited) Write(p []byte) (int, error) {
	if len(p) > w.n {
		return w.n, errFull
	}
	w.n -= len(p)
	return len(p), nil
}

func TestWriteReportsWriter(t *testing.T) {
	x := safetensors.FromFloat32s("x", []int{2}, []float32{1, 2})
	var b bytes.Buffer
	if err := safetensors.Write(&b, []safetensors.Tensor{x}, nil); err != nil {
		t.Fatal(err)
	}
	for n := range b.Len() {
		if err := safetensors.Write(&limited{n}, []safetensors.Tensor{x}, nil); !errors.Is(err, errFull) {
			t.Errorf("writer full after %d bytes: error %v", n, err)
		}
	}
}

// entries lists a directory, to see that no temporary file is left.
func entries(t *testing.T, dir string) []string {
	t.Helper()
	list, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, e := range list {
		names = append(names, e.Name())
	}
	return names
}

func TestWriteFile(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "out.safetensors")
	for _, v := range []float32{1, 2} { // the second replaces the first
		if err := safetensors.WriteFile(path, []safetensors.Tensor{safetensors.FromFloat32s("x", nil, []float32{v})}, nil); err != nil {
			t.Fatal(err)
		}
		f, err := safetensors.Open(path)
		if err != nil {
			t.Fatal(err)
		}
		if got, err := tensor(t, f, "x").Float32s(); err != nil || got[0] != v {
			t.Errorf("got %v, %v, want %v", got, err, v)
		}
		if err := f.Close(); err != nil {
			t.Error(err)
		}
		if got := entries(t, dir); !slices.Equal(got, []string{"out.safetensors"}) {
			t.Errorf("the directory holds %q", got)
		}
	}
}

func TestWriteFileKeepsOldOnError(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "out.safetensors")
	write(t, path, []byte("old"))
	bad := safetensors.FromFloat32s("x", []int{2}, []float32{1})
	err := safetensors.WriteFile(path, []safetensors.Tensor{bad}, nil)
	if want := "safetensors: " + path + `: tensor "x": shape [2] of F32 needs 8 bytes, data has 4`; err == nil || err.Error() != want {
		t.Errorf("error %v, want %s", err, want)
	}
	if got, err := os.ReadFile(path); err != nil || string(got) != "old" {
		t.Errorf("the file now holds %q, %v", got, err)
	}
	if got := entries(t, dir); !slices.Equal(got, []string{"out.safetensors"}) {
		t.Errorf("the directory holds %q", got)
	}
}

func TestWriteFileTargets(t *testing.T) {
	dir := t.TempDir()
	x := []safetensors.Tensor{safetensors.FromFloat32s("x", nil, []float32{1})}

	if err := safetensors.WriteFile(dir, x, nil); err == nil || !strings.Contains(err.Error(), "not a regular file") {
		t.Errorf("a directory: error %v", err)
	}
	if err := safetensors.WriteFile(filepath.Join(dir, "no", "out"), x, nil); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("in a missing directory: error %v, want fs.ErrNotExist", err)
	}
	if runtime.GOOS == "windows" {
		return // links need a privilege there
	}

	target, link := filepath.Join(dir, "target"), filepath.Join(dir, "link")
	write(t, target, []byte("old"))
	if err := os.Symlink("target", link); err != nil {
		t.Fatal(err)
	}
	if err := safetensors.WriteFile(link, x, nil); err != nil {
		t.Fatal(err)
	}
	if info, err := os.Lstat(link); err != nil || info.Mode()&os.ModeSymlink == 0 {
		t.Errorf("the link was replaced: %v, %v", info, err)
	}
	f, err := safetensors.Open(target)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	tensor(t, f, "x")
}

func BenchmarkOpen(b *testing.B) {
	// The tensor count of LLaDA-8B, empty tensors: the cost of a header.
	var tensors []safetensors.Tensor
	for i := range 291 {
		name := fmt.Sprintf("model.transformer.blocks.%d.q_proj.weight", i)
		tensors = append(tensors, safetensors.Tensor{Info: safetensors.Info{Name: name, DType: quant.BF16, Shape: []int{0, 4096}}})
	}
	path := filepath.Join(b.TempDir(), "model.safetensors")
	if err := safetensors.WriteFile(path, tensors, nil); err != nil {
		b.Fatal(err)
	}
	for b.Loop() {
		f, err := safetensors.Open(path)
		if err != nil {
			b.Fatal(err)
		}
		if err := f.Close(); err != nil {
			b.Fatal(err)
		}
	}
}
