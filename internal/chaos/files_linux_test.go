package chaos

import (
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/pulsecol/pulsecol/internal/golden"
	"golang.org/x/sys/unix"
)

// small is the folder of a model with a tokenizer.
func small(t *testing.T) string {
	return filepath.Join(filepath.Dir(filepath.Dir(golden.Dir(t, "llada"))), "internal", "tinymodel", "llada")
}

// modelFiles are those of a model's folder.
var modelFiles = []string{"config.json", "generation_config.json", "tokenizer.json", "tokenizer_config.json", "model.safetensors"}

// modelWithout makes a model folder in dir, with links to all files but one, and
// returns that one's path.
func modelWithout(t *testing.T, dir, name string) string {
	t.Helper()
	must(t, os.MkdirAll(dir, 0o777))
	for _, file := range modelFiles {
		if file != name {
			must(t, os.Symlink(filepath.Join(small(t), file), filepath.Join(dir, file)))
		}
	}
	return filepath.Join(dir, name)
}

// copied copies the model folder, so that its weights can be cut.
func copied(t *testing.T) (dir, weights string) {
	t.Helper()
	dir = t.TempDir()
	weights = modelWithout(t, dir, "model.safetensors")
	write(t, weights, read(t, filepath.Join(small(t), "model.safetensors")))
	return dir, weights
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func read(t *testing.T, path string) string {
	t.Helper()
	data, err := os.ReadFile(path)
	must(t, err)
	return string(data)
}

func write(t *testing.T, path, text string) {
	t.Helper()
	must(t, os.WriteFile(path, []byte(text), 0o666))
}

// special is a kind of file that is not a regular one with a content.
type special struct {
	name string
	make func(path string) error // nil: the name is a path
}

// specials are files that nothing can be read from, or that never end.
var specials = []special{
	{"a named pipe", func(path string) error { return unix.Mkfifo(path, 0o666) }},
	{"a socket", func(path string) error {
		short := filepath.Join(os.TempDir(), fmt.Sprintf("s%d", os.Getpid())) // addresses are short
		l, err := net.ListenUnix("unix", &net.UnixAddr{Name: short, Net: "unix"})
		if err != nil {
			return err
		}
		l.SetUnlinkOnClose(false)
		l.Close()
		return os.Rename(short, path)
	}},
	{"a directory", func(path string) error { return os.Mkdir(path, 0o777) }},
	{"a dangling link", func(path string) error { return os.Symlink(path+".none", path) }},
	{"a loop of links", func(path string) error { return os.Symlink(filepath.Base(path), path) }},
	{"a sparse file of 1 TiB", func(path string) error {
		if err := os.WriteFile(path, nil, 0o666); err != nil {
			return err
		}
		return os.Truncate(path, 1<<40)
	}},
	{"an empty file", func(path string) error { return os.WriteFile(path, nil, 0o666) }},
	{"/dev/null", nil}, {"/dev/zero", nil}, {"/dev/full", nil}, {"/dev/random", nil}, {"/dev/ptmx", nil},
	{"/dev/stdin", nil}, {"/dev/stdout", nil}, {"/dev/stderr", nil}, {"/dev/fd/0", nil}, {"/dev/fd/99", nil},
	{"/proc/self/mem", nil}, {"/proc/self/fd/1", nil}, {"/proc/self/cmdline", nil},
	{"/dev/null/below", nil}, {"/proc/none", nil},
}

// place makes the special file at path: the file itself, or a link to it.
func (s special) place(t *testing.T, path string) {
	t.Helper()
	if s.make == nil {
		must(t, os.Symlink(s.name, path))
		return
	}
	must(t, s.make(path))
}

// noneLeft wants no temporary file of the command in dir.
func noneLeft(t *testing.T, what any, dir string) {
	t.Helper()
	entries, err := os.ReadDir(dir)
	if err != nil {
		return // it was never made
	}
	for _, e := range entries {
		if strings.HasPrefix(e.Name(), ".pulsecol-") {
			t.Errorf("%v: left %s", what, filepath.Join(dir, e.Name()))
		}
	}
}

// tree returns the content of the file at path, or of all files of the folder.
func tree(t *testing.T, path string) map[string]string {
	t.Helper()
	files := map[string]string{}
	err := filepath.WalkDir(path, func(name string, d fs.DirEntry, err error) error {
		if err == nil && d.Type().IsRegular() {
			files[name] = read(t, name)
		}
		return err
	})
	if !errors.Is(err, fs.ErrNotExist) {
		must(t, err)
	}
	return files
}

// orEmpty returns the content of a file, or "" if there is none.
func orEmpty(path string) string {
	data, _ := os.ReadFile(path)
	return string(data)
}
