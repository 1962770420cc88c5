package tokenizer

import (
	"strings"
	"testing"

	"golang.org/x/text/unicode/norm"
	"pgregory.net/rapid"
)

// TestNFC compares with x/text on text that is already stream-safe, of which
// it makes the same; TestGolden has longer runs of marks.
func TestNFC(t *testing.T) {
	alphabet := []rune("aAeEoqKÅÅÉǖΩΩ가각나ㄱ\u1100\u1161\u11a8\u0300\u0301\u0301\u0308\u030a\u0316\u0323\u0327\u0338\u0344\u0345\u05b0\u05b4\u0915\u093c\u0958\u09c7\u09be\u0dd9\u0dca\u0dcf\u0f71\u0f72\u0f73\u1b05\u1b35\u2adc\ufb1d\U0001d15e\U00011099\U000110ba\U0001f600 x<>=")
	text := rapid.StringOfN(rapid.SampledFrom(alphabet), 0, 10, -1)
	rapid.Check(t, func(t *rapid.T) {
		s := text.Draw(t, "text")
		if got, want := nfc(s), norm.NFC.String(s); got != want {
			t.Fatalf("%+q becomes %+q, want %+q", s, got, want)
		}
	})
	for r := rune(0); r <= 0x10ffff; r++ {
		if r == 0xd800 {
			r = 0xe000
		}
		for _, s := range []string{string(r), "e" + string(r) + "\u0301\u0316", string(r) + "\u0301\u0316"} {
			if got, want := nfc(s), norm.NFC.String(s); got != want {
				t.Fatalf("%+q becomes %+q, want %+q", s, got, want)
			}
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
