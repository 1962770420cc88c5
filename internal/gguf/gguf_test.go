package gguf_test

import (
	"encoding/binary"
	"errors"
	"io/fs"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/pulsecol/pulsecol/internal/gguf"
	"github.com/pulsecol/pulsecol/internal/gguf/gguftest"
	"github.com/pulsecol/pulsecol/internal/quant"
	"github.com/pulsecol/pulsecol/internal/safetensors"
)

// values are keys of every type.
var values = []gguftest.Key{
	{Name: "u8", Value: uint8(200)}, {Name: "i8", Value: int8(-100)}, {Name: "u16", Value: uint16(60000)}, {Name: "i16", Value: int16(-30000)},
	{Name: "u32", Value: uint32(4e9)}, {Name: "i32", Value: int32(-2e9)}, {Name: "u64", Value: uint64(1 << 62)}, {Name: "i64", Value: int64(math.MinInt64)},
	{Name: "f32", Value: float32(1.5)}, {Name: "f64", Value: 1e300}, {Name: "yes", Value: true}, {Name: "no", Value: false}, {Name: "text", Value: "ä\x00\xff"},
	{Name: "strings", Value: []string{"a", "", "bc"}}, {Name: "ints", Value: []int32{1, -2}}, {Name: "empty", Value: []any{}},
	{Name: "floats", Value: []float32{1}}, {Name: "bools", Value: []bool{true, false}},
	{Name: "nested", Value: []any{[]any{[]any{"deep"}, []string{}}, []any{}}}, {Name: "huge", Value: uint64(1 << 63)},
}

var tensors = []gguftest.Tensor{
	{Name: "b", Type: quant.F32, Shape: []int{2, 3}, Data: gguftest.Float32s([]float32{1, 2, 3, 4, 5, 6})},
	{Name: "a", Type: quant.Q8_0, Shape: []int{1, 64}, Data: bytesOf(68, 7)},
	{Name: "c", Type: quant.Q4_K, Shape: []int{256}, Data: bytesOf(144, 9)},
}

func bytesOf(n int, b byte) []byte { return slices.Repeat([]byte{b}, n) }

func TestParse(t *testing.T) {
	for _, version := range []byte{2, 3} {
		file := gguftest.File(values, tensors)
		file[4] = version
		f, err := gguf.Parse(file, "test")
		if err != nil {
			t.Fatal(err)
		}
		if f.Version() != int(version) || f.Parts() != 1 {
			t.Errorf("version %d, %d parts", f.Version(), f.Parts())
		}
		if keys := f.Keys(); len(keys) != len(values) || keys[0] != "u8" || keys[len(keys)-1] != "huge" {
			t.Errorf("keys %q", keys)
		}
		if names := f.Names(); !slices.Equal(names, []string{"a", "b", "c"}) {
			t.Errorf("names %q", names)
		}
		for _, want := range tensors {
			got, err := f.Tensor(want.Name)
			if err != nil {
				t.Fatal(err)
			}
			info := safetensors.Info{Name: want.Name, DType: want.Type, Shape: want.Shape}
			if diff := cmp.Diff(safetensors.Tensor{Info: info, Data: want.Data}, got); diff != "" {
				t.Errorf("tensor %s (-want +got):\n%s", want.Name, diff)
			}
		}
		if _, err := f.Tensor("d"); !errors.Is(err, safetensors.ErrNotFound) {
			t.Errorf("error %v, want safetensors.ErrNotFound", err)
		}
		if err := f.Close(); err != nil {
			t.Error(err)
		}
		if _, err := f.Tensor("a"); !errors.Is(err, fs.ErrClosed) {
			t.Errorf("error %v, want fs.ErrClosed", err)
		}
	}
}

