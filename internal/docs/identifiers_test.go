package main

import (
	"go/ast"
	"go/parser"
	"go/token"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// exported returns the exported names of a package: functions, types, variables, constants, and
// "Type.Member" for methods and fields. Build constraints do not matter.
func exported(t *testing.T, dir string) map[string]bool {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(root, dir, "*.go"))
	if err != nil {
		t.Fatal(err)
	}
	names := map[string]bool{}
	for _, name := range files {
		if strings.HasSuffix(name, "_test.go") {
			continue
		}
		file, err := parser.ParseFile(token.NewFileSet(), name, nil, parser.SkipObjectResolution)
		if err != nil {
			t.Fatal(err)
		}
		for _, d := range file.Decls {
			switch d := d.(type) {
			case *ast.FuncDecl:
				owner := ""
				if d.Recv != nil {
					owner = receiver(d.Recv.List[0].Type) + "."
				}
				names[owner+d.Name.Name] = true
			case *ast.GenDecl:
				for _, s := range d.Specs {
					addSpec(names, s)
				}
			}
		}
	}
	return names
}

func addSpec(names map[string]bool, s ast.Spec) {
	switch s := s.(type) {
	case *ast.ValueSpec:
		for _, n := range s.Names {
			names[n.Name] = true
		}
	case *ast.TypeSpec:
		names[s.Name.Name] = true
		var members *ast.FieldList
		switch of := s.Type.(type) {
		case *ast.StructType:
			members = of.Fields
		case *ast.InterfaceType:
			members = of.Methods
		default:
			return
		}
		for _, f := range members.List {
			for _, n := range f.Names {
				names[s.Name.Name+"."+n.Name] = true
			}
		}
	}
}

func receiver(e ast.Expr) string {
	switch e := e.(type) {
	case *ast.StarExpr:
		return receiver(e.X)
	case *ast.IndexExpr:
		return receiver(e.X)
	case *ast.Ident:
		return e.Name
	}
	return ""
}

// TestIdentifiers: Go names in the pages exist.
func TestIdentifiers(t *testing.T) {
	packages := map[string]map[string]bool{}
	types := map[string]map[string]bool{} // the members of the packages' types
	for name, dir := range map[string]string{
		"pulsecol": ".", "op": "op", "cudaop": "cudaop", "graph": "graph", "llada": "models/llada", "dream": "models/dream", "diffusion": "models/internal/diffusion",
	} {
		packages[name] = exported(t, dir)
		for n := range packages[name] {
			if owner, member, ok := strings.Cut(n, "."); ok {
				if types[owner] == nil {
					types[owner] = map[string]bool{}
				}
				types[owner][member] = true
			}
		}
	}
	code := regexp.MustCompile("`([a-zA-Z]+)\\.([A-Z][A-Za-z0-9]*)(?:\\.([A-Z][A-Za-z0-9]*))?[^`]*`")
	found := 0
	for _, page := range allPages(t) {
		if strings.HasPrefix(page, "docs/notes/") {
			continue
		}
		for _, m := range code.FindAllStringSubmatch(read(t, page), -1) {
			owner, name, member := m[1], m[2], m[3]
			var ok bool
			switch {
			case packages[owner] != nil:
				ok = packages[owner][name] && (member == "" || types[name][member])
			case types[owner] != nil:
				ok = types[owner][name]
			default:
				continue // of another module
			}
			found++
			if !ok {
				t.Errorf("%s: no %s", page, m[0])
			}
		}
	}
	if found < 20 {
		t.Errorf("the pages have %d names", found)
	}
}
