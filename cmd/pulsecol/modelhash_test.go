package main

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/pulsecol/pulsecol/internal/gguf/gguftest"
	"github.com/pulsecol/pulsecol/internal/golden"
	"github.com/pulsecol/pulsecol/internal/quant"
)

// TestHashGGUF: the hash of a GGUF file depends on its metadata, its tensors and, without a
// tokenizer in it, the one of its folder, and on nothing else.
func TestHashGGUF(t *testing.T) {
	text, err := os.ReadFile(filepath.Join(golden.Dir(t, "tokenizer"), "qwen.json"))
	if err != nil {
		t.Fatal(err)
	}
	hash := func(name string, key string, weight float32, tokenizer []byte) string {
		dir := t.TempDir()
		file := gguftest.File([]gguftest.Key{{Name: key, Value: true}},
			[]gguftest.Tensor{{Name: "a", Type: quant.F32, Shape: []int{1}, Data: gguftest.Float32s([]float32{weight})}})
		for name, data := range map[string][]byte{name: file, "tokenizer.json": tokenizer, "other": []byte(name)} {
			if err := os.WriteFile(filepath.Join(dir, name), data, 0o600); err != nil {
				t.Fatal(err)
			}
		}
		path := filepath.Join(dir, name)
		h, err := (&modelFlag{Model: &path}).hash()
		if err != nil {
			t.Fatal(err)
		}
		return h
	}
	want := hash("a.gguf", "k", 1, text)
	if got := hash("b.gguf", "k", 1, text); got != want {
		t.Errorf("another name: %s, want %s", got, want)
	}
	for what, got := range map[string]string{
		"another key": hash("a.gguf", "j", 1, text), "another weight": hash("a.gguf", "k", 2, text),
		"another tokenizer": hash("a.gguf", "k", 1, append([]byte("\n"), text...)),
	} {
		if got == want {
			t.Errorf("%s: the same hash", what)
		}
	}
}
