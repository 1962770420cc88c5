package safetensors

import (
	"encoding/binary"
	"fmt"
	"io/fs"
	"maps"
	"math"
	"os"
	"slices"

	"github.com/pulsecol/pulsecol/internal/infile"
)

// File is one open safetensors file.
type File struct {
	name     string // for errors
	names    []string
	tensors  map[string]Tensor
	metadata map[string]string
	release  func() error // gives the data back; nil when the garbage collector does
	closed   bool
}

// Open opens the file at path. On Unix systems the file is mapped: it must not be
// shortened while it is open, which would end the process at the next access.
// Elsewhere it is read into memory.
func Open(path string) (*File, error) {
	data, release, err := load(path)
	if err != nil {
		return nil, fmt.Errorf("safetensors: %w", err)
	}
	f, err := Parse(data, path)
	if err != nil {
		if release != nil {
			_ = release() // the file is malformed: that is the error to report
		}
		return nil, err
	}
	f.release = release
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
	if f.release == nil {
		return nil
	}
	if err := f.release(); err != nil {
		return fmt.Errorf("safetensors: %s: %w", f.name, err)
	}
	return nil
}

// openRegular opens the file at path and returns its size.
func openRegular(path string) (*os.File, int, error) {
	f, size, err := infile.Open(path)
	if err != nil {
		return nil, 0, err
	}
	info, err := f.Stat()
	switch {
	case err != nil:
	case !info.Mode().IsRegular():
		err = fmt.Errorf("%s is a stream, want a regular file", path)
	case size > math.MaxInt:
		err = fmt.Errorf("%s: %d bytes are more than this platform addresses", path, size)
	}
	if err != nil {
		_ = f.Close()
		return nil, 0, err
	}
	return f, int(size), nil
}
