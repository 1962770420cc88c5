package tokenizer

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"strings"

	"github.com/pulsecol/pulsecol/internal/jsonfile"
)

// ParseJSON reads a tokenizer.json of HuggingFace tokenizers. In addition to a
// byte-level BPE model and its added tokens it may have the normalizer NFC,
// the pre-tokenizers Split (by one of the patterns of pretokenize.go), Digits
// (individual) and ByteLevel, and the decoder ByteLevel; other components are
// errors. Post-processors that trim offsets or add special tokens around the text, truncation
// and padding are accepted and ignored.
func ParseJSON(data []byte) (*Tokenizer, error) {
	return parse(jsonfile.File{Name: jsonName, Text: data})
}

// parse is ParseJSON of a file.
func parse(file jsonfile.File) (*Tokenizer, error) {
	var j tokenizerJSON
	if err := file.Unmarshal(&j); err != nil {
		return nil, fmt.Errorf("tokenizer: %w", err)
	}
	t, err := j.tokenizer()
	if err != nil {
		return nil, fmt.Errorf("tokenizer: %s: %w", file.Name, err)
	}
	return t, nil
}

// tokenizerJSON is the part of the file that determines ids and text.
type tokenizerJSON struct {
	AddedTokens   []jsonAddedToken `json:"added_tokens"`
	Normalizer    *component       `json:"normalizer"`
	PreTokenizer  *component       `json:"pre_tokenizer"`
	PostProcessor *component       `json:"post_processor"`
	Decoder       *component       `json:"decoder"`
	Model         *jsonModel       `json:"model"`
}

type jsonAddedToken struct {
	ID         int64  `json:"id"`
	Content    string `json:"content"`
	SingleWord bool   `json:"single_word"`
	LStrip     bool   `json:"lstrip"`
	RStrip     bool   `json:"rstrip"`
	Normalized *bool  `json:"normalized"` // by default what Special is not
	Special    bool   `json:"special"`
}

func (a jsonAddedToken) token() addedToken {
	normalized := !a.Special
	if a.Normalized != nil {
		normalized = *a.Normalized
	}
	return addedToken{
		content:    a.Content,
		id:         a.ID,
		normalized: normalized,
		flags:      flags{special: a.Special, singleWord: a.SingleWord, lstrip: a.LStrip, rstrip: a.RStrip},
	}
}

// component has the fields of every component this package knows.
type component struct {
	Type string `json:"type"`

	// Sequence
	Normalizers   []component `json:"normalizers"`
	PreTokenizers []component `json:"pretokenizers"`
	Processors    []component `json:"processors"`

	// ByteLevel
	AddPrefixSpace bool  `json:"add_prefix_space"`
	UseRegex       *bool `json:"use_regex"` // true by default

	// Digits
	IndividualDigits bool `json:"individual_digits"`

	// Split
	Pattern struct {
		Regex  *string
		String *string
	} `json:"pattern"`
	Behavior string `json:"behavior"`
	Invert   bool   `json:"invert"`

	// TemplateProcessing
	Single []struct {
		Sequence *struct{}
	} `json:"single"`
}

type jsonModel struct {
	Type                    string          `json:"type"`
	Dropout                 float64         `json:"dropout"`
	ContinuingSubwordPrefix string          `json:"continuing_subword_prefix"`
	EndOfWordSuffix         string          `json:"end_of_word_suffix"`
	ByteFallback            bool            `json:"byte_fallback"`
	IgnoreMerges            bool            `json:"ignore_merges"`
	Vocab                   json.RawMessage `json:"vocab"`
	Merges                  json.RawMessage `json:"merges"`

	// unk_token and fuse_unk are for characters without a token. There are
	// none: setVocabulary asks for all 256 bytes.
}

