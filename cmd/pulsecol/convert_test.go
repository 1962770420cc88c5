package main

import (
	"bytes"
	"context"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/pulsecol/pulsecol/internal/golden"
)

// TestConvert: a converted model answers as the checkpoint does, and info reads it.
func TestConvert(t *testing.T) {
	out := filepath.Join(t.TempDir(), "small.gguf")
	stdout, stderr := command(t, "convert", "--small", "dream", "--type", "BF16", "--out", out)
	if !strings.HasPrefix(stdout, out+": 7.5 MiB of weights, 16.03 bits a weight: 44 BF16, 31 F32\n") || stderr != "" {
		t.Errorf("stdout %q, stderr %q", stdout, stderr)
	}
	const question = "51,28,423,277,223,19,20,445,16,423,475,223,25,316,16,300,278,445,301,423,298,299,33,201,35,28"
	args := []string{"--prompt-ids", question, "--max-new-tokens", "16", "--steps", "16", "--alg", "maskgit_plus", "--temperature", "0", "--method", "full", "--cache", "none"}
	want := generated(t, append(args, "--small", "dream")...)
	got := generated(t, append(args, "--model", out)...)
	if !slices.Equal(got.OutputIDs, want.OutputIDs) || want.Text != " 12 + 7 = 19. #### 19" {
		t.Errorf("answer %q, want %q", got.Text, want.Text)
	}
	if text, _ := command(t, "info", out); !strings.Contains(text, "in 44 tensors of BF16") {
		t.Errorf("info:\n%s", text)
	}

	if stdout, _ = command(t, "convert", "--model", out, "--type", "Q4_0", "--force", "--out", filepath.Join(filepath.Dir(out), "q.gguf")); !strings.Contains(stdout, "43 Q4_0, 1 Q6_K") {
		t.Errorf("stdout %q", stdout)
	}
	_, stderr = command(t, "convert", "--model", filepath.Join(filepath.Dir(out), "q.gguf"), "--type", "Q8_0", "--out", filepath.Join(filepath.Dir(out), "r.gguf"))
	if !strings.HasPrefix(stderr, "pulsecol: note: 44 tensors were quantized before") {
		t.Errorf("stderr %q", stderr)
	}
}

// failing runs the command, which must fail, and returns its status and error.
func failing(args ...string) (int, string) {
	var out, err bytes.Buffer
	status := run(args, stdio{strings.NewReader(""), &out, &err})
	return status, err.String() + out.String()
}

