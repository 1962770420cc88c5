package outside_test

import (
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
)

const module = "github.com/pulsecol/pulsecol"

// public is what tests of this package may import of the module.
var public = []string{"", "/op", "/graph", "/models", "/models/llada", "/models/dream"}

// TestImports: the tests of this package use the library as a program of others would.
func TestImports(t *testing.T) {
	files := must(filepath.Glob("*.go"))(t)
	if len(files) < 8 {
		t.Fatalf("only %d files", len(files))
	}
	for _, name := range files {
		if !strings.HasSuffix(name, "_test.go") {
			t.Errorf("%s is not a test", name)
		}
		f := must(parser.ParseFile(token.NewFileSet(), name, nil, parser.ImportsOnly))(t)
		if f.Name.Name != "outside_test" {
			t.Errorf("%s is of package %s", name, f.Name.Name)
		}
		for _, spec := range f.Imports {
			path := must(strconv.Unquote(spec.Path.Value))(t)
			if rest, ours := strings.CutPrefix(path, module); ours && !slices.Contains(public, rest) {
				t.Errorf("%s imports %s", name, path)
			}
		}
		if lines := strings.Count(string(must(os.ReadFile(name))(t)), "\n"); lines >= 400 {
			t.Errorf("%s has %d lines", name, lines)
		}
	}
}
