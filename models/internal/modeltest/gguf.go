package modeltest

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/pulsecol/pulsecol/internal/gguf/gguftest"
	"github.com/pulsecol/pulsecol/internal/golden"
	"github.com/pulsecol/pulsecol/internal/safetensors"
	"github.com/pulsecol/pulsecol/internal/tol"
)

// GGUFFiles returns the reference files of a pattern: those of testdata, and those of the
// folder that the environment variable PULSECOL_GGUF names, which has the same layout.
func GGUFFiles(t testing.TB, pattern string) []string {
	t.Helper()
	var files []string
	for _, dir := range []string{golden.Dir(t, "gguf"), os.Getenv("PULSECOL_GGUF")} {
		if dir == "" {
			continue
		}
		found, err := filepath.Glob(filepath.Join(dir, pattern))
		if err != nil {
			t.Fatal(err)
		}
		files = append(files, found...)
	}
	return slices.DeleteFunc(files, func(path string) bool { return strings.HasSuffix(path, ".vocab.gguf") })
}

// GGUFLogitsEqualReference holds the files of a model to the logits of a float64 forward
// pass with the same weights.
func GGUFLogitsEqualReference(t *testing.T, model string, open func(path string) (Model, error)) {
	files := GGUFFiles(t, model+"-*.gguf")
	if len(files) == 0 {
		t.Fatal("no files")
	}
	for _, path := range files {
		t.Run(filepath.Base(path), func(t *testing.T) {
			m := Opened(open(path))(t)
			set, err := safetensors.Open(filepath.Join(filepath.Dir(path), "expected.safetensors"))
			if err != nil {
				t.Fatal(err)
			}
			defer set.Close()
			name := strings.TrimSuffix(filepath.Base(path), ".gguf")
			size, _, _ := strings.Cut(name, ".")
			x, err := set.Tensor(size + ".ids")
			if err != nil {
				t.Fatal(err)
			}
			ids, err := x.Int32s()
			if err != nil {
				t.Fatal(err)
			}
			if x, err = set.Tensor(name + ".exact"); err != nil {
				t.Fatal(err)
			}
			want, err := x.Float32s()
			if err != nil {
				t.Fatal(err)
			}
			got, err := m.Logits(t.Context(), [][]int32{ids}, nil)
			if err != nil {
				t.Fatal(err)
			}
			tol.Close(t, got, want, 1e-5)
		})
	}
}

// GGUFTensors returns the tensors of a model of testdata under their names in GGUF files.
// names are those of checkpoint.GGUF.
func GGUFTensors(t testing.TB, model string, names map[string]string) []gguftest.Tensor {
	t.Helper()
	src, err := safetensors.OpenDir(golden.Dir(t, model))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { src.Close() })
	var list []gguftest.Tensor
	for _, name := range src.Names() {
		x, err := src.Tensor(name)
		if err != nil {
			t.Fatal(err)
		}
		layer := ""
		parts := strings.Split(name, ".")
		for i, part := range parts {
			if len(part) == 1 && part >= "0" && part <= "9" {
				layer, parts[i] = part, "#"
			}
		}
		last := len(parts) - 1
		to := strings.Replace(names[strings.Join(parts[:last], ".")], "#", layer, 1) + "." + parts[last]
		list = append(list, gguftest.Tensor{Name: to, Type: x.DType, Shape: x.Shape, Data: x.Data})
	}
	return list
}

// GGUFFile writes a file and returns its path.
func GGUFFile(t testing.TB, keys []gguftest.Key, tensors []gguftest.Tensor) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "model.gguf")
	if err := os.WriteFile(path, gguftest.File(keys, tensors), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// Without returns keys without one of them.
func Without(keys []gguftest.Key, name string) []gguftest.Key {
	return slices.DeleteFunc(slices.Clone(keys), func(k gguftest.Key) bool { return k.Name == name })
}
