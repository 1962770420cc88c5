package tokenizer

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
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
// added_tokens.json and tokenizer_config.json.
func Open(fsys fs.FS) (*Tokenizer, error) {
	data, err := readFile(fsys, jsonName, maxFile)
	if err == nil {
		t, err := parseJSON(data)
		if err != nil {
			return nil, fmt.Errorf("tokenizer: %s: %w", jsonName, err)
		}
		return t, nil
	}
	if !errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("tokenizer: %w", err)
	}
	var files [4][]byte
	for i, name := range []string{vocabName, mergesName, addedName, configName} {
		files[i], err = readFile(fsys, name, maxFile)
		switch {
		case err == nil, i >= 2 && errors.Is(err, fs.ErrNotExist):
		case name == vocabName && errors.Is(err, fs.ErrNotExist):
			return nil, ErrNotFound
		default:
			return nil, fmt.Errorf("tokenizer: %w", err)
		}
	}
	return ParseVocabMerges(files[0], files[1], files[2], files[3])
}

// OpenFile reads one tokenizer.json, whatever its name.
func OpenFile(path string) (*Tokenizer, error) {
	data, err := readFile(os.DirFS(filepath.Dir(path)), filepath.Base(path), maxFile)
	if err != nil {
		return nil, fmt.Errorf("tokenizer: in %s: %w", filepath.Dir(path), err)
	}
	t, err := parseJSON(data)
	if err != nil {
		return nil, fmt.Errorf("tokenizer: %s: %w", path, err)
	}
	return t, nil
}

// maxFile is the size in bytes of the largest file to read: several times the
// largest published tokenizer.json.
const maxFile = 1 << 27

func readFile(fsys fs.FS, name string, limit int64) ([]byte, error) {
	f, err := fsys.Open(name)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	data, err := io.ReadAll(io.LimitReader(f, limit+1))
	if err != nil {
		return nil, fmt.Errorf("read %s: %w", name, err)
	}
	if int64(len(data)) > limit {
		return nil, fmt.Errorf("read %s: more than %d bytes", name, limit)
	}
	return data, nil
}