func TestValues(t *testing.T) {
	f, err := gguf.Parse(gguftest.File(values, nil), "test")
	if err != nil {
		t.Fatal(err)
	}
	for key, want := range map[string]int64{"u8": 200, "i8": -100, "u16": 60000, "i16": -30000, "u32": 4e9, "i32": -2e9, "u64": 1 << 62, "i64": math.MinInt64} {
		if n, ok, err := f.Int(key); n != want || !ok || err != nil {
			t.Errorf("%s: %d, %v, %v", key, n, ok, err)
		}
	}
	for key, want := range map[string]float64{"f32": 1.5, "f64": 1e300} {
		if x, ok, err := f.Float(key); x != want || !ok || err != nil {
			t.Errorf("%s: %g, %v, %v", key, x, ok, err)
		}
	}
	for key, want := range map[string]bool{"yes": true, "no": false} {
		if b, ok, err := f.Bool(key); b != want || !ok || err != nil {
			t.Errorf("%s: %v, %v, %v", key, b, ok, err)
		}
	}
	if s, ok, err := f.String("text"); s != "ä\x00\xff" || !ok || err != nil {
		t.Errorf("text: %q, %v, %v", s, ok, err)
	}
	if s, ok, err := f.Strings("strings"); !slices.Equal(s, []string{"a", "", "bc"}) || !ok || err != nil {
		t.Errorf("strings: %q, %v, %v", s, ok, err)
	}
	if n, ok, err := f.Ints("ints"); !slices.Equal(n, []int64{1, -2}) || !ok || err != nil {
		t.Errorf("ints: %v, %v, %v", n, ok, err)
	}
	if _, ok, err := f.Int("none"); ok || err != nil {
		t.Errorf("none: %v, %v", ok, err)
	}
	for _, c := range []struct {
		get  func() error
		want string
	}{
		{func() error { _, _, err := f.Int("text"); return err }, `gguf: test: key "text" is of type string, want an integer`},
		{func() error { _, _, err := f.Int("huge"); return err }, `gguf: test: key "huge" is 9223372036854775808, want at most 9223372036854775807`},
		{func() error { _, _, err := f.Float("u8"); return err }, `gguf: test: key "u8" is of type uint8, want float32 or float64`},
		{func() error { _, _, err := f.Bool("u8"); return err }, `gguf: test: key "u8" is of type uint8, want bool`},
		{func() error { _, _, err := f.String("u8"); return err }, `gguf: test: key "u8" is of type uint8, want string`},
		{func() error { _, _, err := f.Strings("u8"); return err }, `gguf: test: key "u8" is of type uint8, want an array of type string`},
		{func() error { _, _, err := f.Strings("ints"); return err }, `gguf: test: key "ints" is an array of type int32, want type string`},
		{func() error { _, _, err := f.Ints("nested"); return err }, `gguf: test: key "nested" is an array of type array, want type int32`},
	} {
		if err := c.get(); err == nil || err.Error() != c.want {
			t.Errorf("error %v, want %s", err, c.want)
		}
	}
}

