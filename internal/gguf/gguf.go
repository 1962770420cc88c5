// Package gguf reads and writes GGUF files, the format of llama.cpp: metadata and tensors of a model
// in one file, or split over several.
//
// A file is little-endian: "GGUF", a version, the numbers of tensors and of keys, the keys
// with values of 13 types, the list of tensors, and from the next multiple of the alignment
// on their elements. Dimensions are in the file with the innermost first.
//
// Files are mapped where the system supports it. No length, number, offset, type or name
// of a file is used before it is checked, and metadata takes no more memory than in the
// file.
package gguf

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/pulsecol/pulsecol/internal/infile"
	"github.com/pulsecol/pulsecol/internal/quant"
	"github.com/pulsecol/pulsecol/internal/safetensors"
)

const magicNumber = "GGUF"

// ErrIncomplete is wrapped by Open when a part of a split file is not there.
var ErrIncomplete = errors.New("is missing")

// File is an open file with all its parts.
type File struct {
	name    string // of the first part, for errors
	parts   []*part
	keys    []string
	values  map[string]value // of the first part
	tensors map[string]tensor
	closed  bool
}

var _ safetensors.Source = (*File)(nil)

// tensor is a tensor's description and its elements.
type tensor struct {
	name  string
	typ   quant.DType
	shape []int // outermost dimension first
	data  []byte
}

// Is reports whether path is that of a GGUF file: one with its extension or one that
// begins as they do, and no directory.
func Is(path string) bool {
	info, err := os.Stat(path)
	if err == nil && info.IsDir() {
		return false
	}
	if strings.EqualFold(filepath.Ext(path), ".gguf") {
		return true
	}
	if err != nil || !info.Mode().IsRegular() {
		return false
	}
	f, _, err := infile.Open(path)
	if err != nil {
		return false
	}
	defer f.Close()
	magic := make([]byte, len(magicNumber))
	_, err = io.ReadFull(f, magic)
	return err == nil && string(magic) == magicNumber
}

// Open opens the file at path, and the other parts if it is the first of several. On Unix
// systems the files are mapped and must not change while they are open; see Intact.
// Elsewhere they are read into memory.
func Open(path string) (*File, error) {
	first, err := openPart(path)
	if err != nil {
		return nil, fmt.Errorf("gguf: %w", err)
	}
	f := &File{name: path, parts: []*part{first}, keys: first.keys, values: first.values}
	if err := f.openParts(); err != nil {
		return nil, errors.Join(fmt.Errorf("gguf: %w", err), f.Close())
	}
	return f, nil
}

// Parse opens a whole file that is in memory. Data is kept, not copied, and must not
// change while the File is in use. Name stands for the file in error messages.
func Parse(data []byte, name string) (*File, error) {
	p, err := parsePart(data)
	if err != nil {
		return nil, fmt.Errorf("gguf: %s: %w", name, err)
	}
	f := &File{name: name, parts: []*part{p}, keys: p.keys, values: p.values}
	count, err := p.splitCount()
	if err == nil && count > 1 {
		err = fmt.Errorf("key %q is %d, want 1 for a file in memory", splitCountKey, count)
	}
	if err == nil {
		err = f.collect()
	}
	if err != nil {
		return nil, fmt.Errorf("gguf: %s: %w", name, err)
	}
	return f, nil
}

// The keys of split files.
const (
	splitNumberKey  = "split.no" // from 0
	splitCountKey   = "split.count"
	splitTensorsKey = "split.tensors.count" // of all parts
)

// partNames are those of split files: the number of the part, from 1, and of all.
var partNames = regexp.MustCompile(`^(.*)-(\d{5})-of-(\d{5})\.gguf$`)

// maxParts is the largest number that the names of parts have room for, and that the
// type of the key has.
const maxParts = 1<<16 - 1

// integer returns an integer of the metadata, or a default.
func (p *part) integer(key string, otherwise, from, to int64) (int, error) {
	n := otherwise
	if v, ok := p.values[key]; ok {
		var err error
		if n, err = v.integer(); err != nil {
			return 0, fmt.Errorf("key %q %w", key, err)
		}
	}
	switch {
	case n != from && from == to:
		return 0, fmt.Errorf("key %q is %d, want %d", key, n, from)
	case n < from || n > to:
		return 0, fmt.Errorf("key %q is %d, want %d to %d", key, n, from, to)
	}
	return int(n), nil
}

// splitCount is the number of parts. 0 in a file means that it is not split.
func (p *part) splitCount() (int, error) {
	n, err := p.integer(splitCountKey, 1, 0, maxParts)
	return max(n, 1), err
}

// openParts opens the parts after the first and collects the tensors of all.
func (f *File) openParts() error {
	first := f.parts[0]
	count, err := first.splitCount()
	if err != nil {
		return fmt.Errorf("%s: %w", f.name, err)
	}
	if count > 1 {
		dir, base := filepath.Split(f.name)
		name := partNames.FindStringSubmatch(base)
		if name == nil || name[3] != fmt.Sprintf("%05d", count) {
			return fmt.Errorf("%s: key %q is %d, want the name of the file to end with -00001-of-%05d.gguf", f.name, splitCountKey, count, count)
		}
		if err := first.checkNumber(0, count); err != nil {
			return fmt.Errorf("%s: %w; open the first part, %s-00001-of-%05d.gguf", f.name, err, name[1], count)
		}
		if number, _ := strconv.Atoi(name[2]); number != 1 {
			return fmt.Errorf("%s: the name says part %d and key %q says the first", f.name, number, splitNumberKey)
		}
		for i := 1; i < count; i++ {
			if err := f.openPart(partPath(dir, name[1], i, count), i, count); err != nil {
				return err
			}
		}
	}
	if err := f.collect(); err != nil {
		return fmt.Errorf("%s: %w", f.name, err)
	}
	return nil
}

