// Package hfcache finds models in the cache folder of HuggingFace's libraries and of
// the command hf, by name. It downloads nothing.
//
// The layout is that of https://huggingface.co/docs/hub/local-cache: the folder
// models--ORG--NAME has refs/REVISION, a file with the commit of a branch or tag, and
// snapshots/COMMIT, a folder with links to the files of that commit in blobs.
package hfcache

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"

	"github.com/pulsecol/pulsecol/internal/infile"
	"github.com/pulsecol/pulsecol/internal/safetensors"
)

// Model is a model's folder, and what the cache knows of it.
type Model struct {
	Dir string // with config.json and the other files

	name, revision string // in the cache; "" if Dir was given
	partial        bool   // a download is not finished
}

// names are those of models: ORG/NAME, and a revision after an @.
var names = regexp.MustCompile(`^([A-Za-z0-9][\w.-]*/[A-Za-z0-9][\w.-]*?)(?:@([\w./-]+))?$`)

// Find returns the folder of a model, given its path or its name in the cache, ORG/NAME
// or ORG/NAME@REVISION, where REVISION is a branch, a tag or a commit and by default
// main. What exists as a path is a path. The error wraps fs.ErrNotExist where there
// is neither.
func Find(model string) (Model, error) {
	given := Model{Dir: model}
	if _, err := os.Stat(model); err == nil || !errors.Is(err, fs.ErrNotExist) {
		return given, nil // errors are for those who read it
	}
	parts := names.FindStringSubmatch(model)
	if parts == nil || strings.Contains(model, "..") || strings.Contains(parts[1], "--") {
		return given, nil
	}
	root, err := folder()
	if err != nil {
		return given, nil
	}
	m := Model{name: parts[1], revision: parts[2]}
	repo := filepath.Join(root, "models--"+strings.ReplaceAll(m.name, "/", "--"))
	if _, err := os.Stat(repo); err != nil {
		return Model{}, &missing{fmt.Sprintf("%s is no folder, and no model in the HuggingFace cache %s; %q would put it there", model, root, m.download())}
	}
	m.partial = partial(repo)
	commit, err := resolve(repo, m.revision)
	if errors.Is(err, fs.ErrNotExist) {
		return Model{}, &missing{fmt.Sprintf("%s: the HuggingFace cache %s has no revision %q of the model; %q would put it there", model, root, or(m.revision, "main"), m.download())}
	}
	if err != nil {
		return Model{}, fmt.Errorf("%s in the HuggingFace cache: %w", model, err)
	}
	m.Dir = filepath.Join(repo, "snapshots", commit)
	return m, nil
}

// missing is an error of its own text that is fs.ErrNotExist.
type missing struct{ text string }

func (e *missing) Error() string { return e.text }
func (*missing) Unwrap() error   { return fs.ErrNotExist }

// folder returns the cache folder, as Python's huggingface_hub finds it.
func folder() (string, error) {
	for _, v := range []struct{ name, below string }{
		{"HF_HUB_CACHE", ""}, {"HUGGINGFACE_HUB_CACHE", ""}, {"HF_HOME", "hub"}, {"XDG_CACHE_HOME", "huggingface/hub"},
	} {
		if dir := os.Getenv(v.name); dir != "" {
			if rest, ok := strings.CutPrefix(dir, "~/"); ok {
				home, err := os.UserHomeDir()
				if err != nil {
					return "", err
				}
				dir = filepath.Join(home, rest)
			}
			return filepath.Join(os.ExpandEnv(dir), filepath.FromSlash(v.below)), nil
		}
	}
	home, err := os.UserHomeDir()
	return filepath.Join(home, ".cache", "huggingface", "hub"), err
}

// maxRef is the limit of a file with a commit, which has 40 characters.
var maxRef = infile.Limit{Bytes: 1 << 10, What: "a commit"}

// commits are the names of folders of snapshots.
var commits = regexp.MustCompile(`^[0-9a-fA-F]{1,64}$`)

// resolve returns the commit of a revision that has a snapshot.
func resolve(repo, revision string) (string, error) {
	commit := revision
	ref := filepath.Join(repo, "refs", filepath.FromSlash(or(revision, "main")))
	switch text, err := infile.Read(ref, maxRef); {
	case err == nil:
		if commit = strings.TrimSpace(string(text)); !commits.MatchString(commit) {
			return "", fmt.Errorf("%s has %.50q, want a commit in hexadecimal digits", ref, commit)
		}
	case !errors.Is(err, fs.ErrNotExist):
		return "", err
	case !commits.MatchString(revision):
		return "", err
	}
	_, err := os.Stat(filepath.Join(repo, "snapshots", commit))
	return commit, err
}

// partial reports a download in progress, or one that was given up.
func partial(repo string) bool {
	left, _ := filepath.Glob(filepath.Join(repo, "blobs", "*.incomplete"))
	return len(left) > 0
}

// Explain adds to an error of opening the model's files that names one that is missing
// how the cache gets it. Other errors, and those of a folder that was given, it returns
// as they are.
func (m Model) Explain(err error) error {
	missing := errors.Is(err, fs.ErrNotExist) || errors.Is(err, infile.ErrDangling) || errors.Is(err, safetensors.ErrIncomplete)
	if m.name == "" || !missing {
		return err
	}
	state := "the HuggingFace cache does not have all of " + m.name
	if m.partial {
		state = "the download of " + m.name + " into the HuggingFace cache is not finished"
	}
	return fmt.Errorf("%w; %s: %q completes it", err, state, m.download())
}

// download is the command that downloads the model.
func (m Model) download() string {
	if m.revision == "" {
		return "hf download " + m.name
	}
	return "hf download " + m.name + " --revision " + m.revision
}

func or(s, otherwise string) string {
	if s == "" {
		return otherwise
	}
	return s
}