func (f *tokenizerJSON) tokenizer() (*Tokenizer, error) {
	if f.Model == nil {
		return nil, errors.New("model is missing")
	}
	if err := f.Model.check(); err != nil {
		return nil, err
	}
	normalize, err := parseNormalizer(f.Normalizer)
	if err != nil {
		return nil, err
	}
	words, err := parsePreTokenizer(f.PreTokenizer)
	if err != nil {
		return nil, err
	}
	if err := checkPostProcessor(f.PostProcessor); err != nil {
		return nil, err
	}
	if f.Decoder == nil || f.Decoder.Type != "ByteLevel" {
		return nil, fmt.Errorf("decoder %s: want ByteLevel", f.Decoder)
	}

	vocab, err := parseVocab(f.Model.Vocab)
	if err != nil {
		return nil, fmt.Errorf("model.vocab: %w", err)
	}
	merges, err := parseMerges(f.Model.Merges)
	if err != nil {
		return nil, fmt.Errorf("model.merges: %w", err)
	}

	t := newTokenizer(normalize, words)
	if err := t.setVocabulary(vocab); err != nil {
		return nil, fmt.Errorf("model.vocab: %w", err)
	}
	if err := t.setMerges(merges); err != nil {
		return nil, fmt.Errorf("model.merges: %w", err)
	}
	if f.Model.IgnoreMerges {
		t.setWholeWords()
	}
	added := make([]addedToken, len(f.AddedTokens))
	for i, a := range f.AddedTokens {
		added[i] = a.token()
	}
	if err := t.setAdded(added); err != nil {
		return nil, fmt.Errorf("added_tokens: %w", err)
	}
	return t, nil
}

func (m *jsonModel) check() error {
	switch {
	case m.Type != "BPE":
		return fmt.Errorf("model.type %q is not supported: want BPE", m.Type)
	case m.Dropout != 0:
		return fmt.Errorf("model.dropout %v is not supported: want null or 0", m.Dropout)
	case m.ContinuingSubwordPrefix != "":
		return fmt.Errorf("model.continuing_subword_prefix %q is not supported: want none", m.ContinuingSubwordPrefix)
	case m.EndOfWordSuffix != "":
		return fmt.Errorf("model.end_of_word_suffix %q is not supported: want none", m.EndOfWordSuffix)
	case m.ByteFallback:
		return errors.New("model.byte_fallback true is not supported: want false")
	}
	return nil
}

// String is for errors.
func (c *component) String() string {
	if c == nil {
		return "null"
	}
	return fmt.Sprintf("%q", c.Type)
}

func parseNormalizer(c *component) (nfc bool, err error) {
	if c == nil {
		return false, nil
	}
	switch c.Type {
	case "NFC":
		return true, nil
	case "Sequence":
		for _, part := range c.Normalizers {
			if part.Type != "NFC" {
				return false, fmt.Errorf("normalizer %s in a Sequence is not supported: want NFC", &part)
			}
		}
		return len(c.Normalizers) > 0, nil
	}
	return false, fmt.Errorf("normalizer %s is not supported: want null or NFC", c)
}

// maxPreTokenizers is several times what published tokenizers have.
const maxPreTokenizers = 16

// parsePreTokenizer accepts a ByteLevel, alone or at the end of a Sequence.
func parsePreTokenizer(c *component) (pretokenizer, error) {
	var parts []component
	switch {
	case c == nil:
	case c.Type == "Sequence":
		parts = c.PreTokenizers
	default:
		parts = []component{*c}
	}
	if len(parts) == 0 {
		return nil, fmt.Errorf("pre_tokenizer %s: want ByteLevel, or a Sequence that ends with it", c)
	}
	if len(parts) > maxPreTokenizers {
		return nil, fmt.Errorf("pre_tokenizer Sequence has %d parts, the limit is %d", len(parts), maxPreTokenizers)
	}
	var patterns []string
	for i, part := range parts {
		last := i == len(parts)-1
		if (part.Type == "ByteLevel") != last {
			return nil, fmt.Errorf("pre_tokenizer %d is %s: want ByteLevel as the last of %d and nowhere else", i, &part, len(parts))
		}
		pattern, err := parsePattern(&part)
		if err != nil {
			return nil, fmt.Errorf("pre_tokenizer %s: %w", &part, err)
		}
		if pattern != "" {
			patterns = append(patterns, pattern)
		}
	}
	return splitBy(patterns...), nil
}

