//go:build !unix

package safetensors

import (
	"fmt"
	"io"
)

// load reads the file at path into memory; there is nothing to release.
func load(path string) (data []byte, release func() error, err error) {
	f, size, err := openRegular(path)
	if err != nil {
		return nil, nil, err
	}
	defer f.Close()
	data = make([]byte, size)
	if _, err := io.ReadFull(f, data); err != nil {
		return nil, nil, fmt.Errorf("read %s: %w", path, err)
	}
	return data, nil, nil
}
