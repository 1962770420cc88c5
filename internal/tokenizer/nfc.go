package tokenizer

import (
	"cmp"
	"slices"
	"unicode/utf8"

	"golang.org/x/text/unicode/norm"
)

// nfc returns the canonical composition of s (UAX 15).
//
// It uses the tables of norm.NFC but not norm.NFC.String, which differs from the
// normalisation that models are trained with: it makes the stream-safe form, with a U+034F
// in every run of more than 30 combining marks, composes across a starter in
// "e\u09be\u0316\u0301", and treats U+10041 with a mark like U+0041 with it.
func nfc(s string) string {
	if norm.NFC.QuickSpanString(s) == len(s) {
		return s
	}
	return string(compose(decompose(s)))
}

// char is a character with its canonical combining class.
type char struct {
	r     rune
	class uint8
	// joins is false if no preceding character can combine with this one.
	joins bool
}

// decompose returns the canonical decomposition of s, with the marks of every
// character in canonical order. Hangul syllables are left whole: compose need
// only add to them.
func decompose(s string) []char {
	chars := make([]char, 0, len(s))
	add := func(s string, p norm.Properties) {
		r, _ := utf8.DecodeRuneInString(s)
		chars = append(chars, char{r, p.CCC(), !p.BoundaryBefore()})
	}
	for s != "" {
		p := norm.NFC.PropertiesString(s)
		whole, parts := s[:p.Size()], string(p.Decomposition())
		if parts == "" {
			add(whole, p)
		}
		for parts != "" {
			q := norm.NFC.PropertiesString(parts)
			add(parts, q)
			parts = parts[q.Size():]
		}
		s = s[len(whole):]
	}
	for rest := chars; len(rest) > 0; {
		marks := 0
		for marks < len(rest) && rest[marks].class != 0 {
			marks++
		}
		slices.SortStableFunc(rest[:marks], func(a, b char) int { return cmp.Compare(a.class, b.class) })
		rest = rest[max(marks, 1):]
	}
	return chars
}

// compose replaces every character that combines with the last starter (a
// character of class 0) before it, if none between them blocks it: has class 0
// or at least its own class.
func compose(chars []char) []rune {
	out := make([]rune, 0, len(chars))
	starter, last := -1, uint8(0) // index in out; class of the last character of out
	for _, c := range chars {
		adjacent := starter == len(out)-1
		if starter >= 0 && c.joins && (adjacent || last < c.class) {
			if r, ok := composePair(out[starter], c.r); ok {
				out[starter] = r
				continue
			}
		}
		if c.class == 0 {
			starter = len(out)
		}
		last = c.class
		out = append(out, c.r)
	}
	return out
}

// composePair returns the character that a and b make up, if there is one.
func composePair(a, b rune) (rune, bool) {
	pair := string([]rune{a, b})
	composed := norm.NFC.String(pair)
	r, n := utf8.DecodeRuneInString(composed)
	// The second condition excludes wrong results for characters above U+FFFF.
	return r, n == len(composed) && norm.NFD.String(composed) == norm.NFD.String(pair)
}
