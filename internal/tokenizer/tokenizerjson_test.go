package tokenizer

import (
	"encoding/json"
	"maps"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// object is a JSON object to edit.
type object = map[string]any

// edited is gpt2.tokenizer.json after edit.
func edited(t testing.TB, edit func(file object)) []byte {
	t.Helper()
	data, err := os.ReadFile(filepath.Join(testdata, "gpt2.tokenizer.json"))
	if err != nil {
		t.Fatal(err)
	}
	var file object
	if err := json.Unmarshal(data, &file); err != nil {
		t.Fatal(err)
	}
	edit(file)
	data, err = json.Marshal(file)
	if err != nil {
		t.Fatal(err)
	}
	return data
}

func byteLevel(useRegex bool) object {
	return object{"type": "ByteLevel", "add_prefix_space": false, "use_regex": useRegex}
}

func split(pattern string) object {
	return object{"type": "Split", "pattern": object{"Regex": pattern}, "behavior": "Isolated", "invert": false}
}

func sequence(parts ...any) object {
	return object{"type": "Sequence", "pretokenizers": parts}
}

// TestParseJSONForms tests equivalent forms that no golden file uses.
func TestParseJSONForms(t *testing.T) {
	const text = "I'm  here: 12 <|endoftext|>\n\n don't"
	want, err := openTestdata(t, "gpt2.tokenizer.json").Encode(text)
	if err != nil {
		t.Fatal(err)
	}
	for name, edit := range map[string]func(file object){
		"a Sequence of one":    func(f object) { f["pre_tokenizer"] = sequence(byteLevel(true)) },
		"Split by the pattern": func(f object) { f["pre_tokenizer"] = sequence(split(patternGPT2), byteLevel(false)) },
		"twice":                func(f object) { f["pre_tokenizer"] = sequence(split(patternGPT2), byteLevel(true)) },
		"use_regex by default": func(f object) { f["pre_tokenizer"] = object{"type": "ByteLevel", "add_prefix_space": false} },
		"an empty normalizer":  func(f object) { f["normalizer"] = object{"type": "Sequence", "normalizers": []any{}} },
		"NFC in a Sequence": func(f object) {
			f["normalizer"] = object{"type": "Sequence", "normalizers": []any{object{"type": "NFC"}}}
		},
		"unknown token":          func(f object) { f["model"].(object)["unk_token"] = "!"; f["model"].(object)["fuse_unk"] = true },
		"no dropout":             func(f object) { f["model"].(object)["dropout"] = 0.0 },
		"without default fields": func(f object) { delete(f["model"].(object), "ignore_merges"); delete(f, "normalizer") },
		"truncation and padding": func(f object) { f["truncation"] = object{"max_length": 2}; f["padding"] = object{} },
		"template": func(f object) {
			f["post_processor"] = object{"type": "Sequence", "processors": []any{
				byteLevel(true),
				object{"type": "TemplateProcessing", "single": []any{
					object{"SpecialToken": object{"id": "<|endoftext|>", "type_id": 0}},
					object{"Sequence": object{"id": "A", "type_id": 0}},
				}},
			}}
		},
	} {
		tok, err := ParseJSON(edited(t, edit))
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		if got, err := tok.Encode(text); err != nil || !slices.Equal(got, want) {
			t.Errorf("%s: %v, %v, want %v", name, got, err, want)
		}
	}
}

// TestRepeatedMerge: the last rank counts, as in HuggingFace tokenizers.
func TestRepeatedMerge(t *testing.T) {
	for _, c := range []struct {
		merges []string
		want   []string
	}{
		{[]string{"a b", "b c"}, []string{"ab", "c"}},
		{[]string{"a b", "b c", "a b"}, []string{"a", "bc"}},
	} {
		tok, err := ParseJSON(edited(t, func(f object) {
			model := f["model"].(object)
			vocab := model["vocab"].(object)
			vocab["ab"], vocab["bc"] = 10_000, 10_001
			model["merges"] = c.merges
		}))
		if err != nil {
			t.Fatal(err)
		}
		ids, err := tok.Encode("abc")
		if err != nil {
			t.Fatal(err)
		}
		var got []string
		for _, id := range ids {
			content, _ := tok.Token(id)
			got = append(got, content)
		}
		if !slices.Equal(got, c.want) {
			t.Errorf("merges %q: %q, want %q", c.merges, got, c.want)
		}
	}
}

// TestHoles is a vocabulary with ids that no token has.
func TestHoles(t *testing.T) {
	tok, err := ParseJSON(edited(t, func(f object) {
		f["added_tokens"] = []any{object{"id": 5000, "content": "<far>", "special": true}}
	}))
	if err != nil {
		t.Fatal(err)
	}
	if tok.Size() != 5001 {
		t.Errorf("size %d, want 5001", tok.Size())
	}
	if _, err := tok.Decode([]int32{4999}, false); err == nil {
		t.Error("no error for id 4999")
	}
	if ids, err := tok.Encode("<far>"); err != nil || !slices.Equal(ids, []int32{5000}) {
		t.Errorf("%v, %v, want 5000", ids, err)
	}
}

func TestParseJSONErrors(t *testing.T) {
	model := func(key string, value any) func(object) {
		return func(f object) { f["model"].(object)[key] = value }
	}
	vocab := func(content string, id any) func(object) {
		return func(f object) { f["model"].(object)["vocab"].(object)[content] = id }
	}
	preTokenizer := func(value any) func(object) {
		return func(f object) { f["pre_tokenizer"] = value }
	}
	added := func(tokens ...any) func(object) {
		return func(f object) { f["added_tokens"] = tokens }
	}
	for _, c := range []struct {
		name string
		edit func(object)
		want string
	}{
		{"no model", func(f object) { delete(f, "model") }, "model is missing"},
		{"model", model("type", "Unigram"), `model.type "Unigram" is not supported: want BPE`},
		{"dropout", model("dropout", 0.1), "model.dropout 0.1 is not supported"},
		{"prefix", model("continuing_subword_prefix", "##"), `model.continuing_subword_prefix "##"`},
		{"suffix", model("end_of_word_suffix", "</w>"), `model.end_of_word_suffix "</w>"`},
		{"byte_fallback", model("byte_fallback", true), "model.byte_fallback true"},

		{"no vocab", model("vocab", nil), "model.vocab: want an object of token: id, got null"},
		{"vocab", model("vocab", []any{}), "model.vocab: want an object of token: id, got []"},
		{"empty vocab", model("vocab", object{}), `model.vocab: no token "Ā", which stands for byte 0x00`},
		{"missing byte", func(f object) { delete(f["model"].(object)["vocab"].(object), "Ġ") }, `no token "Ġ", which stands for byte 0x20`},
		{"huge id", vocab("zzz", 1<<31-1), `model.vocab: token "zzz": id 2147483647 is not in 0..1048575`},
		{"huger id", vocab("zzz", 1e30), `model.vocab: the id of token "zzz" is not a whole number`},
		{"negative id", vocab("zzz", -1), `token "zzz": id -1 is not in 0..1048575`},
		{"fraction", vocab("zzz", 1.5), `the id of token "zzz" is not a whole number`},
		{"no number", vocab("zzz", "1"), `the id of token "zzz" is not a whole number`},
		{"id twice", func(f object) { clear(f["model"].(object)["vocab"].(object)); vocab("b", 7)(f); vocab("a", 7)(f) },
			`model.vocab: token "b": id 7 is also the id of token "a"`},

		{"merges", model("merges", object{}), "model.merges: want an array of merges, all"},
		{"merge", model("merges", []any{7}), "model.merges: want an array of merges, all"},
		{"mixed merges", model("merges", []any{[]string{"a", "b"}, "a b"}), "model.merges: "},
		{"unknown left", model("merges", []string{"zzz a"}), `model.merges: merge 0 ("zzz" with "a"): no token "zzz" in the vocabulary`},
		{"unknown right", model("merges", []any{[]string{"a", "zzz"}}), `merge 0 ("a" with "zzz"): no token "zzz"`},
		{"unknown product", model("merges", []string{"0 0"}), `merge 0 ("0" with "0"): no token "00"`},
		{"one token", model("merges", []string{"ab"}), `merge 0: "ab" is not two tokens`},
		{"three tokens", model("merges", []string{"a b c"}), `merge 0: "a b c" is not two tokens`},
		{"array of three", model("merges", []any{[]string{"a", "b", "c"}}), "merge 0 has 3 tokens, want 2"},

		{"normalizer", func(f object) { f["normalizer"] = object{"type": "Lowercase"} }, `normalizer "Lowercase" is not supported: want null or NFC`},
		{"normalizers", func(f object) {
			f["normalizer"] = object{"type": "Sequence", "normalizers": []any{object{"type": "NFKC"}}}
		}, `normalizer "NFKC" in a Sequence is not supported`},

		{"no pre_tokenizer", preTokenizer(nil), "pre_tokenizer null: want ByteLevel"},
		{"pre_tokenizer", preTokenizer(object{"type": "Whitespace"}), `pre_tokenizer 0 is "Whitespace": want ByteLevel as the last`},
		{"empty Sequence", preTokenizer(sequence()), `pre_tokenizer "Sequence": want ByteLevel`},
		{"ByteLevel first", preTokenizer(sequence(byteLevel(true), split(patternGPT2))), `pre_tokenizer 0 is "ByteLevel": want ByteLevel as the last of 2 and nowhere else`},
		{"inner", preTokenizer(sequence(object{"type": "Punctuation"}, byteLevel(true))), `pre_tokenizer "Punctuation": not supported: want Split, Digits or ByteLevel`},
		{"nested", preTokenizer(sequence(sequence(split(patternGPT2)), byteLevel(true))), `pre_tokenizer "Sequence": not supported`},
		{"too many", preTokenizer(sequence(append(slices.Repeat([]any{split(patternGPT2)}, 16), byteLevel(true))...)), "pre_tokenizer Sequence has 17 parts, the limit is 16"},
		{"add_prefix_space", preTokenizer(object{"type": "ByteLevel", "add_prefix_space": true}), "add_prefix_space true is not supported"},
		{"digit groups", preTokenizer(sequence(object{"type": "Digits", "individual_digits": false}, byteLevel(true))), "individual_digits false is not supported"},
		{"pattern", preTokenizer(sequence(split(`\w+`), byteLevel(false))), `pattern Regex "\\w+" is not supported`},
		{"string pattern", preTokenizer(sequence(object{"type": "Split", "pattern": object{"String": " "}, "behavior": "Isolated"}, byteLevel(false))),
			`pattern String " " is not supported`},
		{"no pattern", preTokenizer(sequence(object{"type": "Split", "behavior": "Isolated"}, byteLevel(false))), "pattern Regex is missing"},
		{"behavior", preTokenizer(sequence(object{"type": "Split", "pattern": object{"Regex": patternQwen2}, "behavior": "MergedWithNext"}, byteLevel(false))),
			`behavior "MergedWithNext" with invert false is not supported`},
		{"removed", preTokenizer(sequence(object{"type": "Split", "pattern": object{"Regex": patternQwen2}, "behavior": "Removed"}, byteLevel(false))),
			`behavior "Removed" with invert false is not supported`},

		{"post_processor", func(f object) { f["post_processor"] = object{"type": "BertProcessing"} }, `post_processor "BertProcessing" is not supported`},
		{"template", func(f object) { f["post_processor"] = object{"type": "TemplateProcessing", "single": []any{}} }, "single has the text 0 times, want once"},
		{"no decoder", func(f object) { delete(f, "decoder") }, "decoder null: want ByteLevel"},
		{"decoder", func(f object) { f["decoder"] = object{"type": "WordPiece"} }, `decoder "WordPiece": want ByteLevel`},

		{"added without content", added(object{"id": 9999}), "added_tokens: token with id 9999 has no content"},
		{"added content", added(object{"id": 9999, "content": strings.Repeat("x", 1025)}), `added_tokens: token "xxxxxxxxxxxxxxxxxxxx"... with id 9999 has 1025 bytes, the limit is 1024`},
		{"added id", added(object{"id": int64(1 << 31), "content": "<a>"}), `added_tokens: token "<a>": id 2147483648 is not in 0..1048575`},
		{"negative added id", added(object{"id": -5, "content": "<a>"}), `added_tokens: token "<a>": id -5 is not in 0..1048575`},
		{"id of the vocabulary", added(object{"id": 0, "content": "<a>"}), `added_tokens: token "<a>": id 0 is also the id of token "!"`},
		{"another id in the vocabulary", added(object{"id": 9999, "content": "!"}), `added_tokens: token "!": given twice, with ids 0 and 9999`},
		{"added twice", added(object{"id": 9999, "content": "<a>"}, object{"id": 9999, "content": "<a>"}), `added_tokens: token "<a>": given twice, with ids 9999 and 9999`},
		{"marked twice", added(object{"id": 0, "content": "!"}, object{"id": 0, "content": "!"}), `added_tokens: token "!": given twice, with ids 0 and 0`},
		{"the same after NFC", func(f object) {
			f["normalizer"] = object{"type": "NFC"}
			added(object{"id": 9998, "content": "\u01f5"}, object{"id": 9999, "content": "g\u0301"})(f)
		}, `added_tokens: tokens with ids 9998 and 9999 are both "ǵ" once normalized`},
		{"added of another type", added(7), "added_tokens is 7, want an object"},
	} {
		t.Run(c.name, func(t *testing.T) {
			tok, err := ParseJSON(edited(t, c.edit))
			if tok != nil || err == nil || !strings.HasPrefix(err.Error(), "tokenizer: ") || !strings.Contains(err.Error(), c.want) {
				t.Errorf("error %v, want one with %q", err, c.want)
			}
		})
	}
	for data, want := range map[string]string{
		"":           "tokenizer.json:1:1: is empty",
		"null":       "model is missing",
		"[]":         "tokenizer.json:1:1: the value is an array, want an object",
		"{\"\xff\"}": "tokenizer.json:1:3: byte 0xff is not valid UTF-8",
		`{"model": {"type": "BPE", "vocab": {"a": 1, "a": 2}, "merges": []}, "pre_tokenizer": {"type": "ByteLevel"}, "decoder": {"type": "ByteLevel"}}`: `model.vocab: token "a": given twice, with ids 1 and 2`,
		`{"x": ` + strings.Repeat("[", 1<<20): "exceeded max depth",
	} {
		if _, err := ParseJSON([]byte(data)); err == nil || !strings.HasPrefix(err.Error(), "tokenizer: ") || !strings.Contains(err.Error(), want) {
			t.Errorf("%.40q: error %v, want one with %q", data, err, want)
		}
	}
}

func BenchmarkParseJSON(b *testing.B) {
	const size = 151_643 // of Dream's vocabulary
	data := edited(b, func(f object) {
		delete(f, "added_tokens")
		model := f["model"].(object)
		vocab := model["vocab"].(object)
		contents := slices.Sorted(maps.Keys(vocab))
		var merges []string
		for r := rand.New(rand.NewPCG(5, 6)); len(contents) < size; {
			left, right := contents[r.IntN(len(contents))], contents[r.IntN(len(contents))]
			if _, ok := vocab[left+right]; ok || len(left+right) > 16 {
				continue
			}
			vocab[left+right] = len(contents)
			contents = append(contents, left+right)
			merges = append(merges, left+" "+right)
		}
		model["merges"] = merges
	})
	b.SetBytes(int64(len(data)))
	for b.Loop() {
		if _, err := ParseJSON(data); err != nil {
			b.Fatal(err)
		}
	}
}
