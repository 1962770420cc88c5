package outside_test

import (
	"go/ast"
	"go/parser"
	"go/token"
	"maps"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// exported lists the functions and methods that the public packages export, as
// op.Apply and pulsecol.Machine.Step, from their source.
func exported(t testing.TB) (names []string) {
	for _, dir := range public {
		files := must(filepath.Glob(filepath.Join("..", "..", filepath.FromSlash(dir), "*.go")))(t)
		for _, name := range files {
			if strings.HasSuffix(name, "_test.go") {
				continue
			}
			f := must(parser.ParseFile(token.NewFileSet(), name, must(os.ReadFile(name))(t), 0))(t)
			for _, d := range f.Decls {
				fn, ok := d.(*ast.FuncDecl)
				if !ok || !fn.Name.IsExported() {
					continue
				}
				full := path.Base(module+dir) + "."
				if fn.Recv != nil {
					of := fn.Recv.List[0].Type
					if p, ok := of.(*ast.StarExpr); ok {
						of = p.X
					}
					id, ok := of.(*ast.Ident)
					if !ok || !id.IsExported() {
						continue
					}
					full += id.Name + "."
				}
				names = append(names, full+fn.Name.Name)
			}
		}
	}
	slices.Sort(names)
	return names
}

// misused are the cases of wrong use, by the name of what is used.
var misused = map[string]func(*misuse){}

// misuses adds the cases of a file to misused.
func misuses(of map[string]func(*misuse)) bool {
	maps.Copy(misused, of)
	return true
}

// TestMisuse: whatever an exported function or method gets, it returns an error or what
// its comment says. It does not panic and does not hang, and its message is short.
func TestMisuse(t *testing.T) {
	names := exported(t)
	if len(names) < 100 {
		t.Fatalf("only %d exported functions found", len(names))
	}
	calls := 0
	for _, name := range names {
		use, ok := misused[name]
		if !ok {
			t.Errorf("%s has no case of wrong use", name)
			continue
		}
		t.Run(name, func(t *testing.T) {
			m := &misuse{T: t}
			use(m)
			if m.calls == 0 {
				t.Error("no calls")
			}
			calls += m.calls
		})
	}
	for name := range misused {
		if !slices.Contains(names, name) {
			t.Errorf("there is no %s", name)
		}
	}
	t.Logf("%d functions and methods, %d calls", len(names), calls)
}
