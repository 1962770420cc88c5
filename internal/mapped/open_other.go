//go:build !unix

package mapped

import (
	"fmt"
	"io"

	"github.com/pulsecol/pulsecol/internal/infile"
)

// Open reads the regular file at path into memory.
func Open(path string) (*File, error) {
	f, size, err := infile.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	m := &File{path: path, Data: make([]byte, size)}
	if _, err := io.ReadFull(f, m.Data); err != nil {
		return nil, fmt.Errorf("read %s: %w", path, err)
	}
	return m, nil
}

// Close does nothing: the garbage collector frees the memory.
func (f *File) Close() error { return nil }
