package main

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"hash"
	"io/fs"
	"maps"
	"path/filepath"
	"slices"

	"github.com/pulsecol/pulsecol/internal/gguf"
	"github.com/pulsecol/pulsecol/internal/infile"
	mappedfile "github.com/pulsecol/pulsecol/internal/mapped"
	"github.com/pulsecol/pulsecol/internal/safetensors"
	"github.com/pulsecol/pulsecol/internal/tokenizer"
)

// hash returns the SHA-256 of what a model's answers depend on: config.json,
// generation_config.json, the tokenizer's files, and the tensors by their names,
// however many files they are in. Other files of the folder do not count.
func (f *modelFlag) hash() (string, error) {
	if f.Model != nil && gguf.Is(*f.Model) {
		return hashGGUF(*f.Model)
	}
	files := fs.FS(nil)
	if f.Model == nil {
		files, _ = f.small()
	} else {
		m, err := f.folder()
		if err != nil {
			return "", err
		}
		files = infile.Dir(m.Dir)
	}
	read := &readFiles{FS: files, names: map[string]bool{}}
	for _, name := range []string{"config.json", "generation_config.json"} {
		if r, err := read.Open(name); err == nil {
			r.Close()
		} else if !errors.Is(err, fs.ErrNotExist) {
			return "", err
		}
	}
	if _, err := tokenizer.Open(read); err != nil {
		return "", err
	}
	h := sha256.New()
	if err := read.hash(h); err != nil {
		return "", err
	}
	weights, err := f.weights()
	if err != nil {
		return "", err
	}
	defer weights.Close()
	if err := hashTensors(h, weights); err != nil {
		return "", err
	}
	return hex.EncodeToString(h.Sum(nil)), nil
}

func hashTensors(h hash.Hash, weights safetensors.Source) error {
	return mappedfile.Guard(func() error {
		for _, name := range weights.Names() {
			t, err := weights.Tensor(name)
			if err != nil {
				return err
			}
			fmt.Fprintf(h, "%s %s %v\n", name, t.DType, t.Shape)
			h.Write(t.Data)
		}
		return nil
	})
}

// hashGGUF is hash of a GGUF file: of its metadata and tensors, and of the tokenizer of its
// folder if it has none.
func hashGGUF(path string) (string, error) {
	g, err := gguf.Open(path)
	if err != nil {
		return "", err
	}
	defer g.Close()
	h := sha256.New()
	for _, key := range slices.Sorted(slices.Values(g.Keys())) {
		value := g.Raw(key)
		fmt.Fprintf(h, "%s %d\n", key, len(value))
		h.Write(value)
	}
	if !tokenizer.InGGUF(g) {
		read := &readFiles{FS: infile.Dir(filepath.Dir(path)), names: map[string]bool{}}
		if _, err := tokenizer.Open(read); err != nil {
			return "", err
		}
		if err := read.hash(h); err != nil {
			return "", err
		}
	}
	if err := hashTensors(h, g); err != nil {
		return "", err
	}
	return hex.EncodeToString(h.Sum(nil)), nil
}

// readFiles notes the names of the files that are opened.
type readFiles struct {
	fs.FS
	names map[string]bool
}

func (r *readFiles) Open(name string) (fs.File, error) {
	f, err := r.FS.Open(name)
	if err == nil {
		r.names[name] = true
	}
	return f, err
}

// hash adds the files' names and contents.
func (r *readFiles) hash(h hash.Hash) error {
	for _, name := range slices.Sorted(maps.Keys(r.names)) {
		data, err := fs.ReadFile(r.FS, name)
		if err != nil {
			return err
		}
		fmt.Fprintf(h, "%s %d\n", name, len(data))
		h.Write(data)
	}
	return nil
}
