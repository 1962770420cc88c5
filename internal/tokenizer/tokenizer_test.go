package tokenizer

import (
	"slices"
	"strings"
	"sync"
	"testing"
)

func TestTokens(t *testing.T) {
	tok := openTestdata(t, "qwen.json")
	if got := tok.Size(); got != 3262 {
		t.Errorf("Size() = %d, want 3262", got)
	}
	for _, c := range []struct {
		content string
		id      int32
		special bool
	}{
		{"!", 0, false},
		{"Ġthe", 270, false},
		{"<|endoftext|>", 3256, true},
		{"<|mask|>", 3259, true},
		{"</tool_call>", 3261, false},
	} {
		if id, ok := tok.TokenID(c.content); id != c.id || !ok {
			t.Errorf("TokenID(%q) = %d, %v, want %d", c.content, id, ok, c.id)
		}
		if content, ok := tok.Token(c.id); content != c.content || !ok {
			t.Errorf("Token(%d) = %q, %v, want %q", c.id, content, ok, c.content)
		}
		if got := tok.IsSpecial(c.id); got != c.special {
			t.Errorf("IsSpecial(%d) = %v", c.id, got)
		}
	}
	for _, content := range []string{"", " the", "<|mask"} {
		if id, ok := tok.TokenID(content); ok {
			t.Errorf("TokenID(%q) = %d, want none", content, id)
		}
	}
	for _, id := range []int32{-1, 3262, 1<<31 - 1, -1 << 31} {
		if content, ok := tok.Token(id); ok || tok.IsSpecial(id) {
			t.Errorf("Token(%d) = %q, IsSpecial %v, want none", id, content, tok.IsSpecial(id))
		}
	}
}

// TestRoundTrip decodes encoded text. It leaves out tokenizers with NFC, which give normalised
// text, and tokens that take white space along.
func TestRoundTrip(t *testing.T) {
	for _, name := range []string{"llada.json", "gpt2.tokenizer.json", "gpt2-digits.tokenizer.json"} {
		tok := openTestdata(t, name)
		texts := []string{"", "\x00", "\ufeff\ufffd", strings.Repeat(" ", 1000), strings.Repeat("\n ", 1000), strings.Repeat("é", 1000)}
		for _, c := range readTestdata[golden](t, "qwen_fuzz.oracle.json") {
			texts = append(texts, c.Text)
		}
		for _, text := range texts {
			for _, encode := range []func(string) ([]int32, error){tok.Encode, tok.EncodeOrdinary} {
				ids, err := encode(text)
				if err != nil {
					t.Fatal(err)
				}
				if got, err := tok.Decode(ids, false); got != text || err != nil {
					t.Errorf("%s: %q became %v and then %q, %v", name, text, ids, got, err)
				}
			}
		}
	}
}

func TestEncodeErrors(t *testing.T) {
	tok := openTestdata(t, "llada.json")
	for text, want := range map[string]string{
		"\xff":             "byte 0xff at offset 0",
		"a\ufffdé\xc3":     "byte 0xc3 at offset 6",
		"世\xed\xa0\x80":    "byte 0xed at offset 3",
		"<|mdm_\xf0mask|>": "byte 0xf0 at offset 6",
	} {
		for _, encode := range []func(string) ([]int32, error){tok.Encode, tok.EncodeOrdinary} {
			if ids, err := encode(text); err == nil || ids != nil || !strings.HasPrefix(err.Error(), "tokenizer: ") || !strings.Contains(err.Error(), want) {
				t.Errorf("%q: %v, %v, want an error with %q", text, ids, err, want)
			}
		}
	}
}

func TestDecodeErrors(t *testing.T) {
	tok := openTestdata(t, "llada.json")
	for id, want := range map[int32]string{
		-1:      "id -1 at index 1 is no token of the vocabulary, whose size is 3264",
		3264:    "id 3264 at index 1",
		1 << 30: "id 1073741824 at index 1",
	} {
		text, err := tok.Decode([]int32{5, id}, true)
		if err == nil || text != "" || !strings.HasPrefix(err.Error(), "tokenizer: ") || !strings.Contains(err.Error(), want) {
			t.Errorf("id %d: %q, %v, want an error with %q", id, text, err, want)
		}
	}
	if text, err := tok.Decode(nil, false); text != "" || err != nil {
		t.Errorf("Decode(nil) = %q, %v", text, err)
	}
}

// TestConcurrent is for the race detector. The goroutines share the cache and
// compete for its slots.
func TestConcurrent(t *testing.T) {
	tok := openTestdata(t, "qwen.json")
	cases := readTestdata[golden](t, "qwen_fuzz.oracle.json")
	var group sync.WaitGroup
	for worker := range 4 {
		group.Go(func() {
			for i := range cases {
				c := cases[(i+worker*100)%len(cases)]
				ids, err := tok.Encode(c.Text)
				if err != nil || !slices.Equal(ids, c.IDs) {
					t.Errorf("Encode(%q) = %v, %v, want %v", c.Text, ids, err, c.IDs)
				}
				if _, err := tok.Decode(ids, true); err != nil {
					t.Error(err)
				}
			}
		})
	}
	group.Wait()
}
