package tokenizer

import (
	"iter"
	"unicode"
	"unicode/utf8"
)

// The regular expressions that published tokenizers split text into words
// with. They need look-ahead and possessive quantifiers, so each has a scanner
// written by hand instead; any other expression is refused.
const (
	patternGPT2 = `'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+`

	// GPT-4's, as Llama 3 spells it.
	patternCL100K = `(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+`

	// Qwen 2's and Dream's: one digit at a time.
	patternQwen2 = `(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+`

	// LLaDA's. It splits as patternQwen2: the possessive quantifiers stand
	// before classes disjoint from theirs, and \s* is greedy.
	patternLLaDA = `'(?i:[sdmt]|ll|ve|re)|[^\r\n\p{L}\p{N}]?+\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]++[\r\n]*|\s*[\r\n]|\s+(?!\S)|\s+`
)

// patternDigits is what Digits (individual_digits) isolates. Unlike the others it does not
// match at every position: scanDigits also gives what is between the matches.
const patternDigits = `\p{N}`

var scanners = map[string]scanner{
	patternGPT2:   scanGPT2,
	patternCL100K: func(s string) int { return scanCL100K(s, 3) },
	patternQwen2:  func(s string) int { return scanCL100K(s, 1) },
	patternLLaDA:  func(s string) int { return scanCL100K(s, 1) },
}

// scanner returns the length of the first word of s, which is not empty. Every
// pattern matches at every position, so words follow each other without gaps.
type scanner func(s string) int

// pretokenizer splits text by its first pattern, the pieces by the second, and
// so on.
type pretokenizer []splitter

type splitter struct {
	pattern string
	scan    scanner
}

// splitBy returns the pretokenizer of patterns: keys of scanners, and patternDigits.
func splitBy(patterns ...string) pretokenizer {
	p := make(pretokenizer, len(patterns))
	for i, pattern := range patterns {
		p[i] = splitter{pattern, scanners[pattern]}
		if pattern == patternDigits {
			p[i].scan = scanDigits
		}
	}
	return p
}

// patterns are those of splitBy.
func (p pretokenizer) patterns() []string {
	list := make([]string, len(p))
	for i, s := range p {
		list[i] = s.pattern
	}
	return list
}

func (p pretokenizer) split(s string) iter.Seq[string] {
	return func(yield func(string) bool) { p.visit(s, yield) }
}

func (p pretokenizer) visit(s string, yield func(string) bool) bool {
	if len(p) == 0 {
		return s == "" || yield(s)
	}
	for s != "" {
		n := p[0].scan(s)
		if !p[1:].visit(s[:n], yield) {
			return false
		}
		s = s[n:]
	}
	return true
}

// scanDigits makes every number character a word (Digits with individual_digits).
func scanDigits(s string) int {
	for i := 0; i < len(s); {
		c, n := classify(s[i:])
		if c == number {
			if i == 0 {
				return n
			}
			return i
		}
		i += n
	}
	return len(s)
}

func scanGPT2(s string) int {
	if n := contraction(s, false); n > 0 {
		return n
	}
	i := 0
	if s[0] == ' ' {
		i = 1
	}
	if i < len(s) {
		if c, n := classify(s[i:]); !c.isSpace() {
			return i + n + run(s[i+n:], c)
		}
	}
	end, last, _ := whiteSpace(s)
	return leaveLast(s, end, last)
}

// scanCL100K is for the family of GPT-4's pattern; maxDigits is how many
// digits make a word.
func scanCL100K(s string, maxDigits int) int {
	if n := contraction(s, true); n > 0 {
		return n
	}
	c, n := classify(s)
	switch c {
	case letter:
		return n + run(s[n:], letter)
	case number:
		for digits := 1; digits < maxDigits && n < len(s); digits++ {
			c, k := classify(s[n:])
			if c != number {
				break
			}
			n += k
		}
		return n
	case space, other: // either may begin a word of letters
		if k := run(s[n:], letter); k > 0 {
			return n + k
		}
	}
	i := 0
	if s[0] == ' ' {
		i = 1
	}
	if k := run(s[i:], other); k > 0 {
		return i + k + run(s[i+k:], newline)
	}
	end, last, afterNewline := whiteSpace(s)
	if afterNewline > 0 {
		return afterNewline
	}
	return leaveLast(s, end, last)
}

// contraction returns the length of an English contraction at the beginning of
// s. With fold, letters of either case count, as does the ſ of Unicode's case
// folding, the only character outside ASCII that folds to one of them.
func contraction(s string, fold bool) int {
	if s[0] != '\'' || len(s) < 2 {
		return 0
	}
	lower := func(b byte) byte {
		if fold && b >= 'A' && b <= 'Z' {
			return b + 'a' - 'A'
		}
		return b
	}
	switch lower(s[1]) {
	case 's', 't', 'm', 'd':
		return 2
	case 'r', 'v', 'l':
		if len(s) < 3 {
			return 0
		}
		switch string([]byte{lower(s[1]), lower(s[2])}) {
		case "re", "ve", "ll":
			return 3
		}
	case "ſ"[0]:
		if fold && len(s) >= 3 && s[2] == "ſ"[1] {
			return 3
		}
	}
	return 0
}

// whiteSpace returns offsets of the white space at the beginning of s: its end, the
// beginning of its last character, and the end of its last CR or LF (0 if it has none).
func whiteSpace(s string) (end, last, afterNewline int) {
	for end < len(s) {
		c, n := classify(s[end:])
		if !c.isSpace() {
			break
		}
		last = end
		end += n
		if c == newline {
			afterNewline = end
		}
	}
	return end, last, afterNewline
}

// leaveLast is `\s+(?!\S)|\s+` for the white space s[:end]: its last character
// is left to the word that follows, unless there is no word or no other character.
func leaveLast(s string, end, last int) int {
	if end == len(s) || last == 0 {
		return end
	}
	return last
}

// class is the class of a character in the patterns.
type class uint8

const (
	other   class = iota
	letter        // \p{L}
	number        // \p{N}
	space         // \s, except
	newline       // CR and LF
)

func (c class) isSpace() bool { return c == space || c == newline }

// classify returns the class of the first character of s, and its length.
func classify(s string) (class, int) {
	if s[0] < utf8.RuneSelf {
		return asciiClass[s[0]], 1
	}
	r, n := utf8.DecodeRuneInString(s)
	return classOf(r), n
}

func classOf(r rune) class {
	switch {
	case unicode.IsLetter(r):
		return letter
	case unicode.IsNumber(r):
		return number
	case r == '\r' || r == '\n':
		return newline
	case unicode.IsSpace(r):
		return space
	}
	return other
}

var asciiClass = func() (table [utf8.RuneSelf]class) {
	for i := range table {
		table[i] = classOf(rune(i))
	}
	return table
}()

// run returns the length of the characters of class c that s begins with.
func run(s string, c class) int {
	for i := 0; i < len(s); {
		next, n := classify(s[i:])
		if next != c {
			return i
		}
		i += n
	}
	return len(s)
}
