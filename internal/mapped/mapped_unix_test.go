//go:build unix

package mapped

import (
	"bytes"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func open(t *testing.T, size int) (*File, string) {
	t.Helper()
	path := filepath.Join(t.TempDir(), "f")
	if err := os.WriteFile(path, bytes.Repeat([]byte{1}, size), 0o600); err != nil {
		t.Fatal(err)
	}
	f, err := Open(path)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := f.Close(); err != nil {
			t.Error(err)
		}
	})
	return f, path
}

// sum must not be inlined: the compiler leaves out reads whose results are not used.
//
//go:noinline
func (f *File) sum() (n int) {
	for _, b := range f.Data {
		n += int(b)
	}
	return n
}

func TestOpen(t *testing.T) {
	for _, size := range []int{0, 1, 4096, 10000} {
		f, _ := open(t, size)
		if got := f.sum(); got != size || len(f.Data) != size {
			t.Errorf("%d bytes of sum %d, want %d", len(f.Data), got, size)
		}
		if err := f.Intact(); err != nil {
			t.Error(err)
		}
		for range 2 {
			if err := f.Close(); err != nil {
				t.Error(err)
			}
		}
		if err := f.Intact(); err != nil {
			t.Errorf("after Close: %v", err)
		}
	}
	if _, err := Open(filepath.Join(t.TempDir(), "f")); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("error %v, want fs.ErrNotExist", err)
	}
}

// TestGuard: reading what is no longer there is an error that names the file, in Go
// code and in the assembly of copy; other panics pass.
func TestGuard(t *testing.T) {
	f, path := open(t, 100<<10)
	other, _ := open(t, 100<<10)
	if err := os.Truncate(path, 5<<10); err != nil {
		t.Fatal(err)
	}
	for name, read := range map[string]func(){
		"Go":   func() { f.sum() },
		"copy": func() { copy(make([]byte, len(f.Data)), f.Data) },
	} {
		err := Guard(func() error { read(); return nil })
		if want := path + " was cut short while in use: from 100 KiB to 5 KiB"; err == nil || err.Error() != want || !errors.Is(err, ErrLost) {
			t.Errorf("%s: error %v, want %s", name, err, want)
		}
	}
	if err := Guard(func() error { other.sum(); return fs.ErrInvalid }); err != fs.ErrInvalid {
		t.Errorf("error %v, want that of the function", err)
	}
	defer func() {
		if recover() == nil {
			t.Error("a panic that is no fault did not pass")
		}
	}()
	_ = Guard(func() error { panic("other") })
}

// TestFault: what Go calls a nil pointer is a fault of a file only if one has changed,
// and other panics never are.
func TestFault(t *testing.T) {
	f, path := open(t, 10000)
	panicked := func(f func()) (r any) {
		defer func() { r = recover() }()
		f()
		return nil
	}
	var null *File
	noAddress := panicked(func() { null.size++ })
	index := panicked(func() { _ = f.Data[len(path)+20000] })
	for range 2 {
		if err := Fault(index); err != nil {
			t.Errorf("%v: error %v", index, err)
		}
		if err := Fault("text"); err != nil {
			t.Errorf("a string: error %v", err)
		}
	}
	if err := Fault(noAddress); err != nil {
		t.Errorf("%v with whole files: error %v", noAddress, err)
	}
	if err := os.Truncate(path, 0); err != nil {
		t.Fatal(err)
	}
	if err := Fault(noAddress); !errors.Is(err, ErrLost) {
		t.Errorf("%v with a file cut short: error %v", noAddress, err)
	}
}

func TestIntact(t *testing.T) {
	f, path := open(t, 10000)
	if err := os.Truncate(path, 9999); err != nil { // the last page reads as zeros
		t.Fatal(err)
	}
	if err := f.Intact(); !errors.Is(err, ErrLost) || !strings.Contains(err.Error(), "was cut short") {
		t.Errorf("cut short within a page: error %v", err)
	}
	f, path = open(t, 10000)
	info, err := os.Stat(path)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, make([]byte, 10000), 0o600); err != nil {
		t.Fatal(err)
	}
	// The clock of file systems may be slower than the test.
	if err := os.Chtimes(path, info.ModTime(), info.ModTime().Add(1)); err != nil {
		t.Fatal(err)
	}
	if err := f.Intact(); !errors.Is(err, ErrLost) || !strings.Contains(err.Error(), "was written to") {
		t.Errorf("written to: error %v", err)
	}
	// Another file in its place is no change: the mapping keeps the old one.
	f, path = open(t, 10000)
	if err := os.Rename(path, path+".old"); err != nil {
		t.Fatal(err)
	}
	if err := f.Intact(); err != nil {
		t.Errorf("renamed: %v", err)
	}
}