// TestConvertRefuses: what is not written leaves the folder as it was.
func TestConvertRefuses(t *testing.T) {
	dir := t.TempDir()
	model := filepath.Join(dir, "model")
	if err := os.CopyFS(model, os.DirFS(golden.Dir(t, "llada"))); err != nil {
		t.Fatal(err)
	}
	there, gguf := filepath.Join(dir, "there"), filepath.Join(dir, "m.gguf")
	if err := os.WriteFile(there, []byte("old"), 0o600); err != nil {
		t.Fatal(err)
	}
	command(t, "convert", "--model", model, "--type", "F32", "--out", gguf)
	for range 2 { // what is in the model's folder may be replaced
		command(t, "convert", "--model", model, "--type", "F16", "--force", "--out", filepath.Join(model, "m.gguf"))
	}
	link := filepath.Join(dir, "link.gguf")
	if err := os.Symlink(gguf, link); err != nil {
		t.Skip(err)
	}
	for _, c := range []struct {
		args   string
		status int
		want   string
	}{
		{"--model " + model + " --type F32 --out " + there, exitUsage, "--out " + there + ": is there already; --force replaces it"},
		{"--model " + model + " --type F32 --force --out " + filepath.Join(model, "model.safetensors"), exitUsage, "is a file of the model"},
		{"--model " + gguf + " --type F16 --force --out " + gguf, exitUsage, "is a file of the model"},
		{"--model " + gguf + " --type F16 --force --out " + link, exitUsage, "is a file of the model"},
		{"--model " + model + " --type F32 --out " + model, exitFailure, "is a directory"},
		{"--model " + model + " --type F32 --out=", exitUsage, "--out is empty"},
		{"--model " + model + " --type F32 --out " + filepath.Join(dir, "none", "m.gguf"), exitFailure, "no such file or directory"},
		{"--model " + model + " --type F33 --out " + filepath.Join(dir, "x"), exitUsage, `must be one of "F32","BF16"`},
		{"--model " + model + " --out " + filepath.Join(dir, "x"), exitUsage, "missing flags: --type=TYPE"},
		{"--random-weights --shape llada-8b --type F32 --out " + filepath.Join(dir, "x"), exitUsage, "convert takes no --random-weights"},
		{"--model " + filepath.Join(dir, "nothing") + " --type F32 --out " + filepath.Join(dir, "x"), exitFailure, "nothing"},
	} {
		status, text := failing(append([]string{"convert"}, strings.Fields(c.args)...)...)
		if status != c.status || !strings.Contains(text, c.want) || strings.Count(text, "\n") != 1 {
			t.Errorf("%s: status %d, want %d: %q", c.args, status, c.status, text)
		}
	}
	if old, err := os.ReadFile(there); string(old) != "old" || err != nil {
		t.Errorf("the file is %q, %v", old, err)
	}
	ended, cancel := context.WithCancel(background)
	cancel()
	defer func(b context.Context) { background = b }(background)
	background = ended
	status, text := failing("convert", "--model", model, "--type", "F32", "--force", "--out", there)
	if status != exitInterrupted || !strings.Contains(text, "interrupted") {
		t.Errorf("interrupt: status %d, %q", status, text)
	}
	left, err := os.ReadDir(dir)
	if err != nil || len(left) != 4 {
		t.Errorf("the folder has %v, %v", left, err)
	}
	if old, err := os.ReadFile(there); string(old) != "old" || err != nil {
		t.Errorf("after an interrupt the file is %q, %v", old, err)
	}
	background = context.Background()
	if _, stderr := command(t, "convert", "--model", model, "--type", "F32", "--force", "--out", there); !strings.Contains(stderr, "has no tokenizer") {
		t.Errorf("stderr %q", stderr)
	}
}

// TestConvertErrors: an error of the model names its tensor, and not --out.
func TestConvertErrors(t *testing.T) {
	dir := t.TempDir()
	model := filepath.Join(dir, "model")
	if err := os.CopyFS(model, os.DirFS(golden.Dir(t, "llada"))); err != nil {
		t.Fatal(err)
	}
	weights := filepath.Join(model, "model.safetensors")
	data, err := os.ReadFile(weights)
	if err != nil {
		t.Fatal(err)
	}
	copy(data[len(data)-4:], []byte{0, 0, 0xC0, 0x7F}) // the last element is NaN
	if err := os.WriteFile(weights, data, 0o600); err != nil {
		t.Fatal(err)
	}
	status, text := failing("convert", "--model", model, "--type", "Q8_0", "--out", filepath.Join(dir, "m.gguf"))
	last := text[strings.Index(text, "\n")+1:] // after the note about the tokenizer
	if status != exitFailure || strings.Contains(last, "--out") || !strings.Contains(last, "is NaN, want a finite number") || !strings.Contains(last, `tensor "model.transformer.`) {
		t.Errorf("status %d, %q", status, text)
	}
}

// TestNameOf: the name in the metadata is that of the model's folder or in the cache.
func TestNameOf(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "LLaDA-8B")
	if err := os.Mkdir(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	t.Chdir(dir)
	for name, want := range map[string]string{dir: "LLaDA-8B", dir + "/": "LLaDA-8B", ".": "LLaDA-8B", "GSAI-ML/LLaDA-8B-Base@main": "LLaDA-8B-Base"} {
		if got := nameOf(&openModel{name: name}); got != want {
			t.Errorf("%s: %q, want %q", name, got, want)
		}
	}
}
