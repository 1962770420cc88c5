package tokenizer

import (
	"regexp"
	"slices"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"
)

func TestScanners(t *testing.T) {
	for _, c := range []struct {
		text  string
		qwen2 []string // and LLaDA, and CL100K where no digits touch
		gpt2  []string
	}{
		{"Hello, how are you?", []string{"Hello", ",", " how", " are", " you", "?"}, nil},
		{"def f(x):\n    return x+1\n",
			[]string{"def", " f", "(x", "):\n", "   ", " return", " x", "+", "1", "\n"},
			[]string{"def", " f", "(", "x", "):", "\n   ", " return", " x", "+", "1", "\n"}},
		{"naïve café", []string{"naïve", " café"}, nil},
		{"a  b", []string{"a", " ", " b"}, nil},
		{"a\n\n  b", []string{"a", "\n\n", " ", " b"}, []string{"a", "\n\n ", " b"}},
		{"don't I'LL", []string{"don", "'t", " I", "'LL"}, []string{"don", "'t", " I", "'", "LL"}},
		{"it'ſ 'x''re", []string{"it", "'ſ", " '", "x", "''", "re"}, []string{"it", "'", "ſ", " '", "x", "''", "re"}},
		{"  \n", []string{"  \n"}, nil},
		{" \n \n  x", []string{" \n \n", " ", " x"}, []string{" \n \n ", " x"}},
		{"\r\n\r\nx", []string{"\r\n\r\n", "x"}, []string{"\r\n\r", "\n", "x"}},
		{"\tx \t y", []string{"\tx", " \t", " y"}, []string{"\t", "x", " \t", " y"}},
		{"你好，世界", []string{"你好", "，世界"}, []string{"你好", "，", "世界"}},
		{"👩", []string{"👩"}, nil},
		{"e\u0301t\u00a0u", []string{"e", "\u0301t", "\u00a0u"}, []string{"e", "\u0301", "t", "\u00a0", "u"}},
		{"!!\r\n\n x", []string{"!!\r\n\n", " x"}, []string{"!!", "\r\n\n", " x"}},
		{"", nil, nil},
	} {
		if c.gpt2 == nil {
			c.gpt2 = c.qwen2
		}
		for pattern, want := range map[string][]string{
			patternQwen2: c.qwen2, patternLLaDA: c.qwen2, patternCL100K: c.qwen2, patternGPT2: c.gpt2,
		} {
			got := slices.Collect(splitBy(pattern).split(c.text))
			if !slices.Equal(got, want) {
				t.Errorf("%.20s: %q\n got %q\nwant %q", pattern, c.text, got, want)
			}
		}
	}
}

func TestScanNumbers(t *testing.T) {
	const text = " 12345x6789½٣ 1"
	for name, c := range map[string]struct {
		words pretokenizer
		want  []string
	}{
		"qwen2":       {splitBy(patternQwen2), []string{" ", "1", "2", "3", "4", "5", "x", "6", "7", "8", "9", "½", "٣", " ", "1"}},
		"cl100k":      {splitBy(patternCL100K), []string{" ", "123", "45", "x", "678", "9½٣", " ", "1"}},
		"gpt2":        {splitBy(patternGPT2), []string{" 12345", "x", "6789½٣", " 1"}},
		"digits":      {splitBy(patternDigits), []string{" ", "1", "2", "3", "4", "5", "x", "6", "7", "8", "9", "½", "٣", " ", "1"}},
		"digits gpt2": {splitBy(patternDigits, patternGPT2), []string{" ", "1", "2", "3", "4", "5", "x", "6", "7", "8", "9", "½", "٣", " ", "1"}},
		"nothing":     {nil, []string{text}},
	} {
		if diff := cmp.Diff(c.want, slices.Collect(c.words.split(text))); diff != "" {
			t.Errorf("%s: %s", name, diff)
		}
	}
}

// slowScanner runs pattern with package regexp, in the order of its alternatives. The end of
// the pattern, which has look-ahead and is the same in all patterns, is evaluated in Go.
func slowScanner(t testing.TB, pattern string) scanner {
	before, ok := strings.CutSuffix(pattern, `|\s+(?!\S)|\s+`)
	if !ok {
		t.Fatalf("pattern %q ends otherwise", pattern)
	}
	const space = `\t-\r\x{85}\p{Z}` // \s of regexp is ASCII
	before = strings.NewReplacer(`[^\s`, `[^`+space, `\s`, `[`+space+`]`, `?+`, `?`, `++`, `+`).Replace(before)
	word := regexp.MustCompile(`^(?:` + before + `)`)
	spaces := regexp.MustCompile(`^[` + space + `]+`)
	return func(s string) int {
		if m := word.FindStringIndex(s); m != nil {
			return m[1]
		}
		n := len(spaces.FindString(s))
		if _, last := utf8.DecodeLastRuneInString(s[:n]); n < len(s) && n > last {
			return n - last
		}
		return n
	}
}

// alphabet has characters that the patterns treat in different ways.
var alphabet = []rune("aZsStTlLvVeErRdDmMſKſǅªé世\u0301\u0e33 \u00a0\u0085\u2028\u3000\t\v\r\n\n  1239½٣Ⅳ𝟎''’.,!?()_-=+<>|\u00ad\u200d👩🏽\x00\ufffd")

func TestScannersAgainstRegexp(t *testing.T) {
	text := rapid.StringOf(rapid.SampledFrom(alphabet))
	for pattern, scan := range scanners {
		slow := slowScanner(t, pattern)
		rapid.Check(t, func(t *rapid.T) {
			for s := text.Draw(t, "text"); s != ""; {
				n, want := scan(s), slow(s)
				if n != want {
					t.Fatalf("%.20s: the first word of %q is %q, want %q", pattern, s, s[:n], s[:want])
				}
				s = s[n:]
			}
		})
	}
}
