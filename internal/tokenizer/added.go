package tokenizer

import (
	"fmt"
	"iter"
	"strings"
	"unicode"
	"unicode/utf8"
)

// addedToken is a token found in the text before it is split into words.
type addedToken struct {
	content    string
	id         int64
	normalized bool // matched in the normalised text, in normalised form
	flags
}

// flags are the conditions and side effects of a match.
type flags struct {
	special    bool
	singleWord bool // only between characters that are not part of a word
	lstrip     bool // takes the white space before it along
	rstrip     bool // takes the white space after it along
}

// noToken marks a piece of text between added tokens.
const noToken = -1

// matcher finds added tokens: the leftmost, of those the longest. It is a trie
// over bytes.
type matcher struct {
	starts  [256]bool // whether a token begins with the byte; most bytes end here
	edges   map[edge]int32
	matches map[int32]match // by the node where the content ends
}

type edge struct {
	node int32
	next byte
}

type match struct {
	id int32
	flags
}

func (m *matcher) add(content string, found match) error {
	if m.edges == nil {
		m.edges = map[edge]int32{}
		m.matches = map[int32]match{}
	}
	m.starts[content[0]] = true
	node := int32(0)
	for i := range len(content) {
		e := edge{node, content[i]}
		if _, ok := m.edges[e]; !ok {
			m.edges[e] = int32(len(m.edges) + 1)
		}
		node = m.edges[e]
	}
	if other, ok := m.matches[node]; ok {
		return fmt.Errorf("tokens with ids %d and %d are both %q once normalized", other.id, found.id, content)
	}
	m.matches[node] = found
	return nil
}

// find returns the first match in text and where it is.
func (m *matcher) find(text string) (start, end int, found match, ok bool) {
	for start := range len(text) {
		if !m.starts[text[start]] {
			continue
		}
		node := int32(0)
		for i := start; i < len(text); i++ {
			node = m.edges[edge{node, text[i]}]
			if node == 0 {
				break
			}
			if at, terminal := m.matches[node]; terminal {
				end, found, ok = i+1, at, true
			}
		}
		if ok {
			return start, end, found, true
		}
	}
	return 0, 0, match{}, false
}

// everyToken and ordinaryToken select the added tokens that count: all of them, or those
// that are not special.
func everyToken(match) bool      { return true }
func ordinaryToken(m match) bool { return !m.special }

// cut yields the pieces of text between the added tokens that count, normalised
// and with noToken, and the ids of the added tokens.
func (t *Tokenizer) cut(text string, counts func(match) bool) iter.Seq2[string, int32] {
	return func(yield func(string, int32) bool) {
		for piece, id := range t.verbatim.split(text, counts) {
			if id != noToken {
				if !yield("", id) {
					return
				}
				continue
			}
			if t.normalize {
				piece = nfc(piece)
			}
			for piece, id := range t.normalized.split(piece, counts) {
				if !yield(piece, id) {
					return
				}
			}
		}
	}
}

// split yields the pieces of text between added tokens, with noToken, and the
// ids of the added tokens. Those that do not count are plain text.
//
// It reproduces two details of the reference. A match that does not count, because it is
// special or no single word, still hides matches that begin inside it. White space that a
// token takes along can also be part of the next token.
func (m *matcher) split(text string, counts func(match) bool) iter.Seq2[string, int32] {
	return func(yield func(string, int32) bool) {
		done := 0 // text[:done] was yielded
		for at := 0; ; {
			start, end, found, ok := m.find(text[at:])
			if !ok {
				break
			}
			start, end = at+start, at+end
			at = end
			if !counts(found) || found.singleWord && inWord(text, start, end) {
				continue
			}
			if found.lstrip {
				start = max(done, len(strings.TrimRightFunc(text[:start], unicode.IsSpace)))
			}
			if found.rstrip {
				end = len(text) - len(strings.TrimLeftFunc(text[end:], unicode.IsSpace))
			}
			if done < start && !yield(text[done:start], noToken) {
				return
			}
			if !yield("", found.id) {
				return
			}
			done = end
		}
		if done < len(text) {
			yield(text[done:], noToken)
		}
	}
}

// inWord reports whether a character of a word touches text[start:end].
func inWord(text string, start, end int) bool {
	before, _ := utf8.DecodeLastRuneInString(text[:start])
	after, _ := utf8.DecodeRuneInString(text[end:])
	return start > 0 && isWord(before) || end < len(text) && isWord(after)
}

// isWord is \w of Unicode regular expressions (UTS 18, Annex C).
func isWord(r rune) bool {
	return unicode.In(r, unicode.L, unicode.M, unicode.Nd, unicode.Nl, unicode.Pc,
		unicode.Other_Alphabetic, unicode.Join_Control)
}
