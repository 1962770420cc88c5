// Package golden gives tests the reference outputs under the module's testdata
// folder, from whichever package they run in. What is there and how it was
// made is in testdata/README.md.
package golden

import (
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/pulsecol/pulsecol/internal/safetensors"
)

// Dir returns the path of testdata/name, for instance of "llada" with its
// config.json and model.safetensors. It fails the test when there is none.
func Dir(t testing.TB, name string) string {
	t.Helper()
	dir := filepath.Join(moduleRoot(t), "testdata", filepath.FromSlash(name))
	info, err := os.Stat(dir)
	if err != nil {
		t.Fatalf("golden: %v", err)
	}
	if !info.IsDir() {
		t.Fatalf("golden: %s is not a folder", dir)
	}
	return dir
}

// moduleRoot is the closest folder with a go.mod, from the working folder upwards:
// go test runs a package's tests in the package's folder.
func moduleRoot(t testing.TB) string {
	t.Helper()
	start, err := os.Getwd()
	if err != nil {
		t.Fatalf("golden: %v", err)
	}
	for dir := start; ; dir = filepath.Dir(dir) {
		_, err := os.Stat(filepath.Join(dir, "go.mod"))
		switch {
		case err == nil:
			return dir
		case !os.IsNotExist(err):
			t.Fatalf("golden: %v", err)
		case dir == filepath.Dir(dir):
			t.Fatalf("golden: no go.mod in %s or above", start)
		}
	}
}

// Set is one reference output: the tensors of a .safetensors file and the
// parameters in the .json file of the same name. Its methods fail the test when
// something is missing or of another type.
type Set struct {
	t    testing.TB
	path string // without extension
	file *safetensors.File
}

// Open opens testdata/name.safetensors, for instance "kernel/attention", until the
// test ends.
func Open(t testing.TB, name string) *Set {
	t.Helper()
	s := &Set{t: t, path: filepath.Join(moduleRoot(t), "testdata", filepath.FromSlash(name))}
	var err error
	if s.file, err = safetensors.Open(s.path + ".safetensors"); err != nil {
		t.Fatalf("golden: %v", err)
	}
	t.Cleanup(func() {
		if err := s.file.Close(); err != nil {
			t.Errorf("golden: %v", err)
		}
	})
	return s
}

// Has reports whether the set has a tensor.
func (s *Set) Has(name string) bool { return slices.Contains(s.file.Names(), name) }

// Float32s returns a float tensor's elements, row-major, and its shape.
func (s *Set) Float32s(name string) ([]float32, []int) {
	s.t.Helper()
	return elements(s, name, safetensors.Tensor.Float32s)
}

// Int32s returns an I32 tensor's elements, row-major, and its shape.
func (s *Set) Int32s(name string) ([]int32, []int) {
	s.t.Helper()
	return elements(s, name, safetensors.Tensor.Int32s)
}

func elements[E any](s *Set, name string, decode func(safetensors.Tensor) ([]E, error)) ([]E, []int) {
	s.t.Helper()
	tensor, err := s.file.Tensor(name)
	if err != nil {
		s.t.Fatalf("golden: %v", err)
	}
	values, err := decode(tensor)
	if err != nil {
		s.t.Fatalf("golden: %s: %v", s.path, err)
	}
	return values, tensor.Shape
}

// JSON decodes the parameters into v, a pointer as for json.Unmarshal.
func (s *Set) JSON(v any) {
	s.t.Helper()
	text, err := os.ReadFile(s.path + ".json")
	if err != nil {
		s.t.Fatalf("golden: %v", err)
	}
	if err := json.Unmarshal(text, v); err != nil {
		s.t.Fatalf("golden: %s.json: %v", s.path, err)
	}
}
