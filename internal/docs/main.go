// Command docs fills the tables of README.md and docs with the records of bench.
//
//	go run ./internal/docs
//
// With -pictures it also draws docs/img/sparsity.png.
//
// A page marks the place of a table with two comments, and the command writes the table
// between them, with the machines and dates of the records that it is made from:
//
//	<!-- bench: gpu-steps -->
//	<!-- end -->
//
// The tests of this package fail if a page differs from the command's output. They also build
// the pages' Go code, follow their links and limit their length.
package main

import (
	"flag"
	"fmt"
	"log"
	"os"
	"path/filepath"
	"strings"
)

func main() {
	log.SetFlags(0)
	pictures := flag.Bool("pictures", false, "also draw docs/img/sparsity.png")
	flag.Parse()
	b, err := readBench(os.DirFS("bench"))
	if err != nil {
		log.Fatal(err)
	}
	if err := fillPages(".", b); err != nil {
		log.Fatal(err)
	}
	if *pictures {
		if err := drawPictures(".", b); err != nil {
			log.Fatal(err)
		}
	}
}

// fillPages fills the tables of all pages below root and prints the names of those that change.
func fillPages(root string, b *bench) error {
	pages, err := pages(root)
	if err != nil {
		return err
	}
	for _, page := range pages {
		file := filepath.Join(root, page)
		old, err := os.ReadFile(file)
		if err != nil {
			return err
		}
		filled, err := fill(page, string(old), b)
		if err != nil {
			return fmt.Errorf("%s: %w", page, err)
		}
		if filled == string(old) {
			continue
		}
		if err := os.WriteFile(file, []byte(filled), 0o666); err != nil {
			return err
		}
		fmt.Println(page)
	}
	return nil
}

// pages returns the project's pages, relative to its root.
func pages(root string) ([]string, error) {
	found := []string{"README.md", "CONTRIBUTING.md", "bench/README.md"}
	for _, pattern := range []string{"docs/*.md", "docs/notes/*.md"} {
		files, err := filepath.Glob(filepath.Join(root, pattern))
		if err != nil {
			return nil, err
		}
		for _, f := range files {
			rel, err := filepath.Rel(root, f)
			if err != nil {
				return nil, err
			}
			found = append(found, filepath.ToSlash(rel))
		}
	}
	return found, nil
}

const (
	markBegin = "<!-- bench: "
	markName  = " -->\n"
	markEnd   = "<!-- end -->"
)

// fill returns the text of a page with its tables made anew.
func fill(page, text string, b *bench) (string, error) {
	var out strings.Builder
	for {
		before, rest, found := strings.Cut(text, markBegin)
		out.WriteString(before)
		if !found {
			return out.String(), nil
		}
		name, rest, named := strings.Cut(rest, markName)
		_, after, ended := strings.Cut(rest, markEnd)
		make, known := tables[name]
		switch {
		case !named || !ended:
			return "", fmt.Errorf("%s%.30q: want a name, %q and later %q", markBegin, name, markName, markEnd)
		case !known:
			return "", fmt.Errorf("%s%s: no such table", markBegin, name)
		}
		t := table{bench: b}
		make(&t)
		if t.err != nil {
			return "", fmt.Errorf("table %s: %w", name, t.err)
		}
		out.WriteString(markBegin + name + markName + t.markdown(page) + markEnd)
		text = after
	}
}
