package safetensors_test

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io/fs"
	"math"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/pulsecol/pulsecol/internal/golden"
	"github.com/pulsecol/pulsecol/internal/quant"
	"github.com/pulsecol/pulsecol/internal/safetensors"
)

// file puts a header's length before it and size bytes after it: 0, 1, 2, ...
func file(header string, size int) []byte {
	b := binary.LittleEndian.AppendUint64(nil, uint64(len(header)))
	b = append(b, header...)
	for i := range size {
		b = append(b, byte(i))
	}
	return b
}

func parse(t *testing.T, data []byte) *safetensors.File {
	t.Helper()
	f, err := safetensors.Parse(data, "test")
	if err != nil {
		t.Fatal(err)
	}
	return f
}

func tensor(t *testing.T, s safetensors.Source, name string) safetensors.Tensor {
	t.Helper()
	x, err := s.Tensor(name)
	if err != nil {
		t.Fatal(err)
	}
	return x
}

func TestParse(t *testing.T) {
	f := parse(t, file(`{
		"b": {"dtype": "I16", "shape": [2, 3], "data_offsets": [4, 16]},
		"__metadata__": {"format": "pt", "DTYPE": "x", "dtype": "y"},
		"scalar": {"data_offsets": [0, 4], "note": {"ignored": [1, 2]}, "shape": [], "dtype": "F32"},
		"empty": {"dtype": "F64", "shape": [3, 0], "data_offsets": [4, 4]},
		"last": {"dtype": "BF16", "shape": [0], "data_offsets": [16, 16]},
		"": {"dtype": "U8", "shape": [1], "data_offsets": [16, 17]}
	}   `, 17))
	type T = safetensors.Tensor
	type I = safetensors.Info
	want := []T{
		{I{"", quant.U8, []int{1}}, []byte{16}},
		{I{"b", quant.I16, []int{2, 3}}, []byte{4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15}},
		{I{"empty", quant.F64, []int{3, 0}}, []byte{}},
		{I{"last", quant.BF16, []int{0}}, []byte{}},
		{I{"scalar", quant.F32, []int{}}, []byte{0, 1, 2, 3}},
	}
	var got []T
	for _, name := range f.Names() {
		x := tensor(t, f, name)
		if cap(x.Data) != len(x.Data) {
			t.Errorf("tensor %q can be appended to over its neighbour", name)
		}
		got = append(got, x)
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("tensors (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff(map[string]string{"format": "pt", "DTYPE": "x", "dtype": "y"}, f.Metadata()); diff != "" {
		t.Errorf("metadata (-want +got):\n%s", diff)
	}
}

func TestParseNoTensors(t *testing.T) {
	f := parse(t, file("{}", 0))
	if names := f.Names(); len(names) != 0 {
		t.Errorf("names are %q, want none", names)
	}
	if m := f.Metadata(); len(m) != 0 {
		t.Errorf("metadata is %q, want none", m)
	}
}

// Results of a File belong to the caller: changing them does not change the File.
func TestResultsAreCopies(t *testing.T) {
	f := parse(t, file(`{"__metadata__":{"k":"v"},"x":{"dtype":"U8","shape":[1,4],"data_offsets":[0,4]}}`, 4))
	f.Names()[0] = "y"
	f.Metadata()["k"] = "w"
	tensor(t, f, "x").Shape[1] = 9
	if names := f.Names(); names[0] != "x" {
		t.Errorf("name is %q, want x", names[0])
	}
	if v := f.Metadata()["k"]; v != "v" {
		t.Errorf("metadata is %q, want v", v)
	}
	if shape := tensor(t, f, "x").Shape; shape[1] != 4 {
		t.Errorf("shape is %v, want [1 4]", shape)
	}
}

// malformed are files that must be refused, with a name for each problem.
var malformed = []struct {
	name, says string
	data       []byte
}{
	{"empty", "0 bytes are too few", nil},
	{"no length", "7 bytes are too few", make([]byte, 7)},
	{"no header", "does not start with a JSON object", make([]byte, 8)},
	{"huge length", "header length 18446744073709551615 is over the limit", slices.Repeat([]byte{255}, 16)},
	{"length over limit", "header length 104857601 is over the limit of 104857600", binary.LittleEndian.AppendUint64(nil, 100<<20+1)},
	{"length at limit", "header length is 104857600, but only 0 bytes follow", binary.LittleEndian.AppendUint64(nil, 100<<20)},
	{"header cut short", "header length is 20, but only 19 bytes follow", file(`{"__metadata__":{} }`, 0)[:27]},

	{"not JSON", "does not start with", file("hello", 0)},
	{"array", "does not start with", file("[]", 0)},
	{"leading space", "does not start with", file(" {}", 0)},
	{"open object", "unexpected end of JSON", file(`{"x":{}`, 0)},
	{"trailing comma", "header: invalid character '}'", file(`{"__metadata__":{},}`, 0)},
	{"second value", "after top-level value", file(`{} {}`, 0)},
	{"NUL padding", "after top-level value", file("{}\x00\x00", 0)},
	{"bad UTF-8", "is not valid UTF-8", file("{\"\xff\":{\"dtype\":\"U8\",\"shape\":[0],\"data_offsets\":[0,0]}}", 0)},
	{"deep nesting", "exceeded max depth", file(`{"x":`+strings.Repeat("[", 20000)+strings.Repeat("]", 20000)+`}`, 0)},
	{"tensor twice", `"x" comes twice`, file(`{"x":{"dtype":"U8","shape":[0],"data_offsets":[0,0]},"x":{"dtype":"U8","shape":[1],"data_offsets":[0,1]}}`, 1)},
	{"tensor twice, escaped", `"x" comes twice`, file(`{"x":{"dtype":"U8","shape":[0],"data_offsets":[0,0]},"\u0078":{"dtype":"U8","shape":[1],"data_offsets":[0,1]}}`, 1)},
	{"field twice", `tensor "x": "shape" comes twice`, file(`{"x":{"dtype":"U8","shape":[0],"shape":[1],"data_offsets":[0,1]}}`, 1)},
	{"metadata twice", `"__metadata__" comes twice`, file(`{"__metadata__":{},"__metadata__":{}}`, 0)},
	{"metadata number", `__metadata__: "k": JSON number, want string`, file(`{"__metadata__":{"k":1}}`, 0)},
	{"metadata null value", `__metadata__: "k" is null`, file(`{"__metadata__":{"k":null}}`, 0)},
	{"metadata null", `__metadata__: got <nil>, want an object`, file(`{"__metadata__":null}`, 0)},

	{"tensor is a list", `tensor "x": got [, want an object`, file(`{"x":[]}`, 0)},
	{"tensor is a string", `tensor "x": got s, want an object`, file(`{"x":"s"}`, 0)},
	{"no dtype", `tensor "x": dtype "" is none of [BOOL U8`, file(`{"x":{"shape":[1],"data_offsets":[0,1]}}`, 1)},
	{"unknown dtype", `tensor "x": dtype "F7" is none of`, file(`{"x":{"dtype":"F7","shape":[1],"data_offsets":[0,1]}}`, 1)},
	{"lower-case dtype", `tensor "x": dtype "u8" is none of`, file(`{"x":{"dtype":"u8","shape":[1],"data_offsets":[0,1]}}`, 1)},
	{"upper-case field", `tensor "x": dtype ""`, file(`{"x":{"DTYPE":"U8","shape":[1],"data_offsets":[0,1]}}`, 1)},
	{"dtype of another type", `tensor "x": dtype: JSON number, want string`, file(`{"x":{"dtype":8,"shape":[1],"data_offsets":[0,1]}}`, 1)},
	{"shape of another type", `tensor "x": shape: JSON string, want array`, file(`{"x":{"dtype":"U8","shape":"1","data_offsets":[0,1]}}`, 1)},
	{"no shape", `tensor "x": shape is missing`, file(`{"x":{"dtype":"U8","data_offsets":[0,1]}}`, 1)},
	{"null shape", `tensor "x": shape is missing`, file(`{"x":{"dtype":"U8","shape":null,"data_offsets":[0,1]}}`, 1)},
	{"null dimension", `tensor "x": shape: null is not a whole number`, file(`{"x":{"dtype":"U8","shape":[null],"data_offsets":[0,0]}}`, 0)},
	{"negative dimension", `shape: -1 is not a whole number from 0 to`, file(`{"x":{"dtype":"U8","shape":[-1],"data_offsets":[0,1]}}`, 1)},
	{"fraction", `shape: 1.0 is not a whole number`, file(`{"x":{"dtype":"U8","shape":[1.0],"data_offsets":[0,1]}}`, 1)},
	{"string dimension", `shape: "1" is not a whole number`, file(`{"x":{"dtype":"U8","shape":["1"],"data_offsets":[0,1]}}`, 1)},
	{"dimension over int64", `shape: 9223372036854775808 is not a whole number`, file(`{"x":{"dtype":"U8","shape":[0,9223372036854775808],"data_offsets":[0,0]}}`, 0)},
	{"product wraps to 0", `needs more bytes than`, file(`{"x":{"dtype":"U8","shape":[1073741824,1073741824,16],"data_offsets":[0,0]}}`, 0)},
	{"product over int", `needs more bytes than`, file(`{"x":{"dtype":"F64","shape":[1073741824,1073741824],"data_offsets":[0,0]}}`, 0)},

	{"no offsets", "data_offsets has 0 numbers, want 2", file(`{"x":{"dtype":"U8","shape":[1]}}`, 1)},
	{"one offset", "data_offsets has 1 numbers, want 2", file(`{"x":{"dtype":"U8","shape":[1],"data_offsets":[0]}}`, 1)},
	{"three offsets", "data_offsets has 3 numbers, want 2", file(`{"x":{"dtype":"U8","shape":[1],"data_offsets":[0,1,2]}}`, 1)},
	{"negative offset", "data_offsets: -1 is not a whole number", file(`{"x":{"dtype":"U8","shape":[1],"data_offsets":[-1,0]}}`, 1)},
	{"reversed offsets", "shape [1] of U8 needs 1 bytes, offsets [1 0] give -1", file(`{"x":{"dtype":"U8","shape":[1],"data_offsets":[1,0]}}`, 1)},
	{"too few bytes", `tensor "x": shape [3 4] of F32 needs 48 bytes, offsets [0 40] give 40`, file(`{"x":{"dtype":"F32","shape":[3,4],"data_offsets":[0,40]}}`, 40)},
	{"too many bytes", `needs 48 bytes, offsets [0 50] give 50`, file(`{"x":{"dtype":"F32","shape":[3,4],"data_offsets":[0,50]}}`, 50)},
	{"past the end", `tensor "x": offset 48 is past the 47 bytes after the header`, file(`{"x":{"dtype":"F32","shape":[3,4],"data_offsets":[0,48]}}`, 47)},
	{"far past the end", `offset 2147483647 is past the 1 bytes`, file(`{"x":{"dtype":"U8","shape":[2147483647],"data_offsets":[0,2147483647]}}`, 1)},
	{"hole before", `tensor "x": no tensor covers the 1 bytes before its offset 1`, file(`{"x":{"dtype":"U8","shape":[1],"data_offsets":[1,2]}}`, 2)},
	{"hole between", `tensor "y": no tensor covers the 2 bytes before its offset 3`, file(`{"x":{"dtype":"U8","shape":[1],"data_offsets":[0,1]},"y":{"dtype":"U8","shape":[1],"data_offsets":[3,4]}}`, 4)},
	{"overlap", `tensor "y": offset 1 overlaps the tensor that ends at 2`, file(`{"x":{"dtype":"U8","shape":[2],"data_offsets":[0,2]},"y":{"dtype":"U8","shape":[2],"data_offsets":[1,3]}}`, 3)},
	{"same bytes", `overlaps the tensor that ends at 2`, file(`{"x":{"dtype":"U8","shape":[2],"data_offsets":[0,2]},"y":{"dtype":"U8","shape":[2],"data_offsets":[0,2]}}`, 2)},
	{"empty tensor inside another", `tensor "y": offset 1 overlaps`, file(`{"x":{"dtype":"U8","shape":[2],"data_offsets":[0,2]},"y":{"dtype":"U8","shape":[0],"data_offsets":[1,1]}}`, 2)},
	{"trailing bytes", "1 bytes follow the last tensor", file(`{"x":{"dtype":"U8","shape":[1],"data_offsets":[0,1]}}`, 2)},
	{"bytes without tensors", "3 bytes follow the last tensor", file("{}", 3)},
}

func TestParseErrors(t *testing.T) {
	for _, c := range malformed {
		t.Run(c.name, func(t *testing.T) {
			_, err := safetensors.Parse(c.data, "weights")
			if err == nil {
				t.Fatalf("no error, want %q", c.says)
			}
			if text := err.Error(); !strings.HasPrefix(text, "safetensors: weights: ") || !strings.Contains(text, c.says) {
				t.Errorf("error %q, want %q", text, c.says)
			}
		})
	}
}

// Whatever is cut off the end of a file, the rest is refused.
func TestParseTruncated(t *testing.T) {
	whole := file(`{"x":{"dtype":"U8","shape":[3],"data_offsets":[0,3]},"y":{"dtype":"F32","shape":[2],"data_offsets":[3,11]}}`, 11)
	parse(t, whole)
	for n := range whole {
		if _, err := safetensors.Parse(whole[:n], "cut"); err == nil {
			t.Errorf("the first %d of %d bytes were accepted", n, len(whole))
		}
	}
}

// A size in a header must be checked against the file before memory is allocated for it.
func TestParseAllocation(t *testing.T) {
	for _, c := range malformed {
		if len(c.data) > 1000 {
			continue
		}
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		_, _ = safetensors.Parse(c.data, "")
		runtime.ReadMemStats(&after)
		// The claims in the table are from 100 MiB up.
		if n := after.TotalAlloc - before.TotalAlloc; n > 1<<20 {
			t.Errorf("%s: %d bytes of file made Parse allocate %d", c.name, len(c.data), n)
		}
	}
}

func TestSizesBeyondInt(t *testing.T) {
	if strconv.IntSize > 32 {
		t.Skip("int holds every size that the header in this test gives")
	}
	for _, header := range []string{
		`{"x":{"dtype":"U8","shape":[2147483648],"data_offsets":[0,2147483648]}}`,
		`{"x":{"dtype":"U8","shape":[0,2147483648],"data_offsets":[0,0]}}`,
		`{"x":{"dtype":"U8","shape":[0],"data_offsets":[4294967296,4294967296]}}`,
	} {
		if _, err := safetensors.Parse(file(header, 0), ""); err == nil {
			t.Errorf("%s was accepted", header)
		}
	}
}

func write(t *testing.T, path string, data []byte) {
	t.Helper()
	if err := os.WriteFile(path, data, 0o644); err != nil {
		t.Fatal(err)
	}
}

func TestOpen(t *testing.T) {
	path := filepath.Join(t.TempDir(), "x.safetensors")
	write(t, path, file(`{"x":{"dtype":"U8","shape":[4],"data_offsets":[0,4]}}`, 4))
	f, err := safetensors.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]byte{0, 1, 2, 3}, tensor(t, f, "x").Data); diff != "" {
		t.Errorf("data (-want +got):\n%s", diff)
	}
	if _, err := f.Tensor("y"); !errors.Is(err, safetensors.ErrNotFound) {
		t.Errorf("missing tensor: error %v, want ErrNotFound", err)
	}
	for range 2 {
		if err := f.Close(); err != nil {
			t.Errorf("Close: %v", err)
		}
	}
	if _, err := f.Tensor("x"); !errors.Is(err, fs.ErrClosed) {
		t.Errorf("after Close: error %v, want fs.ErrClosed", err)
	}
	// Nothing holds the file any more, which Windows would mind.
	if err := os.Remove(path); err != nil {
		t.Error(err)
	}
}

