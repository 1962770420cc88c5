//go:build unix

package mapped

import (
	"errors"
	"fmt"
	"math"

	"github.com/pulsecol/pulsecol/internal/infile"
	"golang.org/x/sys/unix"
)

// Open maps the regular file at path until Close.
func Open(path string) (*File, error) {
	f, _, err := infile.Open(path)
	if err != nil {
		return nil, err
	}
	info, err := f.Stat()
	switch {
	case err != nil:
	case !info.Mode().IsRegular():
		err = fmt.Errorf("%s is a stream, want a regular file", path)
	case info.Size() > math.MaxInt:
		err = fmt.Errorf("%s: %d bytes are more than this platform addresses", path, info.Size())
	}
	if err == nil && info.Size() == 0 { // mmap refuses an empty range
		return &File{path: path}, f.Close()
	}
	m := &File{path: path, file: f}
	if err == nil {
		m.size, m.changed = info.Size(), info.ModTime()
		if m.Data, err = unix.Mmap(int(f.Fd()), 0, int(m.size), unix.PROT_READ, unix.MAP_SHARED); err != nil {
			err = fmt.Errorf("map %s: %w", path, err)
		}
	}
	if err != nil {
		_ = f.Close()
		return nil, err
	}
	m.register()
	return m, nil
}

// Close unmaps the file. Data must not be read any more.
func (f *File) Close() error {
	if f.file == nil {
		return nil
	}
	f.unregister()
	err := errors.Join(unix.Munmap(f.Data), f.file.Close())
	f.Data, f.file = nil, nil
	return err
}
