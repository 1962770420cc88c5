package gguf_test

import (
	"encoding/binary"
	"math"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"github.com/pulsecol/pulsecol/internal/gguf"
	"github.com/pulsecol/pulsecol/internal/gguf/gguftest"
)

// lie is a file that is wrong in one way.
type lie struct {
	name string
	data []byte
	want string // of the error, after the file's name
}

// lies returns files with every kind of lie.
func lies() []lie {
	str, key, tensor, header := gguftest.AppendString, gguftest.AppendKey, gguftest.AppendTensor, gguftest.Header
	u32, u64 := binary.LittleEndian.AppendUint32, binary.LittleEndian.AppendUint64
	whole := gguftest.File(values, tensors)
	oneKey := func(rest ...byte) []byte { return append(str(header(3, 0, 1), "k"), rest...) }
	array := func(element uint32, count uint64) []byte { return oneKey(u64(u32(u32(nil, 9), element), count)...) }
	one := func(entry []byte, data int) []byte {
		return append(append(header(3, 1, 0), entry...), make([]byte, data)...)
	}
	align := func(n any) []byte {
		return gguftest.File([]gguftest.Key{{Name: "general.alignment", Value: n}}, nil)
	}
	two := func(second uint64) []byte {
		b := tensor(tensor(header(3, 2, 0), "a", 0, 0, 8), "b", 0, second, 8)
		return append(b, make([]byte, 200)...)
	}
	nested := func(depth int) []byte {
		b := oneKey(u32(nil, 9)...)
		for range depth {
			b = u64(u32(b, 9), 1)
		}
		return u64(u32(b, 0), 0)
	}
	patched := func(at int, with ...byte) []byte {
		b := append([]byte(nil), whole...)
		copy(b[at:], with)
		return b
	}
	return []lie{
		{"empty", nil, "the magic number takes 4 bytes at offset 0, where only 0 follow"},
		{"magic", []byte("GGML....."), `begins with "GGML", want "GGUF": not a GGUF file?`},
		{"version 1", patched(4, 1), "version is 1, want 2 or 3"},
		{"version 4", patched(4, 4), "version is 4, want 2 or 3"},
		{"big endian", patched(4, 0, 0, 0, 3), "version is 0x3000000: the file is big-endian, want little-endian"},
		{"no counts", whole[:8], "the number of tensors takes 8 bytes at offset 8, where only 0 follow"},
		{"2^63 tensors", header(3, 1<<63, 0), "the number of tensors is 9223372036854775808, want at most 65536"},
		{"-1 tensors", header(3, math.MaxUint64, 0), "the number of tensors is 18446744073709551615, want at most 65536"},
		{"2^63 keys", header(3, 0, 1<<63), "the number of keys is 9223372036854775808, want at most 65536"},
		{"keys missing", header(3, 0, 1), "key 1 of 1: the length of the key's name takes 8 bytes at offset 24, where only 0 follow"},
		{"key's length", u64(header(3, 0, 1), 1<<63), "key 1 of 1: the key's name takes 9223372036854775808 bytes at offset 32, where only 0 follow"},
		{"empty key", str(header(3, 0, 1), ""), "key 1 of 1: the key's name has 0 bytes, want 1 to 65536"},
		{"long key", str(header(3, 0, 1), strings.Repeat("k", 1<<16+1)), "key 1 of 1: the key's name has 65537 bytes, want 1 to 65536"},
		{"key not UTF-8", str(header(3, 0, 1), "\xff"), `key 1 of 1: the name "\xff" is not UTF-8`},
		{"key twice", key(key(header(3, 0, 2), gguftest.Key{Name: "k", Value: true}), gguftest.Key{Name: "k", Value: true}), `key 2 of 2: "k" comes twice`},
		{"value's type", oneKey(u32(nil, 13)...), `key 1 of 1: "k": value type 13 is none of 0 to 12`},
		{"bool", oneKey(append(u32(nil, 7), 2)...), `key 1 of 1: "k": the bool at offset 37 is 2, want 0 or 1`},
		{"short value", oneKey(append(u32(nil, 10), 2)...), `key 1 of 1: "k": a value of type uint64 takes 8 bytes at offset 37, where only 1 follow`},
		{"string's length", oneKey(u64(u32(nil, 8), 1<<63-1)...), `key 1 of 1: "k": a string takes 9223372036854775807 bytes at offset 45, where only 0 follow`},
		{"array's length", array(5, 1<<40), `key 1 of 1: "k": an array of 1099511627776 elements of type int32 takes 4398046511104 bytes at offset 49, where only 0 follow`},
		{"array's length times size", array(10, 1<<63), `key 1 of 1: "k": an array of 9223372036854775808 elements of type uint64: 9223372036854775808 times 8 is above 9223372036854775807`},
		{"array of strings", array(8, 1<<63), `key 1 of 1: "k": element 0 of an array of 9223372036854775808: the length of a string takes 8 bytes at offset 49, where only 0 follow`},
		{"array of bools", array(7, 1<<63), `key 1 of 1: "k": element 0 of an array of 9223372036854775808: a bool takes 1 bytes at offset 49`},
		{"array's type", array(77, 0), `key 1 of 1: "k": value type 77 is none of 0 to 12`},
		{"deep arrays", nested(4), "arrays are nested deeper than 4"},
		{"arrays without end", nested(100000), "arrays are nested deeper than 4"},
		{"alignment's type", align("32"), `key "general.alignment" is of type string, want an integer`},
		{"alignment 0", align(uint32(0)), `key "general.alignment" is 0, want a power of 2 from 1 to 1048576`},
		{"alignment 48", align(uint32(48)), `key "general.alignment" is 48, want a power of 2 from 1 to 1048576`},
		{"alignment 2^31", align(uint32(1 << 31)), `key "general.alignment" is 2147483648, want a power of 2 from 1 to 1048576`},
		{"tensors missing", header(3, 2, 0), "tensor 1 of 2: the length of the tensor's name takes 8 bytes"},
		{"empty name", one(tensor(nil, "", 0, 0, 8), 99), "tensor 1 of 1: the tensor's name has 0 bytes, want 1 to 64"},
		{"long name", one(tensor(nil, strings.Repeat("n", 65), 0, 0, 8), 99), "tensor 1 of 1: the tensor's name has 65 bytes, want 1 to 64"},
		{"name not UTF-8", one(tensor(nil, "\xc3", 0, 0, 8), 99), `tensor 1 of 1: the name "\xc3" is not UTF-8`},
		{"no dimension", one(tensor(nil, "a", 0, 0), 99), `tensor 1 of 1: "a": the number of dimensions is 0, want 1 to 4`},
		{"2^32-1 dimensions", one(u32(str(nil, "a"), math.MaxUint32), 99), `tensor 1 of 1: "a": the number of dimensions is 4294967295, want 1 to 4`},
		{"dimension 0", one(tensor(nil, "a", 0, 0, 8, 0), 99), `tensor 1 of 1: "a": a dimension is 0, want 1 to`},
		{"dimension -1", one(tensor(nil, "a", 0, 0, -1, 8), 99), `tensor 1 of 1: "a": a dimension is -1, want 1 to`},
		{"dimension -2^63", one(tensor(nil, "a", 0, 0, math.MinInt, 8), 99), `tensor 1 of 1: "a": a dimension is -`},
		{"product of dimensions", one(tensor(nil, "a", 0, 0, 1<<31-1, 1<<31-1, 1<<31-1), 99), `tensor "a": shape [2147483647 2147483647 2147483647] of F32: `},
		{"type not read", one(tensor(nil, "a", 10, 0, 256), 99), `tensor 1 of 1: "a": type 10 (Q2_K) is not supported: want one of F32, BF16, F16, Q8_0`},
		{"unknown type", one(tensor(nil, "a", math.MaxUint32, 0, 256), 99), `tensor 1 of 1: "a": type 4294967295 (unknown) is not supported`},
		{"part of a block", one(tensor(nil, "a", 8, 0, 4, 16), 99), `tensor 1 of 1: "a": rows have 16 elements, want a multiple of the 32 of a block of Q8_0`},
		{"no data", one(tensor(nil, "a", 0, 0, 8), 0), "the tensors' data begins at offset 64, beyond the file's 57 bytes: file cut short?"},
		{"short data", one(tensor(nil, "a", 0, 0, 8), 7+31), `tensor "a": shape [8] of F32 takes 32 bytes at offset 0 of the data, where only 31 follow: file cut short?`},
		{"2^60 elements", one(tensor(nil, "a", 0, 0, 1<<30, 1<<30), 99), `tensor "a": shape [1073741824 1073741824] of F32 takes 4611686018427387904 bytes at offset 0 of the data`},
		{"offset of the first", one(tensor(nil, "a", 0, 32, 8), 99), `tensor "a": offset is 32, want 0, where the tensors before it end`},
		{"overlap", two(0), `tensor "b": offset is 0, want 32, where the tensors before it end`},
		{"not aligned", two(33), `tensor "b": offset is 33, want 32, where the tensors before it end`},
		{"gap", two(64), `tensor "b": offset is 64, want 32, where the tensors before it end`},
		{"offset 2^63", two(1 << 63), `tensor "b": offset is 9223372036854775808, want 32, where the tensors before it end`},
		{"name twice", append(tensor(tensor(header(3, 2, 0), "a", 0, 0, 8), "a", 0, 32, 8), make([]byte, 200)...), `tensor "a" comes twice`},
		{"split in memory", gguftest.File([]gguftest.Key{{Name: "split.count", Value: uint16(2)}}, nil), `key "split.count" is 2, want 1 for a file in memory`},
	}
}