func TestOpenErrors(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "x.safetensors")
	if _, err := safetensors.Open(path); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("missing file: error %v, want fs.ErrNotExist", err)
	}
	if _, err := safetensors.Open(dir); err == nil || !strings.Contains(err.Error(), dir+" is a directory, want a regular file") {
		t.Errorf("directory: error %v, want not a regular file", err)
	}
	for _, c := range malformed {
		write(t, path, c.data)
		_, err := safetensors.Open(path)
		if err == nil || !strings.Contains(err.Error(), path+": ") || !strings.Contains(err.Error(), c.says) {
			t.Errorf("%s: error %v, want %q", c.name, err, c.says)
		}
	}
}

func TestConcurrentReads(t *testing.T) {
	c, err := safetensors.OpenDir(golden.Dir(t, "llada"))
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	var wg sync.WaitGroup
	for range 4 {
		wg.Go(func() {
			for _, name := range c.Names() {
				x, err := c.Tensor(name)
				if err == nil {
					_, err = x.Float32s()
				}
				if err != nil {
					t.Error(err)
				}
			}
		})
	}
	wg.Wait()
}

func TestFloat32s(t *testing.T) {
	type I = safetensors.Info
	for _, c := range []struct {
		dtype quant.DType
		data  []byte
		want  []float32
	}{
		{quant.F32, []byte{0, 0, 128, 63, 0, 0, 128, 255}, []float32{1, float32(math.Inf(-1))}},
		{quant.BF16, []byte{128, 63, 128, 255}, []float32{1, float32(math.Inf(-1))}},
		{quant.F16, []byte{0, 60, 0, 252}, []float32{1, float32(math.Inf(-1))}},
		{quant.F16, []byte{}, []float32{}},
	} {
		n := len(c.want)
		got, err := safetensors.Tensor{Info: I{"x", c.dtype, []int{n}}, Data: c.data}.Float32s()
		if err != nil || !slices.Equal(got, c.want) {
			t.Errorf("%s %v: got %v, %v, want %v", c.dtype, c.data, got, err, c.want)
		}
	}
}

