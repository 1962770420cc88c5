package main

import (
	"encoding/json"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

var (
	goBlock = regexp.MustCompile("(?ms)^```go\n(.*?)^```$")
	// printed is a call that ends in a comment with its output.
	printed = regexp.MustCompile(`(?m)^\s*fmt\.Print.*\) +// (.*)$`)
)

// TestSnippets: the Go code of the pages compiles. A program also prints the text of the
// comments next to its calls of fmt.Print.
func TestSnippets(t *testing.T) {
	if testing.Short() {
		t.Skip("links programs")
	}
	dir := t.TempDir()
	overlay := map[string]map[string]string{"Replace": {}}
	type snippet struct{ name, pkg, code string }
	var snippets []snippet
	for _, page := range allPages(t) {
		for i, m := range goBlock.FindAllStringSubmatch(read(t, page), -1) {
			s := snippet{fmt.Sprintf("%s, snippet %d", page, i+1), fmt.Sprintf("internal/docs/snippet%d", len(snippets)), m[1]}
			file := filepath.Join(dir, fmt.Sprintf("%d.go", len(snippets)))
			if err := os.WriteFile(file, []byte(complete(t, s.code)), 0o666); err != nil {
				t.Fatal(err)
			}
			virtual, err := filepath.Abs(filepath.Join(root, s.pkg, "main.go"))
			if err != nil {
				t.Fatal(err)
			}
			overlay["Replace"][virtual] = file
			snippets = append(snippets, s)
		}
	}
	if len(snippets) == 0 {
		t.Fatal("no snippets")
	}
	text, err := json.Marshal(overlay)
	if err != nil {
		t.Fatal(err)
	}
	overlayFile := filepath.Join(dir, "overlay.json")
	if err := os.WriteFile(overlayFile, text, 0o666); err != nil {
		t.Fatal(err)
	}
	for _, s := range snippets {
		t.Run(s.name, func(t *testing.T) {
			program := filepath.Join(dir, filepath.Base(s.pkg)+".exe")
			build := exec.Command("go", "build", "-overlay", overlayFile, "-o", program, "./"+s.pkg)
			build.Dir = root
			if out, err := build.CombinedOutput(); err != nil {
				t.Fatalf("%v\n%s", err, out)
			}
			if !isProgram(s.code) {
				return
			}
			out, err := exec.Command(program).CombinedOutput()
			if err != nil {
				t.Fatalf("%v\n%s", err, out)
			}
			var want strings.Builder
			for _, m := range printed.FindAllStringSubmatch(s.code, -1) {
				fmt.Fprintln(&want, m[1])
			}
			if string(out) != want.String() {
				t.Errorf("it prints\n%swant\n%s", out, want.String())
			}
		})
	}
}

func isProgram(code string) bool { return strings.HasPrefix(code, "package main\n") }

// imports are the packages that a snippet without a package clause may name.
var imports = map[string]string{
	"context": "context", "fmt": "fmt", "log": "log",
	"pulsecol": "github.com/pulsecol/pulsecol", "llada": "github.com/pulsecol/pulsecol/models/llada", "dream": "github.com/pulsecol/pulsecol/models/dream",
	"graph": "github.com/pulsecol/pulsecol/graph", "op": "github.com/pulsecol/pulsecol/op", "models": "github.com/pulsecol/pulsecol/models", "gorgonia": "gorgonia.org/gorgonia", "tensor": "gorgonia.org/tensor",
}

// complete puts a package clause and the imports before declarations that have none, as editors
// do.
func complete(t *testing.T, code string) string {
	if isProgram(code) {
		return code
	}
	const clause = "package snippet\n"
	file, err := parser.ParseFile(token.NewFileSet(), "", clause+code, 0)
	if err != nil {
		t.Fatalf("%v in\n%s", err, code)
	}
	used := map[string]bool{}
	ast.Inspect(file, func(n ast.Node) bool {
		if s, ok := n.(*ast.SelectorExpr); ok {
			if x, ok := s.X.(*ast.Ident); ok && imports[x.Name] != "" {
				used[x.Name] = true
			}
		}
		return true
	})
	head := clause
	for name := range used {
		head += fmt.Sprintf("import %q\n", imports[name])
	}
	return head + code
}