// TestLies: every lie is one error that names the file, the field, its value and what is
// allowed, and takes no memory for what the file claims to have.
func TestLies(t *testing.T) {
	for _, c := range lies() {
		t.Run(c.name, func(t *testing.T) {
			var before, after runtime.MemStats
			runtime.ReadMemStats(&before)
			_, err := gguf.Parse(c.data, "dir/m.gguf")
			runtime.ReadMemStats(&after)
			if err == nil || !strings.HasPrefix(err.Error(), "gguf: dir/m.gguf: ") || !strings.Contains(err.Error(), c.want) || strings.Contains(err.Error(), "\n") {
				t.Errorf("error %v\nwant  %s", err, c.want)
			}
			if took := after.TotalAlloc - before.TotalAlloc; took > uint64(20*len(c.data)+64<<10) {
				t.Errorf("%d bytes were allocated for a file of %d", took, len(c.data))
			}
		})
	}
}

// TestCutShort: a file that ends anywhere before its last tensor does is an error.
func TestCutShort(t *testing.T) {
	file := gguftest.File(values, tensors)
	end := len(file) - 16 // the padding of a tensor of 144 bytes
	if _, err := gguf.Parse(file[:end], "test"); err != nil {
		t.Errorf("without padding: %v", err)
	}
	for n := range end {
		if _, err := gguf.Parse(file[:n], "test"); err == nil {
			t.Fatalf("no error for %d of %d bytes", n, end)
		}
	}
}

