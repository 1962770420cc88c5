// Package tokenizer encodes and decodes text with byte-level BPE tokenizers as
// published with language models: the tokenizer.json of HuggingFace
// tokenizers, or the older vocab.json with merges.txt.
//
// It supports the tokenizers of LLaDA, Dream and related models, and gives the ids of
// HuggingFace tokenizers 0.22. A file with any other component is refused with an error that
// names it, because a slightly wrong tokenizer degrades a model without an error.
//
// Letters, numbers and marks are those of Go's unicode package and x/text: characters added
// after Unicode 15 (mostly new scripts) count as none of them.
//
// The steps of encoding are: cut out the added tokens (added.go; parts.go for texts of
// several authors), normalise the rest to NFC if the file requires it (nfc.go), split it into
// words (pretokenize.go), and merge the bytes of each word (bpe.go).
package tokenizer

import (
	"fmt"
	"unicode/utf8"
)

// Tokenizer converts between text and token ids. It is safe for concurrent use.
type Tokenizer struct {
	tokens    []token          // by id
	ids       map[string]int32 // by content
	normalize bool             // to NFC
	words     pretokenizer
	bpe       bpe

	// Added tokens are matched twice: in the given text, and then in the normalised text
	// between the matches.
	verbatim   matcher
	normalized matcher
}

type token struct {
	content string // as in the file
	bytes   string // decoded
	present bool   // false for an id that no token has
	special bool
}

// Encode returns the ids of text. Added tokens, special ones included, are
// recognised where their content occurs; none is added at the start or the end. The
// text must be valid UTF-8 of at most 512 MiB.
func (t *Tokenizer) Encode(text string) ([]int32, error) {
	return t.encode(text, everyToken)
}

// EncodeOrdinary is Encode for text from outside: what looks like a special
// token is encoded as the plain characters it is spelled with, so that a user
// cannot type a mask or an end of turn. Added tokens that are not special are
// still recognised. (It is encode_special_tokens in HuggingFace tokenizers,
// split_special_tokens in transformers.)
func (t *Tokenizer) EncodeOrdinary(text string) ([]int32, error) {
	return t.encode(text, ordinaryToken)
}

// maxText keeps positions in a word within int32, also after NFC, which makes
// text up to three times as long.
const maxText = 1 << 29

func (t *Tokenizer) encode(text string, counts func(match) bool) ([]int32, error) {
	if err := checkText(len(text), text); err != nil {
		return nil, err
	}
	ids := make([]int32, 0, len(text)/4) // English has some four bytes a token
	return t.append(ids, text, counts), nil
}

// append appends the ids of text, in which the added tokens that count are
// recognised.
func (t *Tokenizer) append(ids []int32, text string, counts func(match) bool) []int32 {
	for piece, id := range t.cut(text, counts) {
		if id != noToken {
			ids = append(ids, id)
			continue
		}
		for word := range t.words.split(piece) {
			ids = t.bpe.append(ids, word)
		}
	}
	return ids
}

// checkText reports a text that is too long, size being its length or that of the
// text that it is a part of, or not valid UTF-8.
func checkText(size int, text string) error {
	if size > maxText {
		return fmt.Errorf("tokenizer: text has %d bytes, the limit is %d", size, maxText)
	}
	if i := invalidUTF8(text); i >= 0 {
		return fmt.Errorf("tokenizer: text is not valid UTF-8: byte %#02x at offset %d", text[i], i)
	}
	return nil
}

// Decode returns the text of ids, without the special tokens if skipSpecial is
// set. Bytes that are not UTF-8 become U+FFFD, one for each maximal valid
// prefix of a character as the Unicode standard recommends. An id that no
// token has is an error.
func (t *Tokenizer) Decode(ids []int32, skipSpecial bool) (string, error) {
	s := t.NewStream(skipSpecial)
	text, err := s.Next(ids...)
	if err != nil {
		return "", err
	}
	return text + s.Flush(), nil
}

// TokenID returns the id of the token spelled content in the tokenizer's
// files: an added token such as "<|mask|>", or one of the vocabulary, where
// bytes are written in the GPT-2 alphabet ("Ġthe" for " the").
func (t *Tokenizer) TokenID(content string) (int32, bool) {
	id, ok := t.ids[content]
	return id, ok
}

// Token returns the spelling of id, the inverse of TokenID.
func (t *Tokenizer) Token(id int32) (string, bool) {
	if !t.has(id) {
		return "", false
	}
	return t.tokens[id].content, true
}

// IsSpecial reports whether id is an added token marked special: one that
// EncodeOrdinary never recognises and Decode can leave out.
func (t *Tokenizer) IsSpecial(id int32) bool {
	return t.has(id) && t.tokens[id].special
}

