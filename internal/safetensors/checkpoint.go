package safetensors

import (
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"path/filepath"
	"slices"
	"strings"

	"github.com/pulsecol/pulsecol/internal/infile"
	"github.com/pulsecol/pulsecol/internal/jsonfile"
)

// The file names that HuggingFace's libraries write and look for.
const (
	SingleFile = "model.safetensors"
	IndexFile  = "model.safetensors.index.json"
)

// ErrIncomplete is wrapped by OpenDir when the index lists a shard that is not there.
var ErrIncomplete = errors.New("is missing")

// Checkpoint is a model's tensors in one file or in several shards.
type Checkpoint struct {
	dir    string
	shards []*File
	shard  map[string]*File // by tensor
}

// OpenDir opens the checkpoint in dir: SingleFile or else, as transformers does,
// the shards named by the weight_map of IndexFile. Tensors of a shard that the
// index does not list are ignored; tensors that it lists and the shard lacks are
// an error. The error wraps fs.ErrNotExist when dir has neither file, and only
// then.
func OpenDir(dir string) (*Checkpoint, error) {
	switch c, err := openSingle(dir); {
	case err == nil:
		return c, nil
	case !errors.Is(err, fs.ErrNotExist):
		return nil, err
	}
	path := filepath.Join(dir, IndexFile)
	text, err := infile.Read(path, maxIndex)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("safetensors: %s has neither %s nor %s: %w", dir, SingleFile, IndexFile, fs.ErrNotExist)
	}
	if err != nil {
		return nil, fmt.Errorf("safetensors: %w", err)
	}
	weightMap, err := parseIndex(jsonfile.File{Name: path, Text: text})
	if err != nil {
		return nil, fmt.Errorf("safetensors: %w", err)
	}
	return openShards(dir, weightMap)
}

func openSingle(dir string) (*Checkpoint, error) {
	f, err := Open(filepath.Join(dir, SingleFile))
	if err != nil {
		return nil, err
	}
	c := &Checkpoint{dir: dir, shards: []*File{f}, shard: make(map[string]*File, len(f.names))}
	for _, name := range f.names {
		c.shard[name] = f
	}
	return c, nil
}

// maxIndex is several times the index of the largest published checkpoint.
var maxIndex = infile.Limit{Bytes: 64 << 20, What: "an index"}

// parseIndex returns the weight_map of an index: the shard of each tensor.
func parseIndex(file jsonfile.File) (map[string]string, error) {
	var index struct {
		WeightMap any `json:"weight_map"`
	}
	places, err := file.Object(&index)
	if err != nil {
		return nil, err
	}
	at, ok := places["weight_map"]
	if !ok {
		return nil, fmt.Errorf("%s: weight_map is missing", file.Name)
	}
	return file.Strings(at, "weight_map")
}

func openShards(dir string, weightMap map[string]string) (*Checkpoint, error) {
	c := &Checkpoint{dir: dir, shard: make(map[string]*File, len(weightMap))}
	open := make(map[string]*File)
	for _, name := range slices.Sorted(maps.Keys(weightMap)) {
		file := weightMap[name]
		f := open[file]
		if f == nil {
			var err error
			if f, err = openShard(dir, file); err != nil {
				return nil, errors.Join(err, c.Close())
			}
			open[file] = f
			c.shards = append(c.shards, f)
		}
		if _, ok := f.tensors[name]; !ok {
			err := fmt.Errorf("safetensors: %s: lists tensor %q in %s, which lacks it", filepath.Join(dir, IndexFile), name, file)
			return nil, errors.Join(err, c.Close())
		}
		c.shard[name] = f
	}
	return c, nil
}

func openShard(dir, file string) (*File, error) {
	index := filepath.Join(dir, IndexFile)
	// An index comes from the network; it must not reach outside dir.
	if !filepath.IsLocal(file) || strings.ContainsAny(file, `/\`) {
		return nil, fmt.Errorf("safetensors: %s: shard name %q is not a plain file name", index, file)
	}
	f, err := Open(filepath.Join(dir, file))
	if errors.Is(err, fs.ErrNotExist) {
		// fs.ErrNotExist is not wrapped: the checkpoint exists and is incomplete.
		return nil, fmt.Errorf("safetensors: %s: lists shard %s, which %w", index, file, ErrIncomplete)
	}
	return f, err
}

// Names lists the tensors in ascending order.
func (c *Checkpoint) Names() []string { return slices.Sorted(maps.Keys(c.shard)) }

// Tensor returns the named tensor; see Source.
func (c *Checkpoint) Tensor(name string) (Tensor, error) {
	f, ok := c.shard[name]
	if !ok {
		return Tensor{}, fmt.Errorf("safetensors: %s: %w: %q", c.dir, ErrNotFound, name)
	}
	return f.Tensor(name)
}

// Intact reports the first shard that has changed; see Source.
func (c *Checkpoint) Intact() error {
	for _, f := range c.shards {
		if err := f.Intact(); err != nil {
			return err
		}
	}
	return nil
}

// Close releases every shard; see Source.
func (c *Checkpoint) Close() error {
	var errs []error
	for _, f := range c.shards {
		errs = append(errs, f.Close())
	}
	return errors.Join(errs...)
}
