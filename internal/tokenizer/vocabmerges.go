package tokenizer

import (
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/pulsecol/pulsecol/internal/jsonfile"
)

// tokenizerClasses describes the tokenizer classes of transformers that models with
// vocab.json and merges.txt name. The files themselves do not define how text is split.
var tokenizerClasses = map[string]struct {
	pattern   string
	normalize bool
}{
	"DreamTokenizer":     {patternQwen2, true},
	"Qwen2Tokenizer":     {patternQwen2, true},
	"Qwen2TokenizerFast": {patternQwen2, true},
	"GPT2Tokenizer":      {patternGPT2, false},
	"GPT2TokenizerFast":  {patternGPT2, false},
}

// tokenizerConfig is the part of tokenizer_config.json that matters here.
type tokenizerConfig struct {
	Class          string                    `json:"tokenizer_class"`
	AddPrefixSpace bool                      `json:"add_prefix_space"`
	AddedTokens    map[string]jsonAddedToken `json:"added_tokens_decoder"` // by id
}

// parseVocabMerges reads vocab.json, merges.txt, added_tokens.json and
// tokenizer_config.json; the text of the last two may be nil. The
// tokenizer_class of the last determines the normalizer and the pre-tokenizer, and its
// added_tokens_decoder describes the added tokens, which then have to include those of
// added_tokens.json. Without a tokenizer_config.json the class is Dream's. Without
// descriptions the tokens of added_tokens.json are special, except for notSpecial.
func parseVocabMerges(vocabFile, mergesFile, addedFile, configFile jsonfile.File) (*Tokenizer, error) {
	config := tokenizerConfig{Class: "DreamTokenizer"}
	if configFile.Text != nil {
		config.Class = ""
		if err := configFile.Unmarshal(&config); err != nil {
			return nil, err
		}
	}
	class, ok := tokenizerClasses[config.Class]
	if !ok {
		return nil, fmt.Errorf("%s: tokenizer_class %q is not supported: want one of %s", configFile.Name, config.Class,
			strings.Join(slices.Sorted(maps.Keys(tokenizerClasses)), ", "))
	}
	if config.AddPrefixSpace {
		return nil, fmt.Errorf("%s: add_prefix_space true is not supported: want false", configFile.Name)
	}
	added, err := addedOfConfig(config.AddedTokens)
	if err != nil {
		return nil, fmt.Errorf("%s: added_tokens_decoder: %w", configFile.Name, err)
	}
	if addedFile.Text != nil {
		entries, err := openVocab(addedFile)
		if err != nil {
			return nil, err
		}
		if len(added) == 0 {
			added = addedOfFile(entries)
		} else if err := checkAddedFile(entries, added); err != nil {
			return nil, fmt.Errorf("%s: %w", addedFile.Name, err)
		}
	}

	t := newTokenizer(class.normalize, splitBy(class.pattern))
	vocab, err := openVocab(vocabFile)
	if err != nil {
		return nil, err
	}
	if err := t.setVocabulary(vocab); err != nil {
		return nil, fmt.Errorf("%s: %w", vocabFile.Name, err)
	}
	merges, err := parseMergesText(mergesFile)
	if err != nil {
		return nil, err
	}
	if err := t.setMerges(merges); err != nil {
		return nil, fmt.Errorf("%s: %w", mergesFile.Name, err)
	}
	if err := t.setAdded(added); err != nil {
		return nil, fmt.Errorf("added tokens: %w", err)
	}
	return t, nil
}

// openVocab reads a file that is an object of token: id.
func openVocab(file jsonfile.File) ([]entry, error) {
	var object json.RawMessage
	if err := file.Unmarshal(&object); err != nil {
		return nil, err
	}
	entries, err := parseVocab(object)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", file.Name, err)
	}
	return entries, nil
}

// addedOfConfig returns the tokens of added_tokens_decoder by ascending id.
func addedOfConfig(byID map[string]jsonAddedToken) ([]addedToken, error) {
	added := make([]addedToken, 0, len(byID))
	for key, a := range byID {
		id, err := strconv.ParseInt(key, 10, 64)
		if err != nil {
			return nil, fmt.Errorf("id %q of token %q is not a number", key, a.Content)
		}
		a.ID = id
		added = append(added, a.token())
	}
	slices.SortFunc(added, func(a, b addedToken) int {
		return cmp.Or(cmp.Compare(a.id, b.id), strings.Compare(a.content, b.content))
	})
	return added, nil
}

// notSpecial are the added tokens of Dream that stay in decoded text.
var notSpecial = []string{
	"<tool_call>", "</tool_call>", "<|fim_prefix|>", "<|fim_middle|>", "<|fim_suffix|>", "<|fim_pad|>",
	"<|repo_name|>", "<|file_sep|>",
}

// addedOfFile returns the tokens of added_tokens.json by ascending id.
func addedOfFile(entries []entry) []addedToken {
	var added []addedToken
	for _, e := range entries {
		added = append(added, jsonAddedToken{ID: e.id, Content: e.content, Special: !slices.Contains(notSpecial, e.content)}.token())
	}
	slices.SortFunc(added, func(a, b addedToken) int { return cmp.Compare(a.id, b.id) })
	return added
}

func checkAddedFile(entries []entry, added []addedToken) error {
	ids := make(map[string]int64, len(added))
	for _, a := range added {
		ids[a.content] = a.id
	}
	for _, e := range entries {
		id, ok := ids[e.content]
		if !ok {
			return fmt.Errorf("token %q is not in added_tokens_decoder of %s", e.content, configName)
		}
		if id != e.id {
			return fmt.Errorf("token %q has id %d, in %s it has %d", e.content, e.id, configName, id)
		}
	}
	return nil
}

// parseMergesText reads a merges.txt: a merge on every line, the first of
// which may be a comment with the version.
func parseMergesText(file jsonfile.File) ([][2]string, error) {
	if err := file.CheckUTF8(); err != nil {
		return nil, err
	}
	var merges [][2]string
	at, number := 0, 0
	for line := range bytes.Lines(file.Text) {
		number++
		if text := strings.TrimRight(string(line), "\r\n"); text != "" && !(number == 1 && strings.HasPrefix(text, "#version")) {
			m, err := parseMerge(text)
			if err != nil {
				return nil, file.Errorf(at, "%w", err)
			}
			merges = append(merges, m)
		}
		at += len(line)
	}
	return merges, nil
}