func TestInt32s(t *testing.T) {
	x := safetensors.Tensor{Info: safetensors.Info{Name: "x", DType: quant.I32, Shape: []int{2}}, Data: []byte{1, 2, 0, 0, 255, 255, 255, 255}}
	if got, err := x.Int32s(); err != nil || !slices.Equal(got, []int32{513, -1}) {
		t.Errorf("got %v, %v, want [513 -1]", got, err)
	}
}

func TestElementErrors(t *testing.T) {
	for _, c := range []struct {
		info safetensors.Info
		size int
		says string
	}{
		{safetensors.Info{Name: "x", DType: quant.F64, Shape: []int{1}}, 8, `tensor "x" is F64, want`},
		{safetensors.Info{Name: "x", DType: quant.DType(99), Shape: []int{1}}, 8, `tensor "x": dtype "DType(99)" is none of`},
		{safetensors.Info{Name: "x", DType: quant.F32, Shape: []int{2}}, 7, `tensor "x": shape [2] of F32 needs 8 bytes, data has 7`},
		{safetensors.Info{Name: "x", DType: quant.I32, Shape: []int{-2}}, 8, `tensor "x": shape [-2] has a negative dimension`},
	} {
		x := safetensors.Tensor{Info: c.info, Data: make([]byte, c.size)}
		if _, err := x.Float32s(); err == nil || !strings.Contains(err.Error(), c.says) {
			t.Errorf("Float32s: error %v, want %q", err, c.says)
		}
		if _, err := x.Int32s(); err == nil || !strings.Contains(err.Error(), c.says) {
			t.Errorf("Int32s: error %v, want %q", err, c.says)
		}
	}
	f32 := safetensors.FromFloat32s("x", []int{1}, []float32{1})
	if _, err := f32.Int32s(); err == nil || !strings.Contains(err.Error(), `tensor "x" is F32, want I32`) {
		t.Errorf("Int32s of F32: error %v", err)
	}
}

