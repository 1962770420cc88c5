package tokenizer

import (
	"bytes"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/pulsecol/pulsecol/internal/gguf"
)

// throughGGUF returns a tokenizer written to a GGUF file and read from it.
func throughGGUF(t *testing.T, tok *Tokenizer, vocabulary int) (*Tokenizer, *gguf.File) {
	t.Helper()
	keys, notes, err := tok.GGUFKeys(vocabulary)
	if err != nil || len(notes) > 0 {
		t.Fatal(err, notes)
	}
	var b bytes.Buffer
	if err := gguf.Write(&b, keys, nil, func(int, io.Writer) error { return nil }); err != nil {
		t.Fatal(err)
	}
	f, err := gguf.Parse(b.Bytes(), "m.gguf")
	if err != nil {
		t.Fatal(err)
	}
	again, err := OpenGGUF(f)
	if err != nil {
		t.Fatal(err)
	}
	return again, f
}

// TestGGUFKeysEqualReference: what llama.cpp's converter has written is written again, byte
// by byte.
func TestGGUFKeysEqualReference(t *testing.T) {
	for _, name := range []string{"llada-a.Q4_K_M.gguf", "dream-a.vocab.gguf"} {
		want, err := gguf.Open(filepath.Join("../../testdata/gguf", name))
		if err != nil {
			t.Fatal(err)
		}
		defer want.Close()
		tok, err := OpenGGUF(want)
		if err != nil {
			t.Fatal(err)
		}
		_, got := throughGGUF(t, tok, 320)
		for _, key := range []string{ggufModel, ggufPre, ggufTokens, ggufTypes, ggufMerges} {
			if !bytes.Equal(got.Raw(key), want.Raw(key)) {
				t.Errorf("%s: %s differs", name, key)
			}
		}
	}
}

// TestGGUFKeysKeepIDs: the tokenizers of HuggingFace's format give the same ids after the way
// through a file.
func TestGGUFKeysKeepIDs(t *testing.T) {
	texts := []string{"", "hello world", "The 12345 models' questions?\n\n\t x²  ½ e\u0301 \u00e9", "<|endoftext|>a<|mdm_mask|>", "  two  spaces 世界 ٣"}
	paths, err := filepath.Glob("../../testdata/tokenizer/*.json")
	if err != nil {
		t.Fatal(err)
	}
	paths = append(paths, "../tinymodel/llada/tokenizer.json", "../tinymodel/dream/tokenizer.json")
	tested := map[string]int{}
	for _, path := range paths {
		data, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		tok, err := ParseJSON(data)
		if err != nil {
			continue // expected results
		}
		if _, notes, err := tok.GGUFKeys(tok.Size()); err != nil || len(notes) > 0 {
			continue // see TestGGUFKeysRefuse
		}
		again, f := throughGGUF(t, tok, tok.Size()+3)
		pre, _, _ := f.String(ggufPre)
		tested[pre]++
		for _, text := range texts {
			want, err := tok.Encode(text)
			if err != nil {
				t.Fatal(err)
			}
			if got, err := again.Encode(text); err != nil || !slices.Equal(got, want) {
				t.Errorf("%s: %q: %v, want %v (%v)", path, text, got, want, err)
			}
		}
		for id := range int32(tok.Size() + 3) {
			content, ok := tok.Token(id)
			got, has := again.Token(id)
			if content != got || ok != has || tok.IsSpecial(id) != again.IsSpecial(id) {
				t.Fatalf("%s: token %d is %q, %v, want %q, %v", path, id, got, again.IsSpecial(id), content, tok.IsSpecial(id))
			}
		}
	}
	if tested["smollm"] < 2 || tested["qwen2"]+tested["bailingmoe"] < 2 {
		t.Errorf("tested %v", tested)
	}
}

func TestGGUFKeysRefuse(t *testing.T) {
	data, err := os.ReadFile("../tinymodel/llada/tokenizer.json")
	if err != nil {
		t.Fatal(err)
	}
	change := func(from, to string) *Tokenizer {
		text := strings.Replace(string(data), from, to, 1)
		if from != to && text == string(data) {
			t.Fatalf("no %q", from)
		}
		tok, err := ParseJSON([]byte(text))
		if err != nil {
			t.Fatal(err)
		}
		return tok
	}
	for _, c := range []struct {
		from, to   string
		vocabulary int
		want       string
	}{
		{`"normalizer": null`, `"normalizer": {"type": "NFC"}`, 768, "no name in GGUF files"},
		{`"version"`, `"version"`, 767, "has id 767, the model has 767 tokens"},
	} {
		tok := change(c.from, c.to)
		if _, _, err := tok.GGUFKeys(c.vocabulary); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("error %v, want %s", err, c.want)
		}
	}
	tok := change(`"version"`, `"version"`)
	tok.setWholeWords()
	if _, _, err := tok.GGUFKeys(768); err != nil {
		t.Errorf("words that merges make anyway: %v", err)
	}
	for p, m := range tok.bpe.merges {
		if m.rank == 5 {
			delete(tok.bpe.merges, p)
		}
	}
	if _, _, err := tok.GGUFKeys(768); err == nil || !strings.Contains(err.Error(), "ignore_merges is true, and merges make") {
		t.Errorf("error %v", err)
	}
	tok = change(`"lstrip": false`, `"lstrip": true`)
	if _, notes, err := tok.GGUFKeys(768); err != nil || len(notes) != 1 || !strings.Contains(notes[0], `of 1 added tokens, such as "<|endoftext|>"`) {
		t.Errorf("notes %q, %v", notes, err)
	}
}
