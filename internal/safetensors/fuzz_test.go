package safetensors_test

import (
	"encoding/binary"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/pulsecol/pulsecol/internal/safetensors"
)

func FuzzParse(f *testing.F) {
	f.Add(file("{}", 0))
	f.Add(file(`{"__metadata__":{"format":"pt"},"a":{"dtype":"F32","shape":[2,2],"data_offsets":[0,16]},"b":{"dtype":"BF16","shape":[],"data_offsets":[16,18]},"e":{"dtype":"I64","shape":[0,7],"data_offsets":[18,18]}}  `, 18))
	for _, c := range malformed {
		f.Add(c.data)
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		file, err := safetensors.Parse(data, "fuzz")
		if err != nil {
			if !strings.HasPrefix(err.Error(), "safetensors: fuzz: ") {
				t.Errorf("error %q does not name the file", err)
			}
			return
		}
		// The tensors are what they claim to be and share the file out
		// among them, so writing them again gives the same tensors.
		tensors := all(t, file)
		total := 0
		for _, x := range tensors {
			n := x.DType.BlockBytes()
			for _, d := range x.Shape {
				n *= d
			}
			if n != len(x.Data) {
				t.Fatalf("tensor %q: shape %v of %s in %d bytes", x.Name, x.Shape, x.DType, len(x.Data))
			}
			total += n
		}
		if header := int(binary.LittleEndian.Uint64(data)); 8+header+total != len(data) {
			t.Fatalf("header of %d bytes and tensors of %d make no file of %d", header, total, len(data))
		}
		if diff := cmp.Diff(tensors, all(t, rewrite(t, tensors, file.Metadata()))); diff != "" {
			t.Errorf("after writing again (-want +got):\n%s", diff)
		}
	})
}

// FuzzIndex: for any index, the shards are files of its folder, and errors name a file in
// it.
func FuzzIndex(f *testing.F) {
	for _, text := range []string{
		`{"metadata": {"total_size": 1}, "weight_map": {"a": "1.safetensors"}}`, `{"weight_map": {"a": "../1.safetensors"}}`,
		`{"weight_map": {"a": 1, "b": null}}`, `{"weight_map": {"a": "1.safetensors", "a": "2"}}`, `{"weight_map": []}`, `{"weight_map": null}`, "[", "",
	} {
		f.Add([]byte(text))
	}
	dir := f.TempDir()
	x := safetensors.FromFloat32s("a", nil, []float32{1})
	if err := safetensors.WriteFile(filepath.Join(dir, "1.safetensors"), []safetensors.Tensor{x}, nil); err != nil {
		f.Fatal(err)
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		if err := os.WriteFile(filepath.Join(dir, safetensors.IndexFile), text, 0o600); err != nil {
			t.Fatal(err)
		}
		c, err := safetensors.OpenDir(dir)
		if err != nil {
			if !strings.HasPrefix(err.Error(), "safetensors: "+dir) || errors.Is(err, fs.ErrNotExist) {
				t.Fatalf("error %q", err)
			}
			return
		}
		defer c.Close()
		if names := c.Names(); len(names) > 1 || len(names) == 1 && names[0] != "a" {
			t.Fatalf("names %q", names)
		}
	})
}
