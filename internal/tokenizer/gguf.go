package tokenizer

import (
	"errors"
	"fmt"
	"maps"
	"path/filepath"
	"slices"
	"strings"

	"github.com/pulsecol/pulsecol/internal/gguf"
	"github.com/pulsecol/pulsecol/internal/infile"
)

// The keys of a tokenizer in a GGUF file.
const (
	ggufModel  = "tokenizer.ggml.model"
	ggufPre    = "tokenizer.ggml.pre"
	ggufTokens = "tokenizer.ggml.tokens"
	ggufTypes  = "tokenizer.ggml.token_type"
	ggufMerges = "tokenizer.ggml.merges"
)

// ggufPres are the values of ggufPre. Files do not name the normalizer.
var ggufPres = map[string]struct {
	patterns  []string
	normalize bool
}{
	"qwen2":       {[]string{patternQwen2}, true},
	"bailingmoe":  {[]string{patternLLaDA}, false},
	"bailingmoe2": {[]string{patternLLaDA}, false},
	"llada-moe":   {[]string{patternLLaDA}, false},
	"gpt-2":       {[]string{patternGPT2}, false},
	"smollm":      {[]string{patternDigits, patternGPT2}, false},
}

// The types of tokens.
const (
	ggufNormal      = 1
	ggufControl     = 3 // added and special
	ggufUserDefined = 4 // added
	ggufUnused      = 5 // an id without a token
)

// InGGUF reports whether a GGUF file has a tokenizer.
func InGGUF(f *gguf.File) bool { return f.Has(ggufModel) }

// OpenGGUF reads the tokenizer in the metadata of a GGUF file or, if it has none, the
// tokenizer's files in the file's folder, as Open does.
func OpenGGUF(f *gguf.File) (*Tokenizer, error) {
	if !InGGUF(f) {
		dir := filepath.Dir(f.Name())
		t, err := Open(infile.Dir(dir))
		if errors.Is(err, ErrNotFound) {
			return nil, fmt.Errorf("%s: the file has no tokenizer, and its folder: %w", f.Name(), err)
		}
		return t, err
	}
	t, err := fromGGUF(f)
	if err != nil {
		return nil, fmt.Errorf("tokenizer: %w", err)
	}
	return t, nil
}

func fromGGUF(f *gguf.File) (*Tokenizer, error) {
	model, _, err := f.String(ggufModel)
	if err != nil {
		return nil, err
	}
	if model != "gpt2" {
		return nil, fmt.Errorf("%s: %s is %q, want \"gpt2\"", f.Name(), ggufModel, model)
	}
	name, _, err := f.String(ggufPre)
	if err != nil {
		return nil, err
	}
	pre, ok := ggufPres[name]
	if !ok {
		return nil, fmt.Errorf("%s: %s is %q, want one of %s", f.Name(), ggufPre, name, strings.Join(slices.Sorted(maps.Keys(ggufPres)), ", "))
	}
	vocabulary, added, err := ggufVocabulary(f)
	if err != nil {
		return nil, err
	}
	merges, err := parseGGUFMerges(f)
	if err != nil {
		return nil, err
	}
	t := newTokenizer(pre.normalize, splitBy(pre.patterns...))
	if err := t.setVocabulary(vocabulary); err != nil {
		return nil, fmt.Errorf("%s: %s: %w", f.Name(), ggufTokens, err)
	}
	if err := t.setMerges(merges); err != nil {
		return nil, fmt.Errorf("%s: %s: %w", f.Name(), ggufMerges, err)
	}
	if err := t.setAdded(added); err != nil {
		return nil, fmt.Errorf("%s: %s: %w", f.Name(), ggufTokens, err)
	}
	return t, nil
}

// ggufVocabulary returns the tokens of the vocabulary and the added ones.
func ggufVocabulary(f *gguf.File) (vocabulary []entry, added []addedToken, err error) {
	tokens, ok, err := f.Strings(ggufTokens)
	if err != nil {
		return nil, nil, err
	}
	if !ok || len(tokens) > maxTokens {
		return nil, nil, fmt.Errorf("%s: %s has %d tokens, want 256 to %d", f.Name(), ggufTokens, len(tokens), maxTokens)
	}
	types, ok, err := f.Ints(ggufTypes)
	if err != nil {
		return nil, nil, err
	}
	if ok && len(types) != len(tokens) {
		return nil, nil, fmt.Errorf("%s: %s has %d elements, want the %d of %s", f.Name(), ggufTypes, len(types), len(tokens), ggufTokens)
	}
	for id, content := range tokens {
		typ := int64(ggufNormal)
		if types != nil {
			typ = types[id]
		}
		switch typ {
		case ggufNormal:
			vocabulary = append(vocabulary, entry{content, int64(id)})
		case ggufControl, ggufUserDefined:
			added = append(added, addedToken{content: content, id: int64(id), flags: flags{special: typ == ggufControl}})
		case ggufUnused:
		default:
			return nil, nil, fmt.Errorf("%s: %s of token %d, %.40q, is %d, want 1, 3, 4 or 5", f.Name(), ggufTypes, id, content, typ)
		}
	}
	return vocabulary, added, nil
}

func parseGGUFMerges(f *gguf.File) ([][2]string, error) {
	lines, _, err := f.Strings(ggufMerges)
	if err != nil {
		return nil, err
	}
	merges := make([][2]string, len(lines))
	for i, line := range lines {
		if merges[i], err = parseMerge(line); err != nil {
			return nil, fmt.Errorf("%s: %s: merge %d: %w", f.Name(), ggufMerges, i, err)
		}
	}
	return merges, nil
}
