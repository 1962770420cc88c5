//go:build unix

package infile

import (
	"errors"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// TestSpecialFiles: nothing hangs, and nothing is read to no end.
func TestSpecialFiles(t *testing.T) {
	dir := t.TempDir()
	pipe := filepath.Join(dir, "pipe")
	if err := unix.Mkfifo(pipe, 0o600); err != nil {
		t.Fatal(err)
	}
	zero := filepath.Join(dir, "zero")
	if err := os.Symlink("/dev/zero", zero); err != nil {
		t.Fatal(err)
	}
	for path, want := range map[string]string{pipe: "is a named pipe, want", zero: "is a device, want", "/dev/zero": "is a device, want"} {
		for _, read := range []func() ([]byte, error){
			func() ([]byte, error) { return Read(path, prompt) },
			func() ([]byte, error) { return ReadFS(Dir(filepath.Dir(path)), filepath.Base(path), prompt) },
			func() ([]byte, error) { return ReadFS(os.DirFS(filepath.Dir(path)), filepath.Base(path), prompt) },
			func() ([]byte, error) { _, err := Dir(filepath.Dir(path)).Open(filepath.Base(path)); return nil, err },
		} {
			if _, err := read(); !errors.Is(err, ErrNotRegular) || !strings.Contains(err.Error(), want) {
				t.Errorf("%s: error %v, want %q", path, err, want)
			}
		}
	}
}

// TestDescriptor: a shell's <(command) names a pipe that is open already.
func TestDescriptor(t *testing.T) {
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	if _, err := w.WriteString("hello"); err != nil {
		t.Fatal(err)
	}
	w.Close()
	path := "/dev/fd/" + strconv.Itoa(int(r.Fd()))
	if data, err := Read(path, prompt); string(data) != "hello" || err != nil {
		t.Errorf("%s: %q, %v", path, data, err)
	}
}

// TestOwnOutput: what the process writes to a pipe never ends while it reads it.
func TestOwnOutput(t *testing.T) {
	for path, want := range map[string]bool{
		"/dev/stdin": true, "/dev/fd/0": true, "/dev/fd/63": true, "/proc/self/fd/12": true,
		"/dev/fd/1": false, "/dev/fd/2": false, "/proc/self/fd/1": false, "/dev/stdout": false, "/dev/fd": false, "file": false,
	} {
		if got := isDescriptor(path); got != want {
			t.Errorf("%s: %v, want %v", path, got, want)
		}
	}
}
