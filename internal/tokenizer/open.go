package tokenizer

import (
	"errors"
	"fmt"
	"io/fs"

	"github.com/pulsecol/pulsecol/internal/infile"
	"github.com/pulsecol/pulsecol/internal/jsonfile"
)

// The names of tokenizer files in a model's directory.
const (
	jsonName   = "tokenizer.json"
	vocabName  = "vocab.json"
	mergesName = "merges.txt"
	addedName  = "added_tokens.json"
	configName = "tokenizer_config.json"
)

// ErrNotFound is the error of Open for a directory without a tokenizer. It
// wraps fs.ErrNotExist.
var ErrNotFound = fmt.Errorf("tokenizer: neither %s nor %s here: %w", jsonName, vocabName, fs.ErrNotExist)

// Open reads the tokenizer of a model directory: its tokenizer.json, or
// without one its vocab.json, merges.txt and, as far as they are there,
// added_tokens.json and tokenizer_config.json. Errors name files as infile.Name
// does.
func Open(fsys fs.FS) (*Tokenizer, error) {
	file, err := readFile(fsys, jsonName)
	if err == nil {
		return parse(file)
	}
	if !errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("tokenizer: %w", err)
	}
	var files [4]jsonfile.File
	for i, name := range []string{vocabName, mergesName, addedName, configName} {
		files[i], err = readFile(fsys, name)
		switch {
		case err == nil, i >= 2 && errors.Is(err, fs.ErrNotExist):
		case name == vocabName && errors.Is(err, fs.ErrNotExist):
			return nil, ErrNotFound
		default:
			return nil, fmt.Errorf("tokenizer: %w", err)
		}
	}
	t, err := parseVocabMerges(files[0], files[1], files[2], files[3])
	if err != nil {
		return nil, fmt.Errorf("tokenizer: %w", err)
	}
	return t, nil
}

// OpenFile reads one tokenizer.json, whatever its name.
func OpenFile(path string) (*Tokenizer, error) {
	data, err := infile.Read(path, maxFile)
	if err != nil {
		return nil, fmt.Errorf("tokenizer: %w", err)
	}
	return parse(jsonfile.File{Name: path, Text: data})
}

// maxFile is several times the largest published tokenizer.json.
var maxFile = infile.Limit{Bytes: 128 << 20, What: "a tokenizer's file"}

// readFile returns the named file, with no text where there is an error.
func readFile(fsys fs.FS, name string) (jsonfile.File, error) {
	data, err := infile.ReadFS(fsys, name, maxFile)
	return jsonfile.File{Name: infile.Name(fsys, name), Text: data}, err
}
