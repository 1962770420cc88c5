package tokenizer

import "strings"

// Part is a piece of a text that several authors have written, such as a
// conversation in the form of a chat template.
type Part struct {
	Text    string
	Control bool // written by the template: special tokens in it are recognised
}

// EncodeParts returns the ids of the parts' texts one after the other. Special
// tokens are recognised in Control parts and lie in one part. Everywhere else they
// are the plain characters that they are spelled with, and so is every other added
// token that occurs in a Control part: the marker that ends a turn ends it in a
// Control part only, special or not. Words reach across parts, so that the ids are
// those of Encode on the whole text where the other parts spell no such token.
//
// White space that a token of a Control part takes along is that of its part.
// The limits of Encode hold for each part and for all together.
func (t *Tokenizer) EncodeParts(parts []Part) ([]int32, error) {
	size := 0
	for _, p := range parts {
		size += len(p.Text)
		if err := checkText(size, p.Text); err != nil {
			return nil, err
		}
	}

	// The pieces between control tokens, and after each piece its token.
	var pieces []string
	var control []int32
	var piece strings.Builder
	for _, p := range parts {
		if !p.Control {
			piece.WriteString(p.Text)
			continue
		}
		for text, id := range t.cut(p.Text, everyToken) {
			piece.WriteString(text)
			if id != noToken {
				pieces, control = append(pieces, piece.String()), append(control, id)
				piece.Reset()
			}
		}
	}

	markers := make(map[int32]bool, len(control))
	for _, id := range control {
		markers[id] = true
	}
	counts := func(m match) bool { return !m.special && !markers[m.id] }
	ids := make([]int32, 0, size/4)
	for i, text := range pieces {
		ids = append(t.append(ids, text, counts), control[i])
	}
	return t.append(ids, piece.String(), counts), nil
}
