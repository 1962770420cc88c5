package chaos

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// never are the specials that no input accepts.
var never = []string{"a named pipe", "a socket", "a loop of links", "a sparse file of 1 TiB", "/dev/zero", "/dev/full", "/dev/random", "/dev/ptmx",
	"/dev/stdout", "/dev/fd/99", "/proc/self/mem", "/dev/null/below", "/proc/none"}

// TestSpecialInputs: a file that is none, or that never ends, is refused at once.
func TestSpecialInputs(t *testing.T) {
	for i, in := range inputs(t) {
		for j, s := range specials {
			if !whole && (i+j)%12 != 0 {
				continue
			}
			path := in.prepare(t, filepath.Join(t.TempDir(), "d"))
			if s.make != nil || in.model {
				s.place(t, path)
			} else {
				path = s.name
			}
			c := command{args: in.args(path), note: in.name + " is " + s.name}
			trials.add("special files as inputs")
			r := c.run(t)
			switch {
			case r.status != success && r.status != failure && r.status != wrongUsage:
				t.Errorf("%s: status %d, signal %v: %s", c, r.status, r.signal, shortened(r.stderr))
			case r.status == success && slices.Contains(never, s.name):
				t.Errorf("%s: succeeded", c)
			case r.status != success:
				if !strings.Contains(r.stderr, filepath.Base(path)) && !strings.Contains(r.stderr, filepath.Dir(path)) {
					t.Errorf("%s: %q does not name the file", c, shortened(r.stderr))
				}
			}
		}
	}
}

// TestSpecialCache: the same for the file of a cache that says which commit a model's
// name stands for.
func TestSpecialCache(t *testing.T) {
	for j, s := range specials {
		if !whole && j%8 != 0 {
			continue
		}
		cache := t.TempDir()
		refs := filepath.Join(cache, "models--org--name", "refs")
		must(t, os.MkdirAll(refs, 0o777))
		must(t, os.MkdirAll(filepath.Join(cache, "models--org--name", "snapshots", "1"), 0o777))
		s.place(t, filepath.Join(refs, "main"))
		c := pulsecol("info", "--model", "org/name")
		c.env, c.note = []string{"HF_HUB_CACHE=" + cache}, "refs/main is "+s.name
		trials.add("special files as inputs")
		c.fails(t, "org/name")
	}
}

// output is a place where the command writes files.
type output struct {
	flag   string
	args   func(path string) []string
	folder bool // the path is a folder's
}

// outputs are all the files that the command writes, but --results.
func outputs(t *testing.T) []output {
	t.Helper()
	data := examples(t)
	write(t, filepath.Join(data, "HumanEval.jsonl"), problem)
	kernels := filepath.Join(data, "kernels.jsonl")
	for _, in := range inputs(t) {
		if in.name == "--kernels" {
			write(t, kernels, in.good)
		}
	}
	return []output{
		{"--out", plainly("convert", "--type", "BF16", "--force", "--out", "FILE"), false},
		{"--out", plainly("logits", "--ids", "1,2,3", "--out", "FILE"), false},
		{"--out", quickly("inspect", "--random-ids", "40", "--out", "FILE"), true},
		{"--out", plainly("bench", "plot", "--kernels", kernels, "--out", "FILE"), true},
		{"--completions", quickly("eval", "--task", "humaneval", "--data", data, "--method", "full", "--samples", "1", "--completions", "FILE"), false},
		{"--plots", quickly("eval", "--task", "lists@80", "--sparsity", "0.5,0.8", "--samples", "1", "--plots", "FILE"), true},
	}
}

// TestSpecialOutputs: what cannot be written is refused, and stays what it was.
func TestSpecialOutputs(t *testing.T) {
	for i, out := range outputs(t) {
		for j, s := range specials {
			if !whole && (i+j)%7 != 0 {
				continue
			}
			dir := t.TempDir()
			path := filepath.Join(dir, "out")
			if s.make != nil {
				s.place(t, path)
			} else {
				path = s.name
			}
			c := command{args: out.args(path), note: out.flag + " is " + s.name}
			before := kind(path)
			trials.add("special files as outputs")
			switch r := c.run(t); {
			case r.status == success && slices.Contains([]string{"a directory", "an empty file", "a sparse file of 1 TiB", "a dangling link"}, s.name):
			case r.status != failure && r.status != wrongUsage:
				t.Errorf("%s: status %d, signal %v, want %d: %s", c, r.status, r.signal, failure, shortened(r.stderr))
			case !strings.Contains(r.stderr, out.flag):
				t.Errorf("%s: %q does not name %s", c, shortened(r.stderr), out.flag)
			}
			if after := kind(path); after != before {
				t.Errorf("%s: it was %s, and is %s", c, before, after)
			}
			noneLeft(t, c, dir)
		}
	}
}

// kind describes the file at a path, not what a link leads to.
func kind(path string) string {
	info, err := os.Lstat(path)
	if err != nil {
		return "none"
	}
	if link, err := os.Readlink(path); err == nil {
		return fmt.Sprintf("a link to %s", link)
	}
	return info.Mode().Type().String()
}
