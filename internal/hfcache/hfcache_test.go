package hfcache

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/pulsecol/pulsecol/internal/safetensors"
)

const (
	name   = "GSAI-ML/LLaDA-8B-Instruct"
	commit = "08b83a6feb34df1a6011b80c3c00c7563e963b07"
	other  = "0000000000000000000000000000000000000001"
)

// cache makes a cache folder that has name at two commits, main being the first.
func cache(t testing.TB) (root, repo string) {
	t.Helper()
	root = filepath.Join(t.TempDir(), "hub")
	repo = filepath.Join(root, "models--GSAI-ML--LLaDA-8B-Instruct")
	for path, text := range map[string]string{
		"refs/main": commit, "refs/v1": other + "\n", "refs/refs/pr/3": other, "refs/empty": "", "refs/outside": "../../..",
		"blobs/1": "{}",
	} {
		write(t, filepath.Join(repo, filepath.FromSlash(path)), text)
	}
	for _, c := range []string{commit, other} {
		dir := filepath.Join(repo, "snapshots", c)
		if err := os.MkdirAll(dir, 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.Symlink(filepath.FromSlash("../../blobs/1"), filepath.Join(dir, "config.json")); err != nil {
			t.Skip(err) // links need a privilege on Windows
		}
	}
	for _, v := range []string{"HF_HUB_CACHE", "HUGGINGFACE_HUB_CACHE", "HF_HOME", "XDG_CACHE_HOME"} {
		t.Setenv(v, "")
	}
	return root, repo
}

func write(t testing.TB, path, text string) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}

func TestFind(t *testing.T) {
	root, repo := cache(t)
	t.Setenv("HF_HUB_CACHE", root)
	for model, want := range map[string]string{
		name: commit, name + "@main": commit, name + "@v1": other, name + "@refs/pr/3": other, name + "@" + other: other,
	} {
		m, err := Find(model)
		if err != nil || m.Dir != filepath.Join(repo, "snapshots", want) {
			t.Errorf("%s: %s, %v, want commit %s", model, m.Dir, err, want)
		}
		if text, err := os.ReadFile(filepath.Join(m.Dir, "config.json")); string(text) != "{}" {
			t.Errorf("%s: config.json has %q, %v", model, text, err)
		}
	}
	// What is no name is a path, whether it exists or not.
	for _, model := range []string{
		root, "nowhere", "./" + name, "/" + name, name + "/x", "a--b/c", "../" + name, "a/..", "a/b@../../x", "", "a/b@", "@", "a b/c", `a\b`,
	} {
		if m, err := Find(model); err != nil || m.Dir != model {
			t.Errorf("%q: %q, %v, want the path", model, m.Dir, err)
		}
	}
}

// TestFindPrefersPaths: what exists as a path is one.
func TestFindPrefersPaths(t *testing.T) {
	root, _ := cache(t)
	t.Setenv("HF_HUB_CACHE", root)
	t.Chdir(t.TempDir())
	if err := os.MkdirAll(filepath.FromSlash(name), 0o700); err != nil {
		t.Fatal(err)
	}
	if m, err := Find(name); err != nil || m.Dir != name {
		t.Errorf("%s, %v, want the folder", m.Dir, err)
	}
}

func TestFolder(t *testing.T) {
	root, _ := cache(t)
	home := t.TempDir()
	t.Setenv("HOME", home)
	t.Setenv("USERPROFILE", home)
	t.Setenv("WHERE", root)
	slash := filepath.FromSlash
	for _, c := range []struct{ variable, value, want string }{ // each goes before those above
		{"HOME", home, home + slash("/.cache/huggingface/hub")},
		{"XDG_CACHE_HOME", root, root + slash("/huggingface/hub")},
		{"HF_HOME", slash("~/hf"), home + slash("/hf/hub")},
		{"HF_HUB_CACHE", "$WHERE", root},
	} {
		t.Setenv(c.variable, c.value)
		if got, err := folder(); err != nil || got != c.want {
			t.Errorf("with %s: %s, %v, want %s", c.variable, got, err, c.want)
		}
	}
}

