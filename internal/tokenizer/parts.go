package tokenizer

import "strings"

// Part is a piece of a text that several authors have written, such as a
// conversation in the form of a chat template.
type Part struct {
	Text    string
	Control bool // written by the template: special tokens in it are recognised
}

// EncodeParts returns the ids of the concatenated texts of parts. Special tokens are
// recognised within a Control part only; elsewhere they are encoded as plain characters. The
// same holds for every other added token that occurs in a Control part, so that the marker of
// the end of a turn, special or not, ends a turn in Control parts only. Words may extend over
// several parts: where the other parts contain no such token, the ids are those of Encode on
// the whole text.
//
// A token of a Control part takes white space along within its part only. The limits of
// Encode hold for each part and for all together.
func (t *Tokenizer) EncodeParts(parts []Part) ([]int32, error) {
	size := 0
	for _, p := range parts {
		size += len(p.Text)
		if err := checkText(size, p.Text); err != nil {
			return nil, err
		}
	}

	// The pieces of text between control tokens. A token follows each piece.
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
