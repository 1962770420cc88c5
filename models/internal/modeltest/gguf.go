package modeltest

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"gorgonia.org/gorgonia"
	"gorgonia.org/tensor"

	"github.com/pulsecol/pulsecol"
	"github.com/pulsecol/pulsecol/internal/gguf/gguftest"
	"github.com/pulsecol/pulsecol/internal/golden"
	"github.com/pulsecol/pulsecol/internal/safetensors"
	"github.com/pulsecol/pulsecol/internal/tol"
	"github.com/pulsecol/pulsecol/models"
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
	eachGGUF(t, model, func(t *testing.T, path string, ids []int32, expected *safetensors.File) {
		got, err := Opened(open(path))(t).Logits(t.Context(), [][]int32{ids}, nil)
		if err != nil {
			t.Fatal(err)
		}
		tol.Close(t, got, logitsOf(t, expected, path, ".exact"), 1e-5)
	})
}

// A Builder is a model that makes graphs.
type Builder interface {
	Model
	Build(g *gorgonia.ExprGraph, s models.Shape, ctl *pulsecol.Controller) (*models.Graph, error)
}

// GGUFInt8Error logs the error of inputs rounded to 8 bits, relative L2, with the exact path's and, where
// the folder has its logits, llama.cpp's, which rounds them too. Its largest one for these types is
// 0.074; more than 0.1 fails.
func GGUFInt8Error(t *testing.T, model string, open func(path string) (Builder, error)) {
	quantized := 0
	eachGGUF(t, model, func(t *testing.T, path string, ids []int32, expected *safetensors.File) {
		m := Opened(open(path))(t)
		want := logitsOf(t, expected, path, ".exact")
		exact := forward(t, m, ids, pulsecol.Config{Precision: pulsecol.Float32})
		got := forward(t, m, ids, pulsecol.Config{Precision: pulsecol.Int8})
		if strings.Contains(path, ".F32.") || strings.Contains(path, ".F16.") || strings.Contains(path, ".BF16.") {
			tol.SameBits(t, "without quantized weights", got, exact)
			return
		}
		quantized++
		of := tol.RelL2(got, want)
		t.Logf("int8 %.2g, exact %.2g", of, tol.RelL2(exact, want))
		if of < 1e-3 || of > 0.1 {
			t.Errorf("relative error of int8 is %.3g, want 0.001 to 0.1", of)
		}
		if name := logitsName(path) + ".llamacpp"; slices.Contains(expected.Names(), name) {
			t.Logf("llama.cpp %.2g", tol.RelL2(logitsOf(t, expected, path, ".llamacpp"), want))
		}
	})
	if quantized == 0 {
		t.Error("no file with quantized weights")
	}
}

// forward runs one forward pass on the CPU.
func forward(t *testing.T, m Builder, ids []int32, cfg pulsecol.Config) []float32 {
	t.Helper()
	cfg.Device = pulsecol.CPU
	ctl, err := pulsecol.NewController(cfg)
	if err != nil {
		t.Fatal(err)
	}
	n := len(ids)
	g := gorgonia.NewGraph()
	built, err := m.Build(g, models.Shape{Batch: 1, Len: n, Rows: n}, ctl)
	if err != nil {
		t.Fatal(err)
	}
	machine, err := pulsecol.NewMachine(g, ctl)
	if err != nil {
		t.Fatal(err)
	}
	defer machine.Close()
	positions := make([]int32, n)
	for i := range positions {
		positions[i] = int32(i)
	}
	for node, values := range map[*gorgonia.Node][]int32{built.IDs: ids, built.Positions: positions, built.Rows: positions} {
		if err := gorgonia.Let(node, tensor.New(tensor.WithShape(node.Shape()...), tensor.WithBacking(values))); err != nil {
			t.Fatal(err)
		}
	}
	if err := ctl.Start(1); err != nil {
		t.Fatal(err)
	}
	if err := machine.RunAll(); err != nil {
		t.Fatal(err)
	}
	return slices.Clone(built.Logits.Value().Data().([]float32))
}

// eachGGUF runs f for the files of a model, with tokens and the expected logits.
func eachGGUF(t *testing.T, model string, f func(t *testing.T, path string, ids []int32, expected *safetensors.File)) {
	files := GGUFFiles(t, model+"-*.gguf")
	if len(files) == 0 {
		t.Fatal("no files")
	}
	for _, path := range files {
		t.Run(filepath.Base(path), func(t *testing.T) {
			expected, err := safetensors.Open(filepath.Join(filepath.Dir(path), "expected.safetensors"))
			if err != nil {
				t.Fatal(err)
			}
			defer expected.Close()
			size, _, _ := strings.Cut(logitsName(path), ".")
			x, err := expected.Tensor(size + ".ids")
			if err != nil {
				t.Fatal(err)
			}
			ids, err := x.Int32s()
			if err != nil {
				t.Fatal(err)
			}
			f(t, path, ids, expected)
		})
	}
}

func logitsName(path string) string { return strings.TrimSuffix(filepath.Base(path), ".gguf") }

// logitsOf are those of a file that are kept under its name and a suffix.
func logitsOf(t *testing.T, expected *safetensors.File, path, suffix string) []float32 {
	t.Helper()
	x, err := expected.Tensor(logitsName(path) + suffix)
	if err != nil {
		t.Fatal(err)
	}
	values, err := x.Float32s()
	if err != nil {
		t.Fatal(err)
	}
	return values
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
