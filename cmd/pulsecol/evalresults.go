package main

import (
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"reflect"
	"slices"
	"strings"
	"time"

	"github.com/alecthomas/kong"
	"github.com/pulsecol/pulsecol/internal/eval"
	"github.com/pulsecol/pulsecol/internal/task"
)

// results opens the results file, if there is one, and returns what it holds and
// how to add to it.
func (e *evaluation) results(line *kong.Context, std stdio) (have []eval.Record, keep func(eval.Record) error, done func() error, err error) {
	if e.Results == "" {
		return nil, func(eval.Record) error { return nil }, func() error { return nil }, nil
	}
	hash, err := e.Open.hash()
	if err != nil {
		return nil, nil, nil, err
	}
	host := thisHost()
	file, err := eval.OpenResults(e.Results, eval.Header{
		Type: e.model.kind(), Model: hash, Sampler: samplerOptions(line),
		Host:    fmt.Sprintf("%s, %d threads, %s", host.CPU, host.Threads, host.Features),
		Version: version(), Created: time.Now().UTC().Format(time.RFC3339),
	})
	if err != nil {
		return nil, nil, nil, err
	}
	if file.Dropped > 0 {
		fmt.Fprintf(std.err, "%s: dropped its last line, which was cut off after %d bytes\n", e.Results, file.Dropped)
	}
	return file.Records, file.Append, file.Close, nil
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

// hash returns the SHA-256 of everything in a model that its answers hang on:
// weights, configuration and tokenizer.
func (f *modelFlag) hash() (string, error) {
	h := sha256.New()
	files, weights := fs.FS(nil), []byte(nil)
	if f.Model == nil {
		files, weights = f.small()
	} else {
		m, err := f.folder()
		if err != nil {
			return "", err
		}
		files = os.DirFS(m.Dir)
	}
	names, err := fs.ReadDir(files, ".")
	if err != nil {
		return "", err
	}
	for _, entry := range names { // sorted
		if entry.IsDir() || !slices.Contains([]string{".json", ".txt", ".safetensors"}, path.Ext(entry.Name())) {
			continue
		}
		r, err := files.Open(entry.Name())
		if err != nil {
			return "", err
		}
		fmt.Fprintf(h, "%s\n", entry.Name())
		_, err = io.Copy(h, r)
		r.Close()
		if err != nil {
			return "", err
		}
	}
	h.Write(weights)
	return hex.EncodeToString(h.Sum(nil)), nil
}

// writeCompletions writes answers as the official checker of HumanEval reads them.
func writeCompletions(path string, records []eval.Record) error {
	records = slices.Clone(records)
	slices.SortFunc(records, func(a, b eval.Record) int {
		return cmp.Or(cmp.Compare(a.Seed, b.Seed), cmp.Compare(a.Index, b.Index))
	})
	var lines []byte
	for _, rec := range records {
		line, err := task.HumanEvalCompletion(rec.ID, rec.Output)
		if err != nil {
			return err
		}
		lines = append(lines, line...)
	}
	return os.WriteFile(path, lines, 0o666)
}
