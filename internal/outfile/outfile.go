// Package outfile writes files that appear complete or not at all.
//
// A file is written under a temporary name in its own directory, flushed to the
// disk and renamed, so that a full disk, a crash or an interrupt leaves the old file
// or none. A process that is killed may leave the temporary file, .pulsecol-*.tmp.
//
// Libraries for this do not fit: github.com/google/renameio has no Windows, and
// github.com/natefinch/atomic makes files that their owner alone can read.
package outfile

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"math/rand/v2"
	"os"
	"path/filepath"
)

// Check reports whether [Write] can write path: path is a regular file or does not
// exist, it is not read-only, and its directory takes new files. It creates no file that
// stays.
func Check(path string) error {
	path, _, err := target(path)
	if err != nil {
		return err
	}
	f, err := createTemp(path)
	if err != nil {
		return err
	}
	return errors.Join(f.Close(), os.Remove(f.Name()))
}

// CheckDir makes the directory dir, with its parents, and reports whether it takes
// new files.
func CheckDir(dir string) error {
	if err := os.MkdirAll(dir, 0o777); err != nil {
		return err
	}
	f, err := createTemp(filepath.Join(dir, "new"))
	if err != nil {
		return err
	}
	return errors.Join(f.Close(), os.Remove(f.Name()))
}

// Write replaces the file at path by what write writes. A symbolic link is followed,
// an existing file keeps its permissions. After an error, which may be write's own
// and names the path, the old file is as it was.
func Write(path string, write func(io.Writer) error) error {
	path, mode, err := target(path)
	if err != nil {
		return err
	}
	f, err := createTemp(path)
	if err != nil {
		return err
	}
	err = write(f)
	if err == nil && mode != 0 {
		err = f.Chmod(mode)
	}
	if err == nil {
		err = f.Sync() // else a crash after the rename could leave an empty file
	}
	if closeErr := f.Close(); err == nil {
		err = closeErr
	}
	if err == nil {
		err = os.Rename(f.Name(), path)
	}
	if err != nil {
		_ = os.Remove(f.Name())
		return fmt.Errorf("%s: %w", path, cause(err))
	}
	return nil
}

// target follows symbolic links to what a file is to replace, and returns its
// permissions; 0 if there is none.
func target(path string) (string, fs.FileMode, error) {
	resolved, err := filepath.EvalSymlinks(path)
	switch {
	case err == nil:
		path = resolved
	case errors.Is(err, fs.ErrNotExist):
		if path, err = linked(path); err != nil {
			return "", 0, err
		}
	}
	switch info, err := os.Stat(path); {
	case errors.Is(err, fs.ErrNotExist):
		return path, 0, nil
	case err != nil:
		return "", 0, err
	case info.IsDir():
		return "", 0, fmt.Errorf("%s: is a directory, not a regular file", path)
	case !info.Mode().IsRegular():
		return "", 0, fmt.Errorf("%s: is not a regular file", path)
	case info.Mode()&0o200 == 0: // which a rename would not stop at
		return "", 0, fmt.Errorf("%s: is read-only", path)
	default:
		return path, info.Mode().Perm(), nil
	}
}

// linked follows a symbolic link to a file that does not exist yet.
func linked(path string) (string, error) {
	const most = 40 // links, as in the kernel of Linux
	for range most {
		to, err := os.Readlink(path)
		if err != nil {
			return path, nil // what there is to say about it, making it says
		}
		if !filepath.IsAbs(to) {
			dir, err := filepath.EvalSymlinks(filepath.Dir(path))
			if err != nil {
				return "", err
			}
			to = filepath.Join(dir, to)
		}
		path = to
	}
	return "", fmt.Errorf("%s: too many links", path)
}

// createTemp makes a temporary file in path's directory. [os.CreateTemp] would leave the
// result readable by its owner alone.
func createTemp(path string) (*os.File, error) {
	temp := filepath.Join(filepath.Dir(path), fmt.Sprintf(".pulsecol-%016x.tmp", rand.Uint64()))
	f, err := os.OpenFile(temp, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o666)
	if err != nil {
		return nil, fmt.Errorf("%s: cannot be written: %w", path, cause(err))
	}
	return f, nil
}

// cause is err without the temporary name that it is about.
func cause(err error) error {
	var at *fs.PathError
	var between *os.LinkError
	switch {
	case errors.As(err, &at):
		return at.Err
	case errors.As(err, &between):
		return between.Err
	}
	return err
}
