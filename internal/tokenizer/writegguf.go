package tokenizer

import (
	"fmt"
	"maps"
	"slices"

	"github.com/pulsecol/pulsecol/internal/gguf"
)

// GGUFKeys returns the tokenizer as keys of a GGUF file of a model with a vocabulary of so
// many tokens. What such a file cannot say is an error, or a note if it rarely matters.
func (t *Tokenizer) GGUFKeys(vocabulary int) (keys []gguf.Key, notes []string, err error) {
	if t.Size() > vocabulary {
		content, _ := t.Token(int32(t.Size() - 1))
		return nil, nil, fmt.Errorf("tokenizer: token %q has id %d, the model has %d tokens", content, t.Size()-1, vocabulary)
	}
	pre, err := t.ggufPre()
	if err != nil {
		return nil, nil, err
	}
	added, notes := t.addedIDs()
	if err := t.checkWhole(added); err != nil {
		return nil, nil, err
	}
	tokens, types := make([]string, vocabulary), make([]int32, vocabulary)
	for id := range tokens {
		content, ok := t.Token(int32(id))
		switch {
		case !ok:
			content, types[id] = fmt.Sprintf("[PAD%d]", id), ggufUnused
		case t.IsSpecial(int32(id)):
			types[id] = ggufControl
		case added[int32(id)]:
			types[id] = ggufUserDefined
		default:
			types[id] = ggufNormal
		}
		tokens[id] = content
	}
	return []gguf.Key{
		{Name: ggufModel, Value: "gpt2"}, {Name: ggufPre, Value: pre},
		{Name: ggufTokens, Value: tokens}, {Name: ggufTypes, Value: types}, {Name: ggufMerges, Value: t.mergeLines()},
	}, notes, nil
}

// ggufPre is the value of ggufPre that splits text as t does, the first in order.
func (t *Tokenizer) ggufPre() (string, error) {
	patterns := t.words.patterns()
	for i, p := range patterns {
		if p == patternQwen2 || p == patternLLaDA { // which split alike
			patterns[i] = patternLLaDA
			if t.normalize {
				patterns[i] = patternQwen2
			}
		}
	}
	for _, name := range slices.Sorted(maps.Keys(ggufPres)) {
		if pre := ggufPres[name]; slices.Equal(pre.patterns, patterns) && pre.normalize == t.normalize {
			return name, nil
		}
	}
	return "", fmt.Errorf("tokenizer: no name in GGUF files for text split by %.60q with NFC %v: want that of LLaDA, Dream, GPT-2 or SmolLM", patterns, t.normalize)
}

// checkWhole reports a word that is a token and that merges do not make one: files cannot
// say that such words are not merged. Added tokens are found before words are.
func (t *Tokenizer) checkWhole(added map[int32]bool) error {
	for word, id := range t.bpe.whole {
		if added[id] {
			continue
		}
		if ids := t.bpe.merge(nil, word); !slices.Equal(ids, []int32{id}) {
			return fmt.Errorf("tokenizer: ignore_merges is true, and merges make %v of %q, token %d: a GGUF file cannot say that", ids, word, id)
		}
	}
	return nil
}

// addedIDs returns the ids of the added tokens, and notes on those with conditions that
// files do not have.
func (t *Tokenizer) addedIDs() (ids map[int32]bool, notes []string) {
	ids = map[int32]bool{}
	var bound []int32
	for _, m := range []*matcher{&t.verbatim, &t.normalized} {
		for _, found := range m.matches {
			ids[found.id] = true
			if found.singleWord || found.lstrip || found.rstrip {
				bound = append(bound, found.id)
			}
		}
	}
	if len(bound) > 0 {
		first := t.tokens[slices.Min(bound)].content
		notes = append(notes, fmt.Sprintf("single_word, lstrip and rstrip of %d added tokens, such as %q, are left out: GGUF files do not have them", len(bound), first))
	}
	return ids, notes
}

// mergeLines returns the merges in order of rank.
func (t *Tokenizer) mergeLines() []string {
	pairs := slices.SortedFunc(maps.Keys(t.bpe.merges), func(a, b pair) int { return int(t.bpe.merges[a].rank) - int(t.bpe.merges[b].rank) })
	lines := make([]string, len(pairs))
	for i, p := range pairs {
		lines[i] = t.tokens[p>>32].content + " " + t.tokens[uint32(p)].content
	}
	return lines
}