// parsePattern returns "" for a ByteLevel that does not split.
func parsePattern(c *component) (string, error) {
	switch c.Type {
	case "ByteLevel":
		if c.AddPrefixSpace {
			return "", errors.New("add_prefix_space true is not supported: want false")
		}
		if c.UseRegex != nil && !*c.UseRegex {
			return "", nil
		}
		return patternGPT2, nil
	case "Digits":
		if !c.IndividualDigits {
			return "", errors.New("individual_digits false is not supported: want true")
		}
		return patternDigits, nil
	case "Split":
		// The patterns match at every position, so removing the text between matches is the same
		// as isolating the matches.
		isolated := c.Behavior == "Isolated"
		if kept := c.Behavior == "Removed" && c.Invert; !isolated && !kept {
			return "", fmt.Errorf("behavior %q with invert %v is not supported: want Isolated, or Removed with invert true", c.Behavior, c.Invert)
		}
		if c.Pattern.Regex == nil {
			if c.Pattern.String != nil {
				return "", fmt.Errorf("pattern String %q is not supported: want a Regex", *c.Pattern.String)
			}
			return "", errors.New("pattern Regex is missing")
		}
		if _, ok := scanners[*c.Pattern.Regex]; !ok {
			return "", fmt.Errorf("pattern Regex %q is not supported: want that of GPT-2, GPT-4 (cl100k), Qwen 2 or LLaDA", *c.Pattern.Regex)
		}
		return *c.Pattern.Regex, nil
	}
	return "", errors.New("not supported: want Split, Digits or ByteLevel")
}

// checkPostProcessor accepts post-processors that do not change the ids of a single text
// without special tokens.
func checkPostProcessor(c *component) error {
	if c == nil {
		return nil
	}
	parts := []component{*c}
	if c.Type == "Sequence" {
		parts = c.Processors
	}
	for _, part := range parts {
		switch part.Type {
		case "ByteLevel":
		case "TemplateProcessing":
			texts := 0
			for _, piece := range part.Single {
				if piece.Sequence != nil {
					texts++
				}
			}
			if texts != 1 {
				return fmt.Errorf("post_processor TemplateProcessing: single has the text %d times, want once", texts)
			}
		default:
			return fmt.Errorf("post_processor %s is not supported: want null, ByteLevel or TemplateProcessing", &part)
		}
	}
	return nil
}

// parseVocab reads a JSON object of token: id, whose syntax has been checked. It reads key by
// key, because a map would hide a repeated token.
func parseVocab(data []byte) ([]entry, error) {
	d := json.NewDecoder(bytes.NewReader(data))
	if open, err := d.Token(); err != nil || open != json.Delim('{') {
		return nil, fmt.Errorf("want an object of token: id, got %.20s", cmp.Or(string(data), "nothing"))
	}
	var entries []entry
	for d.More() {
		content, err := d.Token()
		if err != nil {
			return nil, err
		}
		e := entry{content: content.(string)} // the key of an object
		if err := d.Decode(&e.id); err != nil {
			return nil, fmt.Errorf("the id of token %q is not a whole number", e.content)
		}
		entries = append(entries, e)
	}
	return entries, nil
}

// parseMerges reads a JSON array of merges, all of them "a b" or, since
// version 0.20 of HuggingFace tokenizers, all ["a", "b"].
func parseMerges(data []byte) ([][2]string, error) {
	errKind := errors.New(`want an array of merges, all "a b" or all ["a", "b"]`)
	inner := bytes.TrimLeft(bytes.TrimPrefix(data, []byte("[")), " \t\r\n")
	if bytes.HasPrefix(inner, []byte("[")) {
		var pairs [][]string
		if err := json.Unmarshal(data, &pairs); err != nil {
			return nil, errKind
		}
		merges := make([][2]string, len(pairs))
		for i, p := range pairs {
			if len(p) != 2 {
				return nil, fmt.Errorf("merge %d has %d tokens, want 2", i, len(p))
			}
			merges[i] = [2]string(p)
		}
		return merges, nil
	}
	var lines []string
	if err := json.Unmarshal(data, &lines); err != nil {
		return nil, errKind
	}
	merges := make([][2]string, len(lines))
	for i, line := range lines {
		m, err := parseMerge(line)
		if err != nil {
			return nil, fmt.Errorf("merge %d: %w", i, err)
		}
		merges[i] = m
	}
	return merges, nil
}

func parseMerge(line string) ([2]string, error) {
	left, right, ok := strings.Cut(line, " ")
	if !ok || left == "" || right == "" || strings.Contains(right, " ") {
		return [2]string{}, fmt.Errorf("%q is not two tokens with a space between them", line)
	}
	return [2]string{left, right}, nil
}
