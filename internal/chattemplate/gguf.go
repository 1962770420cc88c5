package chattemplate

import (
	"fmt"
	"maps"
	"slices"

	"github.com/pulsecol/pulsecol/internal/gguf"
	"github.com/pulsecol/pulsecol/internal/infile"
)

const ggufKey = "tokenizer.chat_template"

// ggufTokens are the keys of special tokens' ids by their names in templates.
var ggufTokens = map[string]string{
	"bos_token": "tokenizer.ggml.bos_token_id", "eos_token": "tokenizer.ggml.eos_token_id", "pad_token": "tokenizer.ggml.padding_token_id",
	"unk_token": "tokenizer.ggml.unknown_token_id", "sep_token": "tokenizer.ggml.seperator_token_id", "cls_token": "tokenizer.ggml.cls_token_id",
	"mask_token": "tokenizer.ggml.mask_token_id",
}

// OpenGGUF reads the chat template in the metadata of a GGUF file. token returns the text of
// an id. Without a template the Source is empty.
func OpenGGUF(f *gguf.File, token func(id int32) (string, bool)) (*Template, error) {
	t := &Template{Name: f.Name() + ": " + ggufKey, Tokens: map[string]string{}}
	var err error
	if t.Source, _, err = f.String(ggufKey); err != nil {
		return nil, err
	}
	if n := int64(len(t.Source)); n > Limit.Bytes {
		return nil, fmt.Errorf("%s is %s, more than the %s that %s may have", t.Name, infile.Size(n), infile.Size(Limit.Bytes), Limit.What)
	}
	for name, key := range ggufTokens {
		id, ok, err := f.Int(key)
		if err != nil {
			return nil, err
		}
		if !ok || int64(int32(id)) != id {
			continue
		}
		if content, ok := token(int32(id)); ok {
			t.Tokens[name] = content
		}
	}
	return t, nil
}

// GGUFKeys returns the template as a key of a GGUF file, and the special tokens it may refer
// to but for those of a model's configuration: end of text, padding and mask. id returns the
// id of a token's text.
func (t *Template) GGUFKeys(id func(content string) (int32, bool)) (keys []gguf.Key) {
	for _, name := range slices.Sorted(maps.Keys(t.Tokens)) {
		key, ok := ggufTokens[name]
		if n, found := id(t.Tokens[name]); ok && found && name != "eos_token" && name != "pad_token" && name != "mask_token" {
			keys = append(keys, gguf.Key{Name: key, Value: uint32(n)})
		}
	}
	if t.Source != "" {
		keys = append(keys, gguf.Key{Name: ggufKey, Value: t.Source})
	}
	return keys
}
