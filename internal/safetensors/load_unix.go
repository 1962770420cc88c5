//go:build unix

package safetensors

import (
	"fmt"

	"golang.org/x/sys/unix"
)

// load maps the file at path. release unmaps it.
func load(path string) (data []byte, release func() error, err error) {
	f, size, err := openRegular(path)
	if err != nil {
		return nil, nil, err
	}
	defer f.Close() // the mapping outlives the descriptor
	if size == 0 {
		return nil, nil, nil // mmap refuses an empty range
	}
	data, err = unix.Mmap(int(f.Fd()), 0, size, unix.PROT_READ, unix.MAP_SHARED)
	if err != nil {
		return nil, nil, fmt.Errorf("map %s: %w", path, err)
	}
	return data, func() error { return unix.Munmap(data) }, nil
}
