package tokenizer

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/pulsecol/pulsecol/internal/gguf"
	"github.com/pulsecol/pulsecol/internal/gguf/gguftest"
)

// TestGGUF: tokenizers of files of llama.cpp give the ids of HuggingFace's rules.
func TestGGUF(t *testing.T) {
	const dir = "../../testdata/gguf"
	for model, files := range map[string][]string{"llada": {"llada-a.Q4_K_M.gguf"}, "dream": {"dream-a.vocab.gguf"}} {
		data, err := os.ReadFile(filepath.Join(dir, "tokens-"+model+".json"))
		if err != nil {
			t.Fatal(err)
		}
		var cases []struct {
			Text string
			IDs  []int32
		}
		if err := json.Unmarshal(data, &cases); err != nil || len(cases) < 19 {
			t.Fatal(err, len(cases))
		}
		for i, file := range files {
			files[i] = filepath.Join(dir, file)
		}
		if more := os.Getenv("PULSECOL_GGUF"); more != "" {
			found, err := filepath.Glob(filepath.Join(more, model+"-a.*.gguf"))
			if err != nil || len(found) == 0 {
				t.Fatal(err, found)
			}
			files = append(files, found...)
		}
		for _, path := range files {
			tok := openGGUF(t, path)
			for _, c := range cases {
				if ids, err := tok.Encode(c.Text); err != nil || !slices.Equal(ids, c.IDs) {
					t.Errorf("%s: Encode(%q), %v\n got %v\nwant %v", path, c.Text, err, ids, c.IDs)
				}
			}
		}
	}
}

func openGGUF(t *testing.T, path string) *Tokenizer {
	t.Helper()
	f, err := gguf.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	tok, err := OpenGGUF(f)
	if err != nil {
		t.Fatal(err)
	}
	return tok
}

// ggufKeys are those of a tokenizer with all bytes, a merge, and a token of each other
// type.
func ggufKeys() []gguftest.Key {
	var tokens []string
	var types []int32
	for _, r := range byteRune {
		tokens, types = append(tokens, string(r)), append(types, ggufNormal)
	}
	tokens = append(tokens, "ab", "[PAD257]", "<|mask|>", "<call>")
	types = append(types, ggufNormal, ggufUnused, ggufControl, ggufUserDefined)
	return []gguftest.Key{
		{Name: ggufModel, Value: "gpt2"}, {Name: ggufPre, Value: "qwen2"}, {Name: ggufTokens, Value: tokens}, {Name: ggufTypes, Value: types},
		{Name: ggufMerges, Value: []string{"a b"}},
	}
}

func parseGGUF(t *testing.T, keys []gguftest.Key) (*Tokenizer, error) {
	t.Helper()
	f, err := gguf.Parse(gguftest.File(keys, nil), "m.gguf")
	if err != nil {
		t.Fatal(err)
	}
	return OpenGGUF(f)
}

func TestGGUFTypes(t *testing.T) {
	tok, err := parseGGUF(t, ggufKeys())
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		text     string
		ids      []int32
		ordinary int // ids
	}{
		{"ab", []int32{256}, 1}, {"<|mask|>", []int32{258}, 8}, {"<call>", []int32{259}, 1},
	} {
		ids, err := tok.Encode(c.text)
		ordinary, _ := tok.EncodeOrdinary(c.text)
		if err != nil || !slices.Equal(ids, c.ids) || len(ordinary) != c.ordinary {
			t.Errorf("%q: %v, %v, %v", c.text, ids, ordinary, err)
		}
	}
	if _, ok := tok.Token(257); ok || tok.Size() != 260 {
		t.Errorf("the unused id is a token, or %d is not 260", tok.Size())
	}
}

func TestGGUFErrors(t *testing.T) {
	for _, c := range []struct {
		key   string
		value any // nil removes the key
		want  string
	}{
		{ggufModel, "llama", `tokenizer.ggml.model is "llama", want "gpt2"`},
		{ggufModel, true, `key "tokenizer.ggml.model" is of type bool, want string`},
		{ggufPre, "llama-bpe", `tokenizer.ggml.pre is "llama-bpe", want one of bailingmoe, bailingmoe2, gpt-2, llada-moe, qwen2, smollm`},
		{ggufTokens, nil, "tokenizer.ggml.tokens has 0 tokens, want 256 to 1048576"},
		{ggufTokens, []string{"a"}, "tokenizer.ggml.token_type has 260 elements, want the 1 of tokenizer.ggml.tokens"},
		{ggufTokens, slices.Repeat([]string{""}, maxTokens+1), "tokenizer.ggml.tokens has 1048577 tokens, want 256 to 1048576"},
		{ggufTokens, slices.Repeat([]string{"a"}, 260), `tokenizer.ggml.tokens: token "a": given twice, with ids 0 and 1`},
		{ggufTypes, []int32{6}, "tokenizer.ggml.token_type has 1 elements, want the 260"},
		{ggufTypes, slices.Repeat([]int32{6}, 260), `tokenizer.ggml.token_type of token 0, "Ā", is 6, want 1, 3, 4 or 5`},
		{ggufTypes, slices.Repeat([]int32{5}, 260), `tokenizer.ggml.tokens: no token "Ā", which stands for byte 0x0`},
		{ggufTypes, []float32{1}, `key "tokenizer.ggml.token_type" is an array of type float32, want type int32`},
		{ggufMerges, []string{"ab"}, `tokenizer.ggml.merges: merge 0: "ab" is not two tokens with a space between them`},
		{ggufMerges, []string{"a c"}, `tokenizer.ggml.merges: merge 0 ("a" with "c"): no token "ac" in the vocabulary`},
	} {
		keys := slices.DeleteFunc(ggufKeys(), func(k gguftest.Key) bool { return k.Name == c.key })
		if c.value != nil {
			keys = append(keys, gguftest.Key{Name: c.key, Value: c.value})
		}
		_, err := parseGGUF(t, keys)
		if err == nil || !strings.HasPrefix(err.Error(), "tokenizer: ") || !strings.Contains(err.Error(), "m.gguf: "+c.want) {
			t.Errorf("error %v\nwant  %s", err, c.want)
		}
	}
}

// TestGGUFFolder: a file without a tokenizer has that of its folder.
func TestGGUFFolder(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "m.gguf")
	if err := os.WriteFile(path, gguftest.File(nil, nil), 0o600); err != nil {
		t.Fatal(err)
	}
	f, err := gguf.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if _, err := OpenGGUF(f); !errors.Is(err, ErrNotFound) || !strings.HasPrefix(err.Error(), fmt.Sprint(path, ": the file has no tokenizer")) {
		t.Errorf("error %v, want ErrNotFound", err)
	}
	text, err := os.ReadFile(filepath.Join(testdata, "qwen2.tokenizer.json"))
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, jsonName), text, 0o600); err != nil {
		t.Fatal(err)
	}
	if tok, err := OpenGGUF(f); err != nil || tok.Size() == 0 {
		t.Error(err)
	}
}