// Size returns the largest id plus one. There may be ids below it that no
// token has.
func (t *Tokenizer) Size() int { return len(t.tokens) }

func (t *Tokenizer) has(id int32) bool {
	return id >= 0 && int(id) < len(t.tokens) && t.tokens[id].present
}

func newTokenizer(normalize bool, words pretokenizer) *Tokenizer {
	return &Tokenizer{normalize: normalize, words: words, bpe: bpe{cache: newWordCache()}}
}

// The largest published vocabularies have some 900,000 tokens. The limits keep
// a file from claiming gigabytes with a few bytes.
const (
	maxTokens       = 1 << 20
	maxAddedContent = 1 << 10 // bytes; it bounds the work for a byte of text
)

// entry is a token of a vocabulary file.
type entry struct {
	content string
	id      int64
}

// put gives content an id. Neither may be in use.
func (t *Tokenizer) put(content string, id int64) error {
	if id < 0 || id >= maxTokens {
		return fmt.Errorf("token %q: id %d is not in 0..%d", content, id, maxTokens-1)
	}
	if old, ok := t.ids[content]; ok {
		return fmt.Errorf("token %q: given twice, with ids %d and %d", content, old, id)
	}
	if t.has(int32(id)) {
		return fmt.Errorf("token %q: id %d is also the id of token %q", content, id, t.tokens[id].content)
	}
	if grow := int(id) + 1 - len(t.tokens); grow > 0 {
		t.tokens = append(t.tokens, make([]token, grow)...)
	}
	t.tokens[id] = token{content: content, bytes: decodeContent(content), present: true}
	t.ids[content] = int32(id)
	return nil
}

func (t *Tokenizer) setVocabulary(entries []entry) error {
	t.ids = make(map[string]int32, len(entries))
	for _, e := range entries {
		if err := t.put(e.content, e.id); err != nil {
			return err
		}
	}
	for b := range t.bpe.bytes {
		content := string(byteRune[b])
		id, ok := t.ids[content]
		if !ok {
			return fmt.Errorf("no token %q, which stands for byte %#02x", content, b)
		}
		t.bpe.bytes[b] = id
	}
	return nil
}

// setMerges takes the merges in order of rank. A pair given twice keeps its
// last rank, as in the reference.
func (t *Tokenizer) setMerges(merges [][2]string) error {
	t.bpe.merges = make(map[pair]merge, len(merges))
	for rank, m := range merges {
		var ids [3]int32
		for i, content := range []string{m[0], m[1], m[0] + m[1]} {
			id, ok := t.ids[content]
			if !ok {
				return fmt.Errorf("merge %d (%q with %q): no token %q in the vocabulary", rank, m[0], m[1], content)
			}
			ids[i] = id
		}
		t.bpe.merges[newPair(ids[0], ids[1])] = merge{rank: int32(rank), id: ids[2]}
	}
	return nil
}

// setWholeWords makes words that are tokens skip the merges (ignore_merges).
func (t *Tokenizer) setWholeWords() {
	t.bpe.whole = make(map[string]int32, len(t.ids))
	for content, id := range t.ids {
		if isByteContent(content) {
			t.bpe.whole[t.tokens[id].bytes] = id
		}
	}
}

// setAdded adds the added tokens, which may mark tokens of the vocabulary.
func (t *Tokenizer) setAdded(added []addedToken) error {
	seen := make(map[int32]bool, len(added))
	for _, a := range added {
		if a.content == "" {
			return fmt.Errorf("token with id %d has no content", a.id)
		}
		if len(a.content) > maxAddedContent {
			return fmt.Errorf("token %.20q... with id %d has %d bytes, the limit is %d", a.content, a.id, len(a.content), maxAddedContent)
		}
		if old, ok := t.ids[a.content]; !ok || int64(old) != a.id || seen[old] {
			if err := t.put(a.content, a.id); err != nil {
				return err
			}
		}
		id := int32(a.id)
		seen[id] = true
		t.tokens[id].special = a.special
		m, content := &t.verbatim, a.content
		if a.normalized {
			m = &t.normalized
			if t.normalize {
				content = nfc(content)
			}
		}
		if err := m.add(content, match{id: id, flags: a.flags}); err != nil {
			return err
		}
	}
	return nil
}

// invalidUTF8 returns the offset of the first byte of s that is not part of a
// valid encoding, or -1.
func invalidUTF8(s string) int {
	if utf8.ValidString(s) {
		return -1
	}
	for i, r := range s {
		if r != utf8.RuneError {
			continue
		}
		if _, n := utf8.DecodeRuneInString(s[i:]); n == 1 {
			return i
		}
	}
	return -1
}