func TestFindErrors(t *testing.T) {
	root, repo := cache(t)
	t.Setenv("HF_HUB_CACHE", root)
	for _, c := range []struct {
		model, want string
		missing     bool
	}{
		{"GSAI-ML/LLaDA-1.5", `no model in the HuggingFace cache ` + root + `; "hf download GSAI-ML/LLaDA-1.5" would put it there`, true},
		{name + "@v9", `has no revision "v9" of the model; "hf download ` + name + ` --revision v9" would put it there`, true},
		{name + "@0123456789abcdef0123456789abcdef01234567", "has no revision", true},
		{name + "@empty", `has "", want a commit`, false},
		{name + "@outside", `has "../../..", want a commit`, false},
		{name + "@refs", "is a directory", false},
	} {
		_, err := Find(c.model)
		if err == nil || !strings.Contains(err.Error(), c.want) || errors.Is(err, fs.ErrNotExist) != c.missing {
			t.Errorf("%s: error %v, want %s", c.model, err, c.want)
		}
	}
	if err := os.RemoveAll(filepath.Join(repo, "snapshots")); err != nil {
		t.Fatal(err)
	}
	if _, err := Find(name); !errors.Is(err, fs.ErrNotExist) || !strings.Contains(err.Error(), `no revision "main"`) {
		t.Errorf("a reference without a snapshot: %v", err)
	}
}

// TestExplain: what is missing of an unfinished download, and what completes it.
func TestExplain(t *testing.T) {
	root, repo := cache(t)
	t.Setenv("HF_HUB_CACHE", root)
	m, err := Find(name)
	if err != nil {
		t.Fatal(err)
	}
	index := filepath.Join(m.Dir, safetensors.IndexFile)
	write(t, index, `{"weight_map": {"a": "model-00003-of-00006.safetensors"}}`)
	_, err = safetensors.OpenDir(m.Dir)
	got := m.Explain(err)
	want := `lists shard model-00003-of-00006.safetensors, which is missing; the HuggingFace cache does not have all of ` + name + `: "hf download ` + name + `" completes it`
	if !errors.Is(got, safetensors.ErrIncomplete) || !strings.HasSuffix(got.Error(), want) {
		t.Errorf("error %v, want %s", got, want)
	}
	// A link whose file was not downloaded.
	if err := os.Symlink(filepath.FromSlash("../../blobs/2"), filepath.Join(m.Dir, safetensors.SingleFile)); err != nil {
		t.Fatal(err)
	}
	write(t, filepath.Join(repo, "blobs", "2.incomplete"), "")
	if m, err = Find(name + "@main"); err != nil {
		t.Fatal(err)
	}
	_, err = os.ReadFile(filepath.Join(m.Dir, safetensors.SingleFile))
	want = `the download of ` + name + ` into the HuggingFace cache is not finished: "hf download ` + name + ` --revision main" completes it`
	if got := m.Explain(err); !errors.Is(got, fs.ErrNotExist) || !strings.Contains(got.Error(), safetensors.SingleFile) || !strings.HasSuffix(got.Error(), want) {
		t.Errorf("error %v, want %s", got, want)
	}
	if got := m.Explain(fs.ErrPermission); got != fs.ErrPermission {
		t.Errorf("another error became %v", got)
	}
	if err := (Model{Dir: "d"}).Explain(fs.ErrNotExist); err != fs.ErrNotExist {
		t.Errorf("the error of a folder that was given became %v", err)
	}
}

// FuzzFind: whatever the name and the reference say, the folder is inside the cache or
// the path that was given.
func FuzzFind(f *testing.F) {
	for _, model := range []string{name, name + "@v1", "a/b@../x", "a/..", "../..", "a/b@/etc", name + "@refs/pr/3", name + "@."} {
		f.Add(model, commit)
		f.Add(model, "..")
	}
	root, repo := cache(f)
	f.Setenv("HF_HUB_CACHE", root)
	f.Fuzz(func(t *testing.T, model, ref string) {
		write(t, filepath.Join(repo, "refs", "main"), ref)
		m, err := Find(model)
		if err != nil || m.Dir == model {
			return
		}
		rest, ok := strings.CutPrefix(m.Dir, filepath.Join(repo, "snapshots")+string(filepath.Separator))
		if !ok || strings.ContainsAny(rest, `/\.`) || rest == "" {
			t.Fatalf("%q with reference %q: %s", model, ref, m.Dir)
		}
	})
}
