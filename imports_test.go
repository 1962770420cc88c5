package pulsecol_test

import (
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
)

const module = "github.com/pulsecol/pulsecol"

// layerOf returns the layer of a package. A package imports lower layers only; tests are
// exempt.
//
//	internal/* <- op <- cudaop <- pulsecol <- graph <- models <- cmd
func layerOf(dir string) (int, bool) {
	first, _, _ := strings.Cut(dir, "/")
	at, ok := map[string]int{"internal": 0, "op": 1, "cudaop": 2, ".": 3, "graph": 4, "models": 5, "cmd": 6}[first]
	return at, ok
}

// area is the part of the tree whose packages may import one another within a
// layer.
func area(dir string) string {
	parts := strings.Split(dir, "/")
	if parts[0] == "models" && len(parts) > 1 { // models do not import one another
		return path.Join(parts[:2]...)
	}
	return parts[0]
}

// allowed reports whether a package in one folder may import that of another.
func allowed(from, to string) bool {
	a, _ := layerOf(from)
	b, ok := layerOf(to)
	shared := area(from) == area(to) ||
		strings.HasPrefix(from, "models/") && (to == "models" || strings.HasPrefix(to, "models/internal/"))
	if from == "cudaop" && to == "internal/sampler" { // operators use internal/lmhead instead
		return false
	}
	return ok && (b < a || b == a && shared)
}

// TestImportDirection parses every Go file of the module.
func TestImportDirection(t *testing.T) {
	files := 0
	err := filepath.WalkDir(".", func(name string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		name = filepath.ToSlash(name)
		base := path.Base(name)
		if d.IsDir() {
			if base != "." && (strings.HasPrefix(base, "_") || strings.HasPrefix(base, ".") || base == "testdata" || base == "vendor") {
				return fs.SkipDir
			}
			if _, err := os.Stat(filepath.Join(name, "go.mod")); err == nil && base != "." {
				return fs.SkipDir // another module
			}
			return nil
		}
		if path.Ext(name) != ".go" || strings.HasSuffix(name, "_test.go") {
			return nil
		}
		f, err := parser.ParseFile(token.NewFileSet(), name, nil, parser.ImportsOnly)
		if err != nil {
			return err
		}
		files++
		from := path.Dir(name)
		if _, ok := layerOf(from); !ok {
			t.Errorf("%s: folder %s has no place in the order of layers; give it one", name, from)
		}
		for _, spec := range f.Imports {
			to, err := strconv.Unquote(spec.Path.Value)
			if err != nil {
				return err
			}
			if to != module && !strings.HasPrefix(to, module+"/") {
				continue
			}
			if to = strings.TrimPrefix(strings.TrimPrefix(to, module), "/"); to == "" {
				to = "."
			}
			if !allowed(from, to) {
				t.Errorf("%s imports %s", name, to)
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	if files < 50 {
		t.Errorf("only %d files found", files)
	}
}

// TestImportTable: the rule itself.
func TestImportTable(t *testing.T) {
	for _, c := range []struct {
		from, to string
		want     bool
	}{
		{"op", "internal/kernel", true}, {"internal/kernel", "op", false}, {"internal/kernel", "internal/bf16", true},
		{"cudaop", "op", true}, {"op", "cudaop", false}, {".", "cudaop", true}, {".", "graph", false}, {".", "models/llada", false},
		{"internal/golden", "models/llada", false}, {"internal/golden", ".", false},
		{"graph", ".", true}, {"graph", "models/llada", false}, {"models/llada", "graph", true},
		{"models/llada", "models/dream", false}, {"models/llada", "models/internal/session", true},
		{"models/internal/session", "models/llada", false}, {"models/internal/session", "models/internal/checkpoint", true},
		{"models/internal/checkpoint", "graph", true},
		{"models/llada", "models", true}, {"models", "models/llada", false}, {"models", "models/internal/session", false},
		{"cmd/pulsecol", "models/dream", true}, {"models/dream", "cmd/pulsecol", false}, {"cmd/pulsecol", "cmd/pulsecol/view", true},
		{"cudaop", "internal/lmhead", true}, {"cudaop", "internal/sampler", false}, {"op", "nowhere", false},
	} {
		if got := allowed(c.from, c.to); got != c.want {
			t.Errorf("%s may import %s: %v, want %v", c.from, c.to, got, c.want)
		}
	}
}
