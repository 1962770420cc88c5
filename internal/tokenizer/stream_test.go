package tokenizer

import (
	"slices"
	"strings"
	"testing"

	"golang.org/x/text/encoding/unicode"
	"pgregory.net/rapid"
)

func TestReplaceInvalid(t *testing.T) {
	for _, c := range []struct{ in, text, rest string }{
		{"", "", ""},
		{"aé世👩", "aé世👩", ""},
		{"a\xf0\x9f\x91", "a", "\xf0\x9f\x91"},
		{"\xf0\x9f\x91b", "\ufffdb", ""},
		{"\xff", "\ufffd", ""},
		{"\xff\xfe", "\ufffd\ufffd", ""},
		{"\x80\x80", "\ufffd\ufffd", ""},
		{"\xe2\x82\xe2\x82", "\ufffd", "\xe2\x82"},
		{"\xed\xa0\x80", "\ufffd\ufffd\ufffd", ""}, // a surrogate
		{"\xf4\x90\x80\x80", "\ufffd\ufffd\ufffd\ufffd", ""},
		{"\xc0\xaf\xc3", "\ufffd\ufffd", "\xc3"},
		{"\xef\xbf\xbd", "\ufffd", ""},
	} {
		text, rest := replaceInvalid([]byte(c.in))
		if text != c.text || string(rest) != c.rest {
			t.Errorf("%q: %q and %q, want %q and %q", c.in, text, rest, c.text, c.rest)
		}
	}
	rapid.Check(t, func(t *rapid.T) {
		in := rapid.SliceOf(rapid.OneOf(rapid.Byte(), rapid.SampledFrom([]byte("\x80\x9f\xa0\xbf\xc2\xe0\xe2\xed\xf0\xf4")))).Draw(t, "in")
		want, err := unicode.UTF8.NewDecoder().Bytes(in)
		if err != nil {
			t.Fatal(err)
		}
		text, rest := replaceInvalid(in)
		if len(rest) > 0 {
			text += "\ufffd"
		}
		if text != string(want) {
			t.Fatalf("%q: %q, want %q", in, text, want)
		}
	})
}

// TestStream compares every way of splitting ids with Decode, which TestGolden compares with
// the reference.
func TestStream(t *testing.T) {
	tok := openTestdata(t, "added.tokenizer.json")
	rapid.Check(t, func(t *rapid.T) {
		ids := rapid.SliceOf(rapid.Int32Range(0, int32(tok.Size()-1))).Draw(t, "ids")
		skip := rapid.Bool().Draw(t, "skip")
		want, err := tok.Decode(ids, skip)
		if err != nil {
			t.Fatal(err)
		}
		s := tok.NewStream(skip)
		var got strings.Builder
		for rest := ids; len(rest) > 0; {
			n := rapid.IntRange(0, len(rest)).Draw(t, "n")
			text, err := s.Next(rest[:n]...)
			if err != nil {
				t.Fatal(err)
			}
			got.WriteString(text)
			rest = rest[n:]
			if n == 0 {
				text, err = s.Next(rest[0])
				if err != nil {
					t.Fatal(err)
				}
				got.WriteString(text)
				rest = rest[1:]
			}
		}
		got.WriteString(s.Flush())
		if got.String() != want {
			t.Fatalf("%v: %q, want %q", ids, got.String(), want)
		}
	})
}

func TestStreamHoldsBack(t *testing.T) {
	tok := openTestdata(t, "gpt2.tokenizer.json")
	ids, err := tok.Encode("é👩!")
	if err != nil {
		t.Fatal(err)
	}
	s := tok.NewStream(false)
	var got []string
	for _, id := range ids {
		text, err := s.Next(id)
		if err != nil {
			t.Fatal(err)
		}
		got = append(got, text)
	}
	if want := []string{"", "é", "", "👩", "!"}; !slices.Equal(got, want) {
		t.Errorf("%q, want %q", got, want)
	}
	if rest := s.Flush(); rest != "" {
		t.Errorf("Flush returns %q after complete text", rest)
	}

	if _, err := s.Next(ids[0]); err != nil {
		t.Fatal(err)
	}
	if _, err := s.Next(ids[1], -1); err == nil {
		t.Error("no error for id -1")
	}
	if text, err := s.Next(ids[1]); text != "é" || err != nil {
		t.Errorf("after an error: %q, %v, want é", text, err)
	}
	if _, err := s.Next(ids[0]); err != nil {
		t.Fatal(err)
	}
	if rest := s.Flush(); rest != "\ufffd" {
		t.Errorf("Flush returns %q after half a character", rest)
	}
	if rest := s.Flush(); rest != "" {
		t.Errorf("Flush returns %q the second time", rest)
	}
}
