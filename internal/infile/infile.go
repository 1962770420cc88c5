// Package infile reads files that users name and that model directories hold. It
// opens regular files alone, so that a pipe without a writer cannot hang a program,
// and reads no more than a limit, so that an endless or sparse file cannot fill the
// memory.
package infile

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
)

// Limit is the size of the largest file that Read accepts.
type Limit struct {
	Bytes int64
	What  string // that the file holds, with an article: "a prompt"
}

// Configuration is the limit of a model's config.json and generation_config.json, which
// have a few kilobytes.
var Configuration = Limit{1 << 20, "a configuration"}

// Errors that callers may test for with errors.Is.
var (
	// ErrNotRegular: the file is a directory, a named pipe, a socket or a device.
	ErrNotRegular = errors.New("not a regular file")
	// ErrTooLarge: the file is above the limit.
	ErrTooLarge = errors.New("too large")
	// ErrDangling: a symbolic link leads to no file. It is not fs.ErrNotExist: a file
	// that may be absent is there, and its content is missing.
	ErrDangling = errors.New("a link to no file")
)

// fileError has a text of its own and wraps a sentinel.
type fileError struct {
	text     string
	sentinel error
}

func (e *fileError) Error() string { return e.text }
func (e *fileError) Unwrap() error { return e.sentinel }

// Open opens a regular file and returns its size. Streams that the process has open
// already, such as /dev/stdin and the /dev/fd/63 of a shell's <(command), have the
// size 0; every other file that is not regular is refused before it is opened.
func Open(path string) (*os.File, int64, error) {
	info, err := stat(path)
	if err != nil {
		return nil, 0, openError(err)
	}
	stream := isDescriptor(path) && !info.IsDir()
	if !stream {
		if err := checkRegular(path, info); err != nil {
			return nil, 0, err
		}
	}
	f, err := os.Open(path)
	if err != nil {
		return nil, 0, err
	}
	if !info.Mode().IsRegular() {
		return f, 0, nil
	}
	return f, info.Size(), nil
}

// stat is os.Stat that tells a link to no file from no file.
func stat(path string) (fs.FileInfo, error) {
	info, err := os.Stat(path)
	if errors.Is(err, fs.ErrNotExist) {
		if to, linkErr := os.Readlink(path); linkErr == nil {
			return nil, &fileError{fmt.Sprintf("%s is a link to %s, which does not exist", path, to), ErrDangling}
		}
	}
	return info, err
}

// openError makes the error of a look at a file that of opening it.
func openError(err error) error {
	if e := new(fs.PathError); errors.As(err, &e) {
		return &fs.PathError{Op: "open", Path: e.Path, Err: e.Err}
	}
	return err
}

// isDescriptor reports whether path names a file descriptor of the process that it may
// read. It waits for ever for what comes out of a pipe that it writes to itself, as its
// standard output and error may be.
func isDescriptor(path string) bool {
	path = filepath.ToSlash(filepath.Clean(path))
	if path == "/dev/stdin" {
		return true
	}
	for _, folder := range []string{"/dev/fd/", "/proc/self/fd/"} {
		if number, ok := strings.CutPrefix(path, folder); ok {
			return number != "1" && number != "2"
		}
	}
	return false
}

func checkRegular(name string, info fs.FileInfo) error {
	if info.Mode().IsRegular() {
		return nil
	}
	kind := "not a regular file"
	switch mode := info.Mode(); {
	case mode.IsDir():
		kind = "a directory"
	case mode&fs.ModeNamedPipe != 0:
		kind = "a named pipe"
	case mode&fs.ModeSocket != 0:
		kind = "a socket"
	case mode&fs.ModeDevice != 0:
		kind = "a device"
	}
	return &fileError{fmt.Sprintf("%s is %s, want a regular file", name, kind), ErrNotRegular}
}

// Read reads the file at path; see Open.
func Read(path string, limit Limit) ([]byte, error) {
	f, size, err := Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	return read(f, path, size, limit)
}

// ReadFS reads the named file of fsys. Errors name it as Name does.
func ReadFS(fsys fs.FS, name string, limit Limit) ([]byte, error) {
	full := Name(fsys, name)
	info, err := fs.Stat(fsys, name)
	if err != nil {
		return nil, openError(err)
	}
	if err := checkRegular(full, info); err != nil {
		return nil, err
	}
	f, err := fsys.Open(name)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	return read(f, full, info.Size(), limit)
}

// ReadAll reads r to its end. name stands for it in errors.
func ReadAll(r io.Reader, name string, limit Limit) ([]byte, error) {
	return read(r, name, 0, limit)
}

func read(r io.Reader, name string, size int64, limit Limit) ([]byte, error) {
	if size > limit.Bytes {
		return nil, &fileError{fmt.Sprintf("%s is %s, more than the %s that %s may have", name, Size(size), Size(limit.Bytes), limit.What), ErrTooLarge}
	}
	data, err := io.ReadAll(io.LimitReader(r, limit.Bytes+1))
	if err != nil {
		return nil, fmt.Errorf("read %s: %w", name, err)
	}
	if int64(len(data)) > limit.Bytes {
		return nil, &fileError{fmt.Sprintf("%s is more than the %s that %s may have", name, Size(limit.Bytes), limit.What), ErrTooLarge}
	}
	return data, nil
}

// ReadLine returns the next line of r with its newline, which the last line may lack.
// At the end of r it returns io.EOF and no line. name stands for the line in errors.
func ReadLine(r *bufio.Reader, name string, limit Limit) ([]byte, error) {
	var line []byte
	for {
		part, err := r.ReadSlice('\n')
		line = append(line, part...)
		switch {
		case int64(len(line)) > limit.Bytes:
			return nil, &fileError{fmt.Sprintf("%s is more than the %s that %s may have", name, Size(limit.Bytes), limit.What), ErrTooLarge}
		case err == bufio.ErrBufferFull:
		case err == io.EOF && len(line) > 0:
			return line, nil
		default:
			return line, err
		}
	}
}

// Dir is os.DirFS for directories that may hold anything: it opens regular files
// and directories alone, and its errors give full paths.
type Dir string

// Open opens the named file or directory.
func (d Dir) Open(name string) (fs.File, error) {
	info, err := d.Stat(name)
	if err != nil {
		return nil, openError(err)
	}
	path := filepath.Join(string(d), filepath.FromSlash(name))
	if !info.IsDir() {
		if err := checkRegular(path, info); err != nil {
			return nil, err
		}
	}
	return os.Open(path)
}

// Stat describes the named file, or the one that a symbolic link leads to.
func (d Dir) Stat(name string) (fs.FileInfo, error) {
	if !fs.ValidPath(name) {
		return nil, &fs.PathError{Op: "stat", Path: name, Err: fs.ErrInvalid}
	}
	return stat(filepath.Join(string(d), filepath.FromSlash(name)))
}

var _ fs.StatFS = Dir("")

// Name returns what errors call the named file of fsys: its path, if fsys is a Dir.
func Name(fsys fs.FS, name string) string {
	if d, ok := fsys.(Dir); ok {
		return filepath.Join(string(d), filepath.FromSlash(name))
	}
	return name
}

// Size formats a number of bytes for people.
func Size(n int64) string {
	units := []string{"B", "KiB", "MiB", "GiB", "TiB", "PiB"}
	x, u := float64(n), 0
	for ; x >= 1024 && u < len(units)-1; u++ {
		x /= 1024
	}
	if u == 0 || x == float64(int64(x)) {
		return fmt.Sprintf("%.0f %s", x, units[u])
	}
	return fmt.Sprintf("%.1f %s", x, units[u])
}
