package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/alecthomas/kong"
)

// TestPagesCommands: the parser takes the command lines that the pages show.
func TestPagesCommands(t *testing.T) {
	const root = "../.."
	pages := []string{"README.md", "bench/README.md"}
	found, err := filepath.Glob(filepath.Join(root, "docs/*.md"))
	if err != nil {
		t.Fatal(err)
	}
	for _, page := range found {
		pages = append(pages, filepath.Join("docs", filepath.Base(page)))
	}
	lines := 0
	for _, page := range pages {
		text, err := os.ReadFile(filepath.Join(root, page))
		if err != nil {
			t.Fatal(err)
		}
		for line := range strings.Lines(string(text)) {
			line, shown := strings.CutPrefix(line, "    ")
			if args, ok := strings.CutPrefix(line, "go run ./cmd/"); ok {
				line = args
			}
			args, ok := strings.CutPrefix(line, "pulsecol ")
			if !shown || !ok {
				continue
			}
			lines++
			parser, err := kong.New(&cli{}, kong.Name("pulsecol"), flagVars(), kong.Bind(stdio{}))
			if err != nil {
				t.Fatal(err)
			}
			if _, err := parser.Parse(shellWords(args)); err != nil {
				t.Errorf("%s: pulsecol %s: %v", page, strings.TrimSpace(args), err)
			}
		}
	}
	if lines < 15 {
		t.Errorf("the pages show %d commands", lines)
	}
}

// shellWords splits a command line at blanks outside of quotation marks, up to a comment or a
// redirection.
func shellWords(line string) (words []string) {
	for line = strings.TrimSpace(line); line != ""; line = strings.TrimSpace(line) {
		switch line[0] {
		case '#', '>':
			return words
		case '"', '\'':
			word, rest, _ := strings.Cut(line[1:], line[:1])
			words, line = append(words, word), rest
		default:
			word, rest, _ := strings.Cut(line, " ")
			words, line = append(words, word), rest
		}
	}
	return words
}
