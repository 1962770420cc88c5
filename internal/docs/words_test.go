package main

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// oddWords are words that comments and pages do not use: the field has others for what they name,
// or a sentence is plainer without them.
var oddWords = regexp.MustCompile(`(?i)\b(behind|beside|nobody|whoever|(is|are) told|rehears\w+|twins?|made up|wanted rows?|` +
	`take rows|surest|matrix units?|copy engine)\b`)

// oddNames are words that Go names do not have, in any part of a name.
var oddNames = regexp.MustCompile(`[Cc]hoos|[Cc]hose|[Rr]ehears|(^t|T)win|[Ww]hoever|[Nn]obody|[Ss]urest`)

// TestWords: comments and names of sources do not use odd words.
func TestWords(t *testing.T) {
	seen := 0
	err := filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			if err == nil && (d.Name() == "node_modules" || strings.HasPrefix(d.Name(), ".") && path != root) {
				return fs.SkipDir
			}
			return err
		}
		text, err := comments(path)
		if err != nil {
			return err
		}
		if text != "" {
			seen++
		}
		if word := oddWords.FindString(text); word != "" {
			t.Errorf("%s: a comment has %q", path, word)
		}
		for _, name := range oddlyNamed(t, path) {
			t.Errorf("%s: the name %q has %q", path, name, oddNames.FindString(name))
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	if seen < 300 {
		t.Errorf("%d files with comments, want all of the project", seen)
	}
}

// comments returns the comments of a source file, "" for any other file.
func comments(path string) (string, error) {
	var b strings.Builder
	switch filepath.Ext(path) {
	case ".go":
		file, err := parser.ParseFile(token.NewFileSet(), path, nil, parser.ParseComments|parser.SkipObjectResolution)
		if err != nil {
			return "", err
		}
		for _, group := range file.Comments {
			b.WriteString(group.Text() + "\n")
		}
		return b.String(), nil
	case ".cu", ".cuh", ".h", ".s":
		return commentsAfter(path, "//")
	case ".py", ".sh":
		return commentsAfter(path, "# ")
	}
	return "", nil
}

// commentsAfter returns the parts of lines after a mark.
func commentsAfter(path, mark string) (string, error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return "", err
	}
	var b strings.Builder
	for line := range strings.Lines(string(text)) {
		_, comment, _ := strings.Cut(line, mark)
		b.WriteString(strings.TrimRight(comment, "\n") + " ")
	}
	return b.String(), nil
}

// oddlyNamed returns the names of a source file in Go or CUDA that have odd words, and the
// file's own.
func oddlyNamed(t *testing.T, path string) (names []string) {
	t.Helper()
	switch filepath.Ext(path) {
	case ".go":
		file, err := parser.ParseFile(token.NewFileSet(), path, nil, parser.SkipObjectResolution)
		if err != nil {
			t.Fatal(err)
		}
		ast.Inspect(file, func(n ast.Node) bool {
			if id, ok := n.(*ast.Ident); ok {
				names = append(names, id.Name)
			}
			return true
		})
	case ".cu", ".cuh", ".h":
		text, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		names = regexp.MustCompile(`\w+`).FindAllString(string(text), -1)
	default:
		return nil
	}
	names = append(names, filepath.Base(path))
	slices.Sort(names)
	return slices.DeleteFunc(slices.Compact(names), func(name string) bool { return !oddNames.MatchString(name) })
}