func (f *File) openPart(path string, number, count int) error {
	p, err := openPart(path)
	if errors.Is(err, fs.ErrNotExist) {
		// fs.ErrNotExist is not wrapped: the model exists and is incomplete.
		return fmt.Errorf("%s: part %d of %d, %s, %w", f.name, number+1, count, filepath.Base(path), ErrIncomplete)
	}
	if err != nil {
		return err
	}
	f.parts = append(f.parts, p)
	if err := p.checkNumber(number, count); err != nil {
		return fmt.Errorf("%s: %w", path, err)
	}
	return nil
}

// checkNumber checks that a part says that it is the one of its name.
func (p *part) checkNumber(number, count int) error {
	n, err := p.integer(splitNumberKey, -1, int64(number), int64(number))
	if err == nil && n == number {
		_, err = p.integer(splitCountKey, 0, int64(count), int64(count))
	}
	return err
}

// collect collects the tensors of all parts by name.
func (f *File) collect() error {
	total := 0
	for _, p := range f.parts {
		total += len(p.tensors)
	}
	if want, err := f.parts[0].integer(splitTensorsKey, int64(total), 0, maxTensors); err != nil {
		return err
	} else if want != total {
		return fmt.Errorf("key %q is %d, but the %d parts have %d tensors", splitTensorsKey, want, len(f.parts), total)
	}
	f.tensors = make(map[string]tensor, total)
	for _, p := range f.parts {
		for _, t := range p.tensors {
			if _, ok := f.tensors[t.name]; ok {
				return fmt.Errorf("tensor %q comes twice", t.name)
			}
			f.tensors[t.name] = t
		}
	}
	return nil
}

// Name is the path of the first part.
func (f *File) Name() string { return f.name }

// Version is the version of the format.
func (f *File) Version() int { return int(f.parts[0].version) }

// Parts is the number of files.
func (f *File) Parts() int { return len(f.parts) }

// Keys lists the keys of the metadata in the order of the file.
func (f *File) Keys() []string { return slices.Clone(f.keys) }

// Has reports whether the metadata has a key.
func (f *File) Has(key string) bool {
	_, ok := f.values[key]
	return ok
}

// Diffuse is the architecture of files of diffuse-cpp, which name the model under another
// key.
const Diffuse = "diffuse"

// ArchitectureKey is the key under which files of llama.cpp name their model.
const ArchitectureKey = "general.architecture"

// ArchitectureKey is the key under which a file names its model.
func (f *File) ArchitectureKey() string {
	if name, _, err := f.String(ArchitectureKey); err == nil && name == Diffuse {
		return "diffuse.model_type"
	}
	return ArchitectureKey
}

// Architecture is the name of the file's model, such as "llada"; it is empty if the file
// has none.
func (f *File) Architecture() (string, error) {
	name, _, err := f.String(f.ArchitectureKey())
	return name, err
}

// Raw returns the value under a key as it is in the file, without its type.
func (f *File) Raw(key string) []byte { return bytes.Clone(f.values[key].data) }

// Names lists the tensors in ascending order.
func (f *File) Names() []string { return slices.Sorted(maps.Keys(f.tensors)) }

// Tensor returns the named tensor without copying its data; see safetensors.Source.
func (f *File) Tensor(name string) (safetensors.Tensor, error) {
	if f.closed {
		return safetensors.Tensor{}, fmt.Errorf("gguf: %s: tensor %q: %w", f.name, name, fs.ErrClosed)
	}
	t, ok := f.tensors[name]
	if !ok {
		return safetensors.Tensor{}, fmt.Errorf("gguf: %s: %w: %q", f.name, safetensors.ErrNotFound, name)
	}
	info := safetensors.Info{Name: name, DType: t.typ, Shape: slices.Clone(t.shape)}
	return safetensors.Tensor{Info: info, Data: t.data}, nil
}

// Intact reports a file that has changed since it was opened; see safetensors.Source.
func (f *File) Intact() error {
	for _, p := range f.parts {
		if f.closed || p.mapping == nil {
			continue
		}
		if err := p.mapping.Intact(); err != nil {
			return fmt.Errorf("gguf: %w", err)
		}
	}
	return nil
}

// Close releases the files; see safetensors.Source.
func (f *File) Close() error {
	if f.closed {
		return nil
	}
	f.closed = true
	f.tensors = nil
	var errs []error
	for _, p := range f.parts {
		if err := p.close(); err != nil {
			errs = append(errs, fmt.Errorf("gguf: %w", err))
		}
	}
	return errors.Join(errs...)
}

// PartPaths returns the paths that the parts of a file may have, of which path is one.
func PartPaths(path string) []string {
	dir, base := filepath.Split(path)
	name := partNames.FindStringSubmatch(base)
	if name == nil {
		return []string{path}
	}
	count, _ := strconv.Atoi(name[3])
	var paths []string
	for i := range count {
		paths = append(paths, partPath(dir, name[1], i, count))
	}
	return paths
}

// partPath is the path of the part with a number from 0.
func partPath(dir, name string, number, count int) string {
	return filepath.Join(dir, fmt.Sprintf("%s-%05d-of-%05d.gguf", name, number+1, count))
}
