package task

import (
	_ "embed"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// RULER takes its words from the lists of the Python package wonderwords. These lists are this
// package's own.
var (
	//go:embed words/adjectives.txt
	adjectivesFile string
	//go:embed words/nouns.txt
	nounsFile string
	//go:embed words/verbs.txt
	verbsFile string
)

// wordFiles are the names of the lists in a user's folder.
var wordFiles = []string{"adjectives.txt", "nouns.txt", "verbs.txt"}

// wordLists are the words that RULER's tasks are made of.
type wordLists struct{ adjectives, nouns, verbs []string }

// openWords returns the built-in lists, each replaced by the file of its name in the folder data,
// if there is one, with one word a line.
func openWords(data string) (wordLists, error) {
	var w wordLists
	ours := []string{adjectivesFile, nounsFile, verbsFile}
	for i, into := range []*[]string{&w.adjectives, &w.nouns, &w.verbs} {
		text := ours[i]
		path := filepath.Join(data, wordFiles[i])
		if data != "" && isFile(path) {
			file, err := openSource(path)
			if err != nil {
				return w, err
			}
			text = string(file.text)
		}
		words := strings.Fields(text)
		slices.Sort(words)
		if *into = slices.Compact(words); len(words) == 0 {
			return w, fmt.Errorf("%s: no words", path)
		}
	}
	return w, nil
}

func isFile(path string) bool {
	info, err := os.Stat(path)
	return err == nil && !info.IsDir()
}

// all returns every word once, in alphabetical order.
func (w wordLists) all() []string {
	words := slices.Concat(w.adjectives, w.nouns, w.verbs)
	slices.Sort(words)
	return slices.Compact(words)
}
