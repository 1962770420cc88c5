package tokenizer

import (
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"
)

// TestMatcherAgainstSearch compares the trie with trying every token at every
// position. What the flags do is compared with HuggingFace tokenizers by
// TestGolden.
func TestMatcherAgainstSearch(t *testing.T) {
	content := rapid.StringMatching(`[ab<]{1,4}`)
	rapid.Check(t, func(t *rapid.T) {
		contents := rapid.SliceOfNDistinct(content, 0, 6, rapid.ID).Draw(t, "contents")
		text := rapid.StringMatching(`[abc<]{0,20}`).Draw(t, "text")
		var m matcher
		for i, c := range contents {
			if err := m.add(c, match{id: int32(i)}); err != nil {
				t.Fatal(err)
			}
		}

		var want []string
		plain := ""
		for s := text; s != ""; {
			longest := ""
			for _, c := range contents {
				if strings.HasPrefix(s, c) && len(c) > len(longest) {
					longest = c
				}
			}
			if longest == "" {
				plain += s[:1]
				s = s[1:]
				continue
			}
			if plain != "" {
				want = append(want, plain)
			}
			plain = ""
			want = append(want, "token "+longest)
			s = s[len(longest):]
		}
		if plain != "" {
			want = append(want, plain)
		}

		var got []string
		for piece, id := range m.split(text, everyToken) {
			if id != noToken {
				piece = "token " + contents[id]
			}
			got = append(got, piece)
		}
		if !slices.Equal(got, want) {
			t.Fatalf("%q with %q: %q, want %q", text, contents, got, want)
		}
		for range m.split(text, everyToken) {
			break // which must not panic
		}
	})
}

// TestHiddenTokens: EncodeOrdinary differs from a tokenizer without the special tokens where
// these overlap other added tokens.
func TestHiddenTokens(t *testing.T) {
	tok := openTestdata(t, "added.tokenizer.json")
	inner, _ := tok.TokenID("<x>")
	ids, err := tok.EncodeOrdinary("<x> <<<x>")
	if err != nil {
		t.Fatal(err)
	}
	if n := len(slices.DeleteFunc(slices.Clone(ids), func(id int32) bool { return id != inner })); n != 1 {
		t.Errorf("%d tokens <x> in %v, want 1: the special token <<<x> hides the other", n, ids)
	}
	for _, id := range ids {
		if tok.IsSpecial(id) {
			t.Errorf("special token %d in %v", id, ids)
		}
	}
}
