package safetensors

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"slices"

	"github.com/pulsecol/pulsecol/internal/mapped"
)

// File is one open safetensors file.
type File struct {
	name     string // for errors
	names    []string
	tensors  map[string]Tensor
	metadata map[string]string
	mapping  *mapped.File // nil if the data came with Parse
	closed   bool
}

// Open opens the file at path. On Unix systems the file is mapped and must not change
// while it is open; see Intact. Elsewhere it is read into memory.
func Open(path string) (*File, error) {
	m, err := mapped.Open(path)
	if err != nil {
		return nil, fmt.Errorf("safetensors: %w", err)
	}
	f := &File{name: path, mapping: m}
	if err := mapped.Guard(func() error { return f.parse(m.Data) }); err != nil {
		_ = m.Close() // the error to report is that of the malformed file
		if errors.Is(err, mapped.ErrLost) {
			return nil, fmt.Errorf("safetensors: %w", err)
		}
		return nil, fmt.Errorf("safetensors: %s: %w", path, err)
	}
	return f, nil
}

// Parse opens a file that is in memory. Data is kept, not copied, and must not
// change while the File is in use. Name stands for the file in error messages.
func Parse(data []byte, name string) (*File, error) {
	f := &File{name: name}
	if err := f.parse(data); err != nil {
		return nil, fmt.Errorf("safetensors: %s: %w", name, err)
	}
	return f, nil
}

func (f *File) parse(data []byte) error {
	header, body, err := split(data)
	if err != nil {
		return err
	}
	h, err := parseHeader(header)
	if err != nil {
		return fmt.Errorf("header: %w", err)
	}
	if err := h.checkLayout(len(body)); err != nil {
		return err
	}
	f.metadata = h.metadata
	f.tensors = make(map[string]Tensor, len(h.entries))
	for _, e := range h.entries {
		f.tensors[e.Name] = Tensor{Info: e.Info, Data: body[e.begin:e.end:e.end]}
	}
	f.names = slices.Sorted(maps.Keys(f.tensors))
	return nil
}

// split cuts a file into its header and the bytes of its tensors.
func split(data []byte) (header, body []byte, err error) {
	if len(data) < lengthSize {
		return nil, nil, fmt.Errorf("%d bytes are too few for a header length, which takes %d", len(data), lengthSize)
	}
	n := binary.LittleEndian.Uint64(data)
	rest := data[lengthSize:]
	if n > maxHeader {
		return nil, nil, fmt.Errorf("header length %d is over the limit of %d: not a safetensors file?", n, maxHeader)
	}
	if n > uint64(len(rest)) {
		return nil, nil, fmt.Errorf("header length is %d, but only %d bytes follow: file cut short?", n, len(rest))
	}
	return rest[:n], rest[n:], nil
}

// Names lists the tensors in ascending order.
func (f *File) Names() []string { return slices.Clone(f.names) }

// Metadata returns a copy of the header's "__metadata__" strings.
func (f *File) Metadata() map[string]string { return maps.Clone(f.metadata) }

// Tensor returns the named tensor; see Source.
func (f *File) Tensor(name string) (Tensor, error) {
	if f.closed {
		return Tensor{}, fmt.Errorf("safetensors: %s: tensor %q: %w", f.name, name, fs.ErrClosed)
	}
	t, ok := f.tensors[name]
	if !ok {
		return Tensor{}, fmt.Errorf("safetensors: %s: %w: %q", f.name, ErrNotFound, name)
	}
	t.Shape = slices.Clone(t.Shape)
	return t, nil
}

// Close releases the file; see Source.
func (f *File) Close() error {
	if f.closed {
		return nil
	}
	f.closed = true
	f.tensors = nil
	if f.mapping == nil {
		return nil
	}
	if err := f.mapping.Close(); err != nil {
		return fmt.Errorf("safetensors: %s: %w", f.name, err)
	}
	return nil
}

// Intact reports a file that has changed since it was opened; see Source.
func (f *File) Intact() error {
	if f.closed || f.mapping == nil {
		return nil
	}
	if err := f.mapping.Intact(); err != nil {
		return fmt.Errorf("safetensors: %w", err)
	}
	return nil
}