// Every dtype has a size, and an element of each can be read back.
func TestDTypes(t *testing.T) {
	for name, size := range map[string]int{
		"BOOL": 1, "U8": 1, "I8": 1, "F8_E5M2": 1, "F8_E4M3": 1, "F8_E8M0": 1,
		"I16": 2, "U16": 2, "F16": 2, "BF16": 2,
		"I32": 4, "U32": 4, "F32": 4,
		"C64": 8, "F64": 8, "I64": 8, "U64": 8,
	} {
		f := parse(t, file(fmt.Sprintf(`{"x":{"dtype":%q,"shape":[3],"data_offsets":[0,%d]}}`, name, 3*size), 3*size))
		if x := tensor(t, f, "x"); x.DType.String() != name || x.DType.BlockBytes() != size || len(x.Data) != 3*size {
			t.Errorf("%s: got %v of %d bytes, %d for each", name, x.DType, len(x.Data), x.DType.BlockBytes())
		}
	}
	for _, name := range []string{"Q8_0", "f32", "DType(99)", ""} { // GGUF's, and none
		_, err := safetensors.Parse(file(fmt.Sprintf(`{"x":{"dtype":%q,"shape":[32],"data_offsets":[0,34]}}`, name), 34), "f")
		if err == nil || !strings.Contains(err.Error(), fmt.Sprintf(`tensor "x": dtype %q is none of [BOOL U8 `, name)) {
			t.Errorf("%q: error %v", name, err)
		}
	}
}

// all returns every tensor of s in the order of Names.
func all(t testing.TB, s safetensors.Source) []safetensors.Tensor {
	t.Helper()
	var tensors []safetensors.Tensor
	for _, name := range s.Names() {
		x, err := s.Tensor(name)
		if err != nil {
			t.Fatal(err)
		}
		tensors = append(tensors, x)
	}
	return tensors
}
