package infile

import (
	"bufio"
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/fstest"
)

var prompt = Limit{1000, "a prompt"}

func write(t *testing.T, name string, size int64) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), name)
	if err := os.WriteFile(path, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Truncate(path, size); err != nil { // sparse
		t.Fatal(err)
	}
	return path
}

func TestRead(t *testing.T) {
	path := write(t, "f", 1000)
	dir, name := Dir(filepath.Dir(path)), filepath.Base(path)
	for _, read := range []func() ([]byte, error){
		func() ([]byte, error) { return Read(path, prompt) },
		func() ([]byte, error) { return ReadFS(dir, name, prompt) },
		func() ([]byte, error) { return ReadFS(fstest.MapFS{"f": {Data: make([]byte, 1000)}}, "f", prompt) },
		func() ([]byte, error) { return ReadAll(strings.NewReader(strings.Repeat("x", 1000)), "f", prompt) },
	} {
		if data, err := read(); len(data) != 1000 || err != nil {
			t.Errorf("%d bytes, %v, want 1000", len(data), err)
		}
	}
	if err := os.Symlink(path, path+".link"); err == nil {
		if data, err := ReadFS(dir, name+".link", prompt); len(data) != 1000 || err != nil {
			t.Errorf("through a link: %d bytes, %v, want 1000", len(data), err)
		}
	}
}

// TestDangling: a link to no file is not a file that may be absent.
func TestDangling(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "f")
	if err := os.Symlink("nowhere", path); err != nil {
		t.Skip(err)
	}
	for _, read := range []func() ([]byte, error){
		func() ([]byte, error) { return Read(path, prompt) },
		func() ([]byte, error) { return ReadFS(Dir(dir), "f", prompt) },
		func() ([]byte, error) { _, err := Dir(dir).Open("f"); return nil, err },
	} {
		_, err := read()
		if want := path + " is a link to nowhere, which does not exist"; err == nil || err.Error() != want {
			t.Errorf("error %v, want %s", err, want)
		}
		if !errors.Is(err, ErrDangling) || errors.Is(err, fs.ErrNotExist) {
			t.Errorf("error %v, want ErrDangling and not fs.ErrNotExist", err)
		}
	}
}

func TestReadTooLarge(t *testing.T) {
	path := write(t, "f", 5<<30)
	dir := Dir(filepath.Dir(path))
	for _, c := range []struct {
		read func() ([]byte, error)
		want string
	}{
		{func() ([]byte, error) { return Read(path, Limit{16 << 20, "a configuration"}) }, path + " is 5 GiB, more than the 16 MiB that a configuration may have"},
		{func() ([]byte, error) { return ReadFS(dir, "f", prompt) }, path + " is 5 GiB, more than the 1000 B that a prompt may have"},
		{func() ([]byte, error) { return ReadFS(fstest.MapFS{"f": {Data: make([]byte, 1001)}}, "f", prompt) }, "f is 1001 B, more than"},
		{func() ([]byte, error) { return ReadAll(endless{}, "standard input", prompt) }, "standard input is more than the 1000 B that a prompt may have"},
	} {
		if data, err := c.read(); data != nil || !errors.Is(err, ErrTooLarge) || !strings.HasPrefix(err.Error(), c.want) {
			t.Errorf("%d bytes, error %v, want %s", len(data), err, c.want)
		}
	}
}

func TestReadMissing(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "f")
	for _, read := range []func() ([]byte, error){
		func() ([]byte, error) { return Read(path, prompt) },
		func() ([]byte, error) { return ReadFS(Dir(dir), "f", prompt) },
	} {
		if _, err := read(); !errors.Is(err, fs.ErrNotExist) || !strings.Contains(err.Error(), path) {
			t.Errorf("error %v, want fs.ErrNotExist of %s", err, path)
		}
	}
	if _, err := Dir(dir).Open("../f"); !errors.Is(err, fs.ErrInvalid) {
		t.Errorf("outside the directory: error %v, want fs.ErrInvalid", err)
	}
	if _, err := Read(dir, prompt); !errors.Is(err, ErrNotRegular) || err.Error() != dir+" is a directory, want a regular file" {
		t.Errorf("a directory: error %v", err)
	}
}

// endless is /dev/zero.
type endless struct{}

func (endless) Read(p []byte) (int, error) { clear(p); return len(p), nil }

func TestReadLine(t *testing.T) {
	long := strings.Repeat("x", 5000) // more than the reader's buffer
	r := bufio.NewReader(strings.NewReader("a\n\n" + long + "\nend"))
	limit := Limit{5001, "a line"}
	for _, want := range []string{"a\n", "\n", long + "\n", "end"} {
		if line, err := ReadLine(r, "line", limit); string(line) != want || err != nil {
			t.Errorf("got %.20q, %v, want %.20q", line, err, want)
		}
	}
	if line, err := ReadLine(r, "line", limit); len(line) != 0 || err != io.EOF {
		t.Errorf("at the end: %q, %v", line, err)
	}
	_, err := ReadLine(bufio.NewReader(endless{}), "line 1", limit)
	if !errors.Is(err, ErrTooLarge) || err.Error() != "line 1 is more than the 4.9 KiB that a line may have" {
		t.Errorf("an endless line: %v", err)
	}
}
