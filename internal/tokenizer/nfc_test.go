package tokenizer

import (
	"strings"
	"testing"
	"unicode/utf8"

	"golang.org/x/text/unicode/norm"
	"pgregory.net/rapid"
)

func TestNFC(t *testing.T) {
	for in, want := range map[string]string{
		"":                           "",
		"caf\u00e9":                  "caf\u00e9",
		"cafe\u0301":                 "caf\u00e9",
		"\u212b\u2126":               "\u00c5\u03a9", // singletons
		"\u0958":                     "\u0915\u093c", // excluded from composition
		"\u0344":                     "\u0308\u0301",
		"\u1100\u1161\u11a8":         "\uac01",
		"\uac00\u11a8\u11a8":         "\uac01\u11a8",
		"\u0dd9\u0dcf\u0dca":         "\u0ddd",
		"a\u0316\u0301":              "\u00e1\u0316",
		"a\u0301\u0301":              "\u00e1\u0301",
		"\u0301a":                    "\u0301a",
		"e\u034f\u0301":              "e\u034f\u0301", // a starter between them
		"e\u09be\u0301\u0316":        "e\u09be\u0316\u0301",
		"\U0001d157\U0001d165x":      "\U0001d157\U0001d165x",
		"\U00010041\u0301":           "\U00010041\u0301",
		"\U00011099\U000110ba\u0301": "\U0001109a\u0301",
	} {
		if got := nfc(in); got != want {
			t.Errorf("%+q becomes %+q, want %+q", in, got, want)
		}
	}
}

// TestNFCAgainstText compares with x/text where it is right: on short runs of
// marks, without both starters that combine with what is before them and marks
// that do not, and without marks on characters above U+FFFF.
func TestNFCAgainstText(t *testing.T) {
	compare := func(t rapid.TB, s string) {
		if got, want := nfc(s), norm.NFC.String(s); got != want {
			t.Fatalf("%+q becomes %+q, want %+q", s, got, want)
		}
	}
	const letters = "aAeEoqKÅÅÉǖΩΩ가각나ㄱ\u1100\u0915\u0958\u09c7\u0dd9\u1b05\u2adc\ufb1d\U0001d15e\U00011099\U0001f600 x<>="
	const marks = "\u0300\u0301\u0301\u0308\u030a\u0323\u0327\u0338\u0344\u093c\u0dca"
	for _, alphabet := range []string{
		letters + marks + "\u0316\u0345\u05b0\u05b4\u0f71\u0f72\u0f73",
		letters + marks + "\u1161\u11a8\u09be\u0dcf\u1b35\U000110ba",
	} {
		text := rapid.StringOfN(rapid.SampledFrom([]rune(alphabet)), 0, 10, -1)
		rapid.Check(t, func(t *rapid.T) { compare(t, text.Draw(t, "text")) })
	}
	for r := range rune(utf8.MaxRune + 1) {
		if !utf8.ValidRune(r) {
			continue
		}
		compare(t, string(r))
		compare(t, "e"+string(r))
		if r <= 0xffff {
			compare(t, "e"+string(r)+"\u0301")
			compare(t, string(r)+"\u0316\u0301")
		}
	}
}

func TestNFCOfManyMarks(t *testing.T) {
	in := "e" + strings.Repeat("\u0316\u0301", 100_000)
	want := "\u00e9" + strings.Repeat("\u0316", 100_000) + strings.Repeat("\u0301", 99_999)
	if got := nfc(in); got != want {
		t.Errorf("%d bytes that begin %+.20q, want %d that begin %+.20q", len(got), got, len(want), want)
	}
}
