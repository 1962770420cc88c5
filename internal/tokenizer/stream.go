package tokenizer

import (
	"fmt"
	"unicode/utf8"
)

// Stream decodes ids incrementally. A character may extend over several tokens: its bytes
// are kept until it is complete.
type Stream struct {
	t           *Tokenizer
	skipSpecial bool
	pending     []byte // the beginning of a character
}

// NewStream returns a Stream that leaves out special tokens if skipSpecial is set.
func (t *Tokenizer) NewStream(skipSpecial bool) *Stream {
	return &Stream{t: t, skipSpecial: skipSpecial}
}

// Next returns the text that ids complete. The results of all calls of Next and a last Flush,
// concatenated, equal Decode of all ids. An error does not change the stream.
func (s *Stream) Next(ids ...int32) (string, error) {
	b := s.pending
	for i, id := range ids {
		if !s.t.has(id) {
			return "", fmt.Errorf("tokenizer: id %d at index %d is no token of the vocabulary, whose size is %d", id, i, s.t.Size())
		}
		if tok := &s.t.tokens[id]; !(s.skipSpecial && tok.special) {
			b = append(b, tok.bytes...)
		}
	}
	text, rest := replaceInvalid(b)
	s.pending = rest[:len(rest):len(rest)]
	return text, nil
}

// Flush ends the text: it returns U+FFFD if the last character is incomplete.
func (s *Stream) Flush() string {
	if len(s.pending) == 0 {
		return ""
	}
	s.pending = nil
	return string(utf8.RuneError)
}

// replaceInvalid returns b with U+FFFD in place of every maximal subpart of an
// ill-formed sequence (Unicode 15.0, section 3.9, "U+FFFD Substitution of
// Maximal Subparts"), which is what Rust, Python and browsers do and neither
// strings.ToValidUTF8 nor a range loop does. rest is the beginning of a
// character at the end of b.
func replaceInvalid(b []byte) (text string, rest []byte) {
	var out []byte
	done := 0 // b[:done] is in out
	for i := 0; i < len(b); {
		r, n := utf8.DecodeRune(b[i:])
		if r != utf8.RuneError || n > 1 {
			i += n
			continue
		}
		out = append(out, b[done:i]...)
		if !utf8.FullRune(b[i:]) {
			return string(out), b[i:]
		}
		for i+n < len(b) && !utf8.FullRune(b[i:i+n+1]) {
			n++
		}
		out = utf8.AppendRune(out, utf8.RuneError)
		i += n
		done = i
	}
	return string(append(out, b[done:]...)), nil
}
