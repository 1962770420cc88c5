package main

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"reflect"
	"slices"
	"strings"
	"time"

	"github.com/alecthomas/kong"
	"github.com/pulsecol/pulsecol/internal/eval"
	"github.com/pulsecol/pulsecol/internal/infile"
	mappedfile "github.com/pulsecol/pulsecol/internal/mapped"
	"github.com/pulsecol/pulsecol/internal/tokenizer"
)

// results opens the results file; nil if none was asked for.
func (e *evaluation) results(line *kong.Context, std stdio) (*eval.Results, error) {
	if e.Results == nil {
		return nil, nil
	}
	hash, err := e.Open.hash()
	if err != nil {
		return nil, err
	}
	host := thisHost()
	r, err := eval.OpenResults(*e.Results, eval.Header{
		Type: e.model.kind(), Model: hash, Sampler: samplerOptions(line),
		Host:    fmt.Sprintf("%s, %d threads, %s", host.CPU, host.Threads, host.Features),
		Version: version(), Created: time.Now().UTC().Format(time.RFC3339),
	})
	if err != nil {
		return nil, err
	}
	if r.Dropped > 0 {
		fmt.Fprintf(std.err, "%s: dropped its last line, which was cut off after %d bytes\n", *e.Results, r.Dropped)
	}
	return r, nil
}

// samplerOptions returns the sampler's flags that were given, but for the seed,
// which every record has.
func samplerOptions(line *kong.Context) map[string]string {
	given := map[string]string{}
	for _, p := range line.Path {
		if p.Flag != nil && p.Flag.Group != nil && strings.Contains(strings.ToLower(p.Flag.Group.Key), "sampler") && p.Flag.Name != "seed" {
			given[p.Flag.Name] = fmt.Sprint(reflect.Indirect(p.Flag.Target))
		}
	}
	return given
}

// hash returns the SHA-256 of what a model's answers depend on: config.json,
// generation_config.json, the tokenizer's files, and the tensors by their names,
// however many files they are in. Other files of the folder do not count.
func (f *modelFlag) hash() (string, error) {
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
	for _, name := range slices.Sorted(maps.Keys(read.names)) {
		data, err := fs.ReadFile(files, name)
		if err != nil {
			return "", err
		}
		fmt.Fprintf(h, "%s %d\n", name, len(data))
		h.Write(data)
	}
	weights, err := f.weights()
	if err != nil {
		return "", err
	}
	defer weights.Close()
	err = mappedfile.Guard(func() error {
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
	if err != nil {
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