// write writes files to a folder and returns its path.
func write(t *testing.T, files map[string][]byte) string {
	t.Helper()
	dir := t.TempDir()
	for name, data := range files {
		if err := os.WriteFile(filepath.Join(dir, name), data, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

// splitFile is one part of a split file.
func splitFile(number, count, total int, names ...string) []byte {
	var list []gguftest.Tensor
	for _, name := range names {
		list = append(list, gguftest.Tensor{Name: name, Type: quant.F32, Shape: []int{1}, Data: gguftest.Float32s([]float32{float32(number)})})
	}
	return gguftest.File([]gguftest.Key{
		{Name: "split.no", Value: uint16(number)}, {Name: "split.count", Value: uint16(count)}, {Name: "split.tensors.count", Value: int32(total)},
		{Name: "part", Value: uint32(number)},
	}, list)
}

func TestSplit(t *testing.T) {
	dir := write(t, map[string][]byte{
		"m-00001-of-00003.gguf": splitFile(0, 3, 4),
		"m-00002-of-00003.gguf": splitFile(1, 3, 4, "a", "c"),
		"m-00003-of-00003.gguf": splitFile(2, 3, 4, "b", "d"),
	})
	f, err := gguf.Open(filepath.Join(dir, "m-00001-of-00003.gguf"))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if names := f.Names(); !slices.Equal(names, []string{"a", "b", "c", "d"}) || f.Parts() != 3 {
		t.Errorf("names %q in %d parts", names, f.Parts())
	}
	if n, _, _ := f.Int("part"); n != 0 {
		t.Errorf("metadata of part %d", n)
	}
	for name, part := range map[string]float32{"a": 1, "b": 2, "c": 1, "d": 2} {
		x, err := f.Tensor(name)
		if err != nil || math.Float32frombits(binary.LittleEndian.Uint32(x.Data)) != part {
			t.Errorf("%s: %v, %v, want of part %g", name, x, err, part)
		}
	}
	if err := f.Intact(); err != nil {
		t.Error(err)
	}
}

func TestSplitErrors(t *testing.T) {
	whole := func() map[string][]byte {
		return map[string][]byte{"m-00001-of-00002.gguf": splitFile(0, 2, 2, "a"), "m-00002-of-00002.gguf": splitFile(1, 2, 2, "b")}
	}
	for _, c := range []struct {
		open, change string
		data         []byte // nil removes the file
		want         string
	}{
		{"m-00001-of-00002.gguf", "m-00002-of-00002.gguf", nil, "DIR/m-00001-of-00002.gguf: part 2 of 2, m-00002-of-00002.gguf, is missing"},
		{"m-00002-of-00002.gguf", "", nil, `DIR/m-00002-of-00002.gguf: key "split.no" is 1, want 0; open the first part, m-00001-of-00002.gguf`},
		{"m-00001-of-00002.gguf", "m-00002-of-00002.gguf", splitFile(0, 2, 2, "a"), `DIR/m-00002-of-00002.gguf: key "split.no" is 0, want 1`},
		{"m-00001-of-00002.gguf", "m-00002-of-00002.gguf", splitFile(1, 3, 2, "b"), `DIR/m-00002-of-00002.gguf: key "split.count" is 3, want 2`},
		{"m-00001-of-00002.gguf", "m-00002-of-00002.gguf", gguftest.File(nil, tensors), `DIR/m-00002-of-00002.gguf: key "split.no" is -1, want 1`},
		{"m-00001-of-00002.gguf", "m-00002-of-00002.gguf", splitFile(1, 2, 2, "a"), `DIR/m-00001-of-00002.gguf: tensor "a" comes twice`},
		{"m-00001-of-00002.gguf", "m-00002-of-00002.gguf", splitFile(1, 2, 2), `DIR/m-00001-of-00002.gguf: key "split.tensors.count" is 2, but the 2 parts have 1 tensors`},
		{"m-00001-of-00002.gguf", "m-00002-of-00002.gguf", []byte("GGUF"), `DIR/m-00002-of-00002.gguf: the version takes 4 bytes at offset 4, where only 0 follow`},
		{"m-00001-of-00002.gguf", "m-00001-of-00002.gguf", splitFile(0, 65535, 2, "a"), `DIR/m-00001-of-00002.gguf: key "split.count" is 65535, want the name of the file to end with -00001-of-65535.gguf`},
		{"m-00002-of-00002.gguf", "m-00002-of-00002.gguf", splitFile(0, 2, 2, "a"), `DIR/m-00002-of-00002.gguf: the name says part 2 and key "split.no" says the first`},
		{"m.gguf", "m.gguf", splitFile(0, 2, 2, "a"), `DIR/m.gguf: key "split.count" is 2, want the name of the file to end with -00001-of-00002.gguf`},
		{"m.gguf", "m.gguf", gguftest.File([]gguftest.Key{{Name: "split.count", Value: "2"}}, nil), `DIR/m.gguf: key "split.count" is of type string, want an integer`},
		{"m.gguf", "m.gguf", gguftest.File([]gguftest.Key{{Name: "split.count", Value: int64(1 << 62)}}, nil), `DIR/m.gguf: key "split.count" is 4611686018427387904, want 0 to 65535`},
		{"m.gguf", "m.gguf", gguftest.File([]gguftest.Key{{Name: "split.tensors.count", Value: int32(-1)}}, nil), `DIR/m.gguf: key "split.tensors.count" is -1, want 0 to 65536`},
	} {
		files := whole()
		if files[c.change] = c.data; c.data == nil {
			delete(files, c.change)
		}
		dir := write(t, files)
		_, err := gguf.Open(filepath.Join(dir, c.open))
		if want := "gguf: " + strings.ReplaceAll(c.want, "DIR/", dir+string(filepath.Separator)); err == nil || !strings.HasPrefix(err.Error(), want) {
			t.Errorf("error %v\nwant  %s", err, want)
		}
		if errors.Is(err, fs.ErrNotExist) {
			t.Errorf("%v is fs.ErrNotExist", err)
		}
	}
}

func TestIs(t *testing.T) {
	dir := write(t, map[string][]byte{"a": gguftest.File(nil, nil), "b": []byte("GGU"), "c": []byte("{}{}{}"), "d": nil, "e.gguf": nil})
	if err := os.Mkdir(filepath.Join(dir, "f.gguf"), 0o700); err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string]bool{
		"a": true, "b": false, "c": false, "d": false, "e.gguf": true, "f.gguf": false, "none": false, "none.GGUF": true, ".": false,
	} {
		if got := gguf.Is(filepath.Join(dir, name)); got != want {
			t.Errorf("%s: %v", name, got)
		}
	}
}

func TestOpenFiles(t *testing.T) {
	dir := write(t, map[string][]byte{"m.gguf": gguftest.File(values, tensors)})
	path := filepath.Join(dir, "m.gguf")
	f, err := gguf.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	for range 2 {
		if err := f.Close(); err != nil {
			t.Error(err)
		}
	}
	if _, err := gguf.Open(path + "x"); !errors.Is(err, fs.ErrNotExist) || !strings.Contains(err.Error(), path+"x") {
		t.Errorf("error %v, want fs.ErrNotExist", err)
	}
	if _, err := gguf.Open(dir); err == nil || !strings.Contains(err.Error(), "is a directory, want a regular file") {
		t.Errorf("a folder: error %v", err)
	}
}
