package tokenizer

import (
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

const testdata = "../../testdata/tokenizer"

// golden has the results of HuggingFace tokenizers for a text.
type golden struct {
	Text     string  `json:"text"`
	IDs      []int32 `json:"ids"`
	Ordinary []int32 `json:"ordinary"` // with special tokens as plain text; nil if not known
	Decoded  *string `json:"dec"`      // of IDs
	Stripped *string `json:"decs"`     // the same without special tokens
}

// bpeGolden is a case of the older files, whose field names differ.
type bpeGolden struct {
	Text    string  `json:"text"`
	IDs     []int32 `json:"ids"`
	Decoded *string `json:"decoded"`
}

func readTestdata[T any](t testing.TB, name string) []T {
	t.Helper()
	data, err := os.ReadFile(filepath.Join(testdata, name))
	if err != nil {
		t.Fatal(err)
	}
	var list []T
	if err := json.Unmarshal(data, &list); err != nil {
		t.Fatalf("%s: %v", name, err)
	}
	return list
}

func openTestdata(t testing.TB, name string) *Tokenizer {
	t.Helper()
	tok, err := OpenFile(filepath.Join(testdata, name))
	if err != nil {
		t.Fatal(err)
	}
	return tok
}

func check(t *testing.T, tok *Tokenizer, cases []golden) {
	t.Helper()
	failed := 0
	for _, c := range cases {
		if c.Text != "" || len(c.IDs) == 0 { // else a case of decoding alone
			if ids, err := tok.Encode(c.Text); err != nil || !slices.Equal(ids, c.IDs) {
				t.Errorf("Encode(%q), %v\n got %v\nwant %v", c.Text, err, ids, c.IDs)
				failed++
			}
		}
		if c.Ordinary != nil {
			if ids, err := tok.EncodeOrdinary(c.Text); err != nil || !slices.Equal(ids, c.Ordinary) {
				t.Errorf("EncodeOrdinary(%q), %v\n got %v\nwant %v", c.Text, err, ids, c.Ordinary)
				failed++
			}
		}
		for _, d := range []struct {
			skip bool
			want *string
		}{{false, c.Decoded}, {true, c.Stripped}} {
			if d.want == nil {
				continue
			}
			if got, err := tok.Decode(c.IDs, d.skip); err != nil || got != *d.want {
				t.Errorf("Decode(%v, %v) = %q, %v, want %q", c.IDs, d.skip, got, err, *d.want)
				failed++
			}
		}
		if failed > 5 {
			t.Fatal("and so on")
		}
	}
}

func TestGolden(t *testing.T) {
	for _, c := range []struct {
		tokenizer, cases string
		count            int
	}{
		{"qwen.json", "qwen.oracle.json", 42},
		{"qwen.json", "qwen_fuzz.oracle.json", 2000},
		{"qwen_arr.json", "qwen_arr.oracle.json", 42},
		{"qwen_arr.json", "qwen_fuzz.oracle.json", 2000},
		{"llada.json", "llada.oracle.json", 42},
		{"llada.json", "llada_fuzz.oracle.json", 2000},
		{"llada_removed.json", "llada_removed.oracle.json", 42},
		{"llada_removed.json", "llada_fuzz.oracle.json", 2000},
		{"gpt2.tokenizer.json", "gpt2.oracle.json", 400},
		{"gpt2-digits.tokenizer.json", "gpt2-digits.oracle.json", 400},
		{"ignore-merges.tokenizer.json", "ignore-merges.oracle.json", 400},
		{"added.tokenizer.json", "added.oracle.json", 1506},
	} {
		t.Run(strings.TrimSuffix(c.cases, ".oracle.json")+" by "+c.tokenizer, func(t *testing.T) {
			cases := readTestdata[golden](t, c.cases)
			if len(cases) != c.count {
				t.Errorf("%d cases, want %d", len(cases), c.count)
			}
			check(t, openTestdata(t, c.tokenizer), cases)
		})
	}
	for _, name := range []string{"qwen2", "qwen2-nfc", "cl100k", "cl100k-nfc"} {
		t.Run(name, func(t *testing.T) {
			var cases []golden
			for _, c := range readTestdata[bpeGolden](t, name+".expected.json") {
				cases = append(cases, golden{Text: c.Text, IDs: c.IDs, Decoded: c.Decoded})
			}
			if len(cases) < 10 {
				t.Errorf("only %d cases", len(cases))
			}
			check(t, openTestdata(t, name+".tokenizer.json"), cases)
		})
	}
}
