package tokenizer

import (
	"strings"
	"testing"
	"unicode/utf8"
)

func FuzzParseJSON(f *testing.F) {
	for _, edit := range []func(object){
		func(object) {},
		func(file object) { file["pre_tokenizer"] = sequence(split(patternLLaDA), byteLevel(false)) },
		func(file object) {
			file["normalizer"] = object{"type": "NFC"}
			file["model"].(object)["ignore_merges"] = true
			file["added_tokens"] = []any{
				object{"id": 300, "content": "<l>", "lstrip": true, "rstrip": true, "single_word": true},
				object{"id": 301, "content": " <r>", "lstrip": true, "special": true, "normalized": true},
			}
		},
	} {
		f.Add(edited(f, func(file object) {
			// Small files make for more executions: the bytes and two merges.
			vocab := object{"the": 256, "he": 257}
			for id, r := range byteRune {
				vocab[string(r)] = id
			}
			model := file["model"].(object)
			model["vocab"], model["merges"] = vocab, []string{"h e", "t he"}
			file["added_tokens"] = []any{object{"id": 258, "content": "<|endoftext|>", "special": true}}
			edit(file)
		}))
	}
	f.Add([]byte(`{"model": {"type": "BPE", "vocab": {"a": 2147483647}, "merges": [["a"]]}}`))
	f.Add([]byte(`{"pre_tokenizer": {"type": "Sequence", "pretokenizers": [{}]}, "decoder": {"type": "ByteLevel"}}`))
	f.Fuzz(func(t *testing.T, data []byte) {
		tok, err := ParseJSON(data)
		if err != nil {
			if tok != nil || !strings.HasPrefix(err.Error(), "tokenizer: ") {
				t.Fatalf("%v, error %v", tok, err)
			}
			return
		}
		if tok.Size() > maxTokens {
			t.Fatalf("size %d", tok.Size())
		}
		const text = "I'm  naïve: 12345 <|endoftext|><l> <r> \r\n e\u0301!"
		for _, encode := range []func(string) ([]int32, error){tok.Encode, tok.EncodeOrdinary} {
			ids, err := encode(text)
			if err != nil {
				t.Fatal(err)
			}
			if _, err := tok.Decode(ids, true); err != nil {
				t.Fatal(err)
			}
		}
	})
}

func FuzzEncodeDecode(f *testing.F) {
	var tokenizers []*Tokenizer
	for _, name := range []string{"llada.json", "gpt2.tokenizer.json", "gpt2-digits.tokenizer.json", "cl100k.tokenizer.json", "ignore-merges.tokenizer.json"} {
		tokenizers = append(tokenizers, openTestdata(f, name))
	}
	for _, c := range readTestdata[golden](f, "llada.oracle.json") {
		f.Add(c.Text)
	}
	f.Add("\xff")
	f.Fuzz(func(t *testing.T, text string) {
		for _, tok := range tokenizers {
			ids, err := tok.Encode(text)
			if !utf8.ValidString(text) {
				if err == nil {
					t.Fatalf("%q: no error", text)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			if got, err := tok.Decode(ids, false); got != text || err != nil {
				t.Fatalf("%q became %v and then %q, %v", text, ids, got, err)
			}
		}
	})
}