// TestHole: a file that is large because of a hole does not take its size in memory.
func TestHole(t *testing.T) {
	path := filepath.Join(t.TempDir(), "m.gguf")
	b := gguftest.AppendString(gguftest.Header(3, 0, 1), "k")
	b = binary.LittleEndian.AppendUint64(binary.LittleEndian.AppendUint32(b, 8), 1<<30)
	if err := os.WriteFile(path, b, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Truncate(path, 2<<30); err != nil {
		t.Skip(err)
	}
	if _, err := gguf.Open(path); err == nil || !strings.Contains(err.Error(), "want at most 536870912 bytes of metadata") {
		t.Errorf("error %v", err)
	}
}

func FuzzOpen(f *testing.F) {
	f.Add(gguftest.File(values, tensors))
	f.Add(splitFile(0, 1, 1, "a"))
	for _, c := range lies() {
		if len(c.data) < 4096 {
			f.Add(c.data)
		}
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		file, err := gguf.Parse(data, "m.gguf")
		if err != nil {
			if !strings.HasPrefix(err.Error(), "gguf: m.gguf: ") {
				t.Fatalf("error %q does not name the file", err)
			}
			return
		}
		defer file.Close()
		total := 0
		for _, name := range file.Names() {
			x, err := file.Tensor(name)
			if err != nil {
				t.Fatal(err)
			}
			n := 1
			for _, d := range x.Shape {
				n *= d
			}
			if !x.DType.OfWeights() || x.DType.Bytes(n) != len(x.Data) {
				t.Fatalf("tensor %q: shape %v of %v in %d bytes", name, x.Shape, x.DType, len(x.Data))
			}
			total += len(x.Data)
			row := x.Shape[len(x.Shape)-1]
			x.DType.Decode(make([]float32, row), x.Data[:x.DType.Bytes(row)], 0)
		}
		if total > len(data) {
			t.Fatalf("tensors of %d bytes in a file of %d", total, len(data))
		}
		readAll(t, file, len(data))
	})
}

// readAll reads the keys of a file as every type.
func readAll(t *testing.T, f *gguf.File, size int) {
	for _, key := range f.Keys() {
		read := 0
		for _, get := range []func() (int, bool, error){
			func() (int, bool, error) { _, ok, err := f.Int(key); return 8, ok, err },
			func() (int, bool, error) { _, ok, err := f.Float(key); return 4, ok, err },
			func() (int, bool, error) { _, ok, err := f.Bool(key); return 1, ok, err },
			func() (int, bool, error) { s, ok, err := f.String(key); return len(s), ok, err },
			func() (int, bool, error) { s, ok, err := f.Strings(key); return len(s), ok, err },
			func() (int, bool, error) { n, ok, err := f.Ints(key); return len(n), ok, err },
		} {
			n, ok, err := get()
			if !ok {
				t.Fatalf("no key %q", key)
			}
			if err == nil {
				read++
				if n > size {
					t.Fatalf("key %q has %d elements or bytes in a file of %d", key, n, size)
				}
			} else if !strings.HasPrefix(err.Error(), "gguf: "+f.Name()+": key ") {
				t.Fatalf("error %q does not name the file and the key", err)
			}
		}
		if read > 1 {
			t.Fatalf("key %q reads as %d types", key, read)
		}
	}
}
