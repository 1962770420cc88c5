package outfile

import (
	"errors"
	"io"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
)

func text(s string) func(io.Writer) error {
	return func(w io.Writer) error {
		_, err := io.WriteString(w, s)
		return err
	}
}

// content fails the test unless dir has the file alone, with this text.
func content(t *testing.T, path, want string) {
	t.Helper()
	got, err := os.ReadFile(path)
	if err != nil || string(got) != want {
		t.Errorf("%q %v, want %q", got, err, want)
	}
	if left, _ := os.ReadDir(filepath.Dir(path)); len(left) != 1 {
		t.Errorf("%v in the directory", left)
	}
}

func TestWrite(t *testing.T) {
	path := filepath.Join(t.TempDir(), "f")
	for _, s := range []string{"one", "", "two"} {
		if err := errors.Join(Check(path), Write(path, text(s))); err != nil {
			t.Fatal(err)
		}
		content(t, path, s)
	}
}

// TestWriteFails: the old file stays when the writer fails in the middle.
func TestWriteFails(t *testing.T) {
	path := filepath.Join(t.TempDir(), "f")
	if err := Write(path, text("old")); err != nil {
		t.Fatal(err)
	}
	full := errors.New("disk full")
	err := Write(path, func(w io.Writer) error {
		_ = text("half")(w)
		return full
	})
	if !errors.Is(err, full) || !strings.Contains(err.Error(), path) {
		t.Errorf("got %v", err)
	}
	content(t, path, "old")
}

// TestPermissions: a new file is as others make it, an existing one keeps its mode.
func TestPermissions(t *testing.T) {
	if runtime.GOOS == "windows" {
		t.Skip("has other permissions")
	}
	dir := t.TempDir()
	plain, ours := filepath.Join(dir, "plain"), filepath.Join(dir, "ours")
	if err := os.WriteFile(plain, nil, 0o666); err != nil {
		t.Fatal(err)
	}
	mode := func(path string) os.FileMode {
		info, err := os.Stat(path)
		if err != nil {
			t.Fatal(err)
		}
		return info.Mode()
	}
	if err := Write(ours, text("x")); err != nil {
		t.Fatal(err)
	}
	if mode(ours) != mode(plain) {
		t.Errorf("new file has %v, want %v", mode(ours), mode(plain))
	}
	if err := os.Chmod(ours, 0o640); err != nil {
		t.Fatal(err)
	}
	if err := Write(ours, text("y")); err != nil {
		t.Fatal(err)
	}
	if mode(ours) != 0o640 {
		t.Errorf("replaced file has %v, want 0640", mode(ours))
	}
}

// TestSymlink: the link stays, its target is replaced.
func TestSymlink(t *testing.T) {
	dir, path := t.TempDir(), filepath.Join(t.TempDir(), "f")
	if err := os.WriteFile(path, []byte("old"), 0o666); err != nil {
		t.Fatal(err)
	}
	link := filepath.Join(dir, "link")
	if err := os.Symlink(path, link); err != nil {
		t.Skip(err)
	}
	if err := Write(link, text("new")); err != nil {
		t.Fatal(err)
	}
	content(t, path, "new")
	if info, err := os.Lstat(link); err != nil || info.Mode()&os.ModeSymlink == 0 {
		t.Errorf("the link is gone: %v %v", info, err)
	}
}

// TestLinkToNewFile: a link to a file that does not exist yet stays, and leads to it
// afterwards. A loop of links is refused.
func TestLinkToNewFile(t *testing.T) {
	dir, other := t.TempDir(), t.TempDir()
	first, second := filepath.Join(dir, "first"), filepath.Join(dir, "second")
	to, err := filepath.Rel(dir, filepath.Join(other, "new"))
	if err == nil {
		err = os.Symlink(to, second)
	}
	if err != nil || os.Symlink("second", first) != nil {
		t.Skip(err)
	}
	if err := errors.Join(Check(first), Write(first, text("x"))); err != nil {
		t.Fatal(err)
	}
	content(t, filepath.Join(other, "new"), "x")
	if got, err := os.Readlink(first); got != "second" {
		t.Errorf("the link leads to %q, %v", got, err)
	}
	loop := filepath.Join(dir, "loop")
	if err := os.Symlink("loop", loop); err != nil {
		t.Fatal(err)
	}
	for name, err := range map[string]error{"Check": Check(loop), "Write": Write(loop, text("x"))} {
		if err == nil || !strings.Contains(err.Error(), loop) {
			t.Errorf("%s of a loop: %v", name, err)
		}
	}
}

// TestRefused: what cannot be written is refused by Check and Write alike, by name.
func TestRefused(t *testing.T) {
	dir := t.TempDir()
	file := filepath.Join(dir, "file")
	if err := os.WriteFile(file, []byte("old"), 0o666); err != nil {
		t.Fatal(err)
	}
	locked := filepath.Join(t.TempDir(), "locked")
	if err := os.WriteFile(locked, nil, 0o444); err != nil {
		t.Fatal(err)
	}
	for _, path := range []string{dir, locked, os.DevNull, filepath.Join(dir, "none", "f"), filepath.Join(file, "f"), ""} {
		for name, err := range map[string]error{"Check": Check(path), "Write": Write(path, text("new"))} {
			if err == nil || !strings.Contains(err.Error(), path) || strings.Contains(err.Error(), ".tmp") {
				t.Errorf("%s %q: %v", name, path, err)
			}
		}
	}
	for _, path := range []string{file, filepath.Join(file, "d")} {
		if err := CheckDir(path); err == nil || !strings.Contains(err.Error(), file) {
			t.Errorf("CheckDir %q: %v", path, err)
		}
	}
	content(t, file, "old")
}

func TestCheckDir(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "new", "folder")
	for range 2 {
		if err := CheckDir(dir); err != nil {
			t.Fatal(err)
		}
	}
	if left, err := os.ReadDir(dir); err != nil || len(left) != 0 {
		t.Errorf("%v left, %v", left, err)
	}
}
