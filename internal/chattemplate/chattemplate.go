// Package chattemplate renders the chat templates of published checkpoints: Jinja
// templates, as transformers renders them, that turn a conversation into the text
// that a model was trained on.
//
// A template is somebody else's program. It reads no file, its loops end, and only
// the filters, tests and methods of environment.go exist for it. The text of a
// message is somebody else's as well: Render returns it apart from the template's
// own text, so that special tokens can be recognised in the latter only.
package chattemplate

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"strconv"
	"strings"
	"unicode"

	"github.com/pulsecol/pulsecol/internal/infile"
	"github.com/pulsecol/pulsecol/internal/jsonfile"
	"github.com/pulsecol/pulsecol/internal/tokenizer"
)

// Message is one turn of a conversation.
type Message struct {
	Role    string // "system", "user" or "assistant"
	Content string
}

// Template is a chat template with the special tokens that it may refer to.
type Template struct {
	Name   string            // in errors, such as "tokenizer_config.json: chat_template"
	Source string            // empty if there is none
	Tokens map[string]string // by their names: "bos_token", "eos_token", ...
}

// The files that have templates.
const (
	templateName = "chat_template.jinja"
	configName   = "tokenizer_config.json"
)

// Limit is the size of the largest template; published ones have up to 20,000 bytes.
var Limit = infile.Limit{Bytes: 128 << 10, What: "a chat template"}

// maxFile is the largest file to read: published ones have some hundred kilobytes at
// most.
var maxFile = infile.Limit{Bytes: 16 << 20, What: "a tokenizer's configuration"}

// Open reads the chat template of a model directory: chat_template.jinja, or
// chat_template in tokenizer_config.json. If that is a list of templates it is the
// one named "default". Without any the Source is empty.
func Open(fsys fs.FS) (*Template, error) {
	var config struct {
		ChatTemplate json.RawMessage `json:"chat_template"`
		special
	}
	data, err := infile.ReadFS(fsys, configName, maxFile)
	switch {
	case err == nil:
		if err := (jsonfile.File{Name: infile.Name(fsys, configName), Text: data}).Unmarshal(&config); err != nil {
			return nil, err
		}
	case !errors.Is(err, fs.ErrNotExist):
		return nil, err
	}
	t := &Template{Name: infile.Name(fsys, templateName), Tokens: config.special.contents()}
	source, err := infile.ReadFS(fsys, templateName, Limit)
	switch {
	case err == nil:
		t.Source = string(source)
		return t, nil
	case !errors.Is(err, fs.ErrNotExist):
		return nil, err
	}
	t.Name = infile.Name(fsys, configName) + ": chat_template"
	if t.Source, err = templateSource(config.ChatTemplate); err != nil {
		return nil, fmt.Errorf("%s: %w", t.Name, err)
	}
	return t, nil
}

// templateSource returns the template in the value of chat_template; it is empty if there is
// none.
func templateSource(value json.RawMessage) (string, error) {
	if len(value) == 0 || string(value) == "null" {
		return "", nil
	}
	var one string
	if json.Unmarshal(value, &one) == nil {
		return one, nil
	}
	var named []struct{ Name, Template string }
	if err := json.Unmarshal(value, &named); err != nil {
		return "", errors.New("want a string or a list of objects with name and template")
	}
	for _, t := range named {
		if t.Name == "default" {
			return t.Template, nil
		}
	}
	return "", errors.New(`no template is named "default"`)
}

// special are the special tokens of a tokenizer_config.json.
type special struct {
	BOS  token `json:"bos_token"`
	EOS  token `json:"eos_token"`
	PAD  token `json:"pad_token"`
	UNK  token `json:"unk_token"`
	SEP  token `json:"sep_token"`
	CLS  token `json:"cls_token"`
	Mask token `json:"mask_token"`
}

// token is a string, or an object with the string as its content.
type token string

func (t *token) UnmarshalJSON(data []byte) error {
	var object struct{ Content string }
	if json.Unmarshal(data, (*string)(t)) == nil {
		return nil
	}
	if err := json.Unmarshal(data, &object); err != nil {
		return fmt.Errorf("%s: want a special token, a string or an object with its content", data)
	}
	*t = token(object.Content)
	return nil
}

func (s *special) contents() map[string]string {
	contents := map[string]string{}
	for name, t := range map[string]token{"bos_token": s.BOS, "eos_token": s.EOS, "pad_token": s.PAD,
		"unk_token": s.UNK, "sep_token": s.SEP, "cls_token": s.CLS, "mask_token": s.Mask} {
		if t != "" {
			contents[name] = string(t)
		}
	}
	return contents
}

// Render returns a conversation in the template's form, ready for the assistant's
// answer. A last message of the assistant is the beginning of that answer, taken as
// it is. What the template has written are Control parts, what a message says the
// others, except for white space at the ends of a message, which the template may
// trim.
//
// Where a template makes something else of a message than its text or the trimmed
// text, Render cannot tell who has written what, and returns an error that names the
// message. The same holds for a message that it leaves out.
func (t *Template) Render(messages []Message) ([]tokenizer.Part, error) {
	parts, err := t.render(messages)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", t.Name, err)
	}
	return parts, nil
}

func (t *Template) render(messages []Message) ([]tokenizer.Part, error) {
	var answer string
	if last := len(messages) - 1; last >= 0 && messages[last].Role == "assistant" {
		messages, answer = messages[:last], messages[last].Content
	}
	for i, m := range messages {
		if strings.ContainsFunc(m.Role, func(r rune) bool { return !unicode.IsLetter(r) }) || m.Role == "" {
			return nil, fmt.Errorf("message %d: the role is %.40q, want letters", i+1, m.Role)
		}
	}
	want, err := t.execute(messages)
	if err != nil {
		return nil, err
	}
	// What the template itself writes: the messages are marks, so that no text of
	// theirs can be part of it.
	marked, texts := mark(messages)
	skeleton, err := t.execute(marked)
	if err != nil {
		return nil, err
	}
	parts, err := fill(skeleton, texts)
	switch {
	case errors.Is(err, errChanged), err == nil && text(parts) != want:
		return nil, t.blame(messages)
	case err != nil:
		return nil, err
	}
	return append(parts, tokenizer.Part{Text: answer}), nil
}

// Marks are a number between two characters of the private use area.
const markStart, markEnd = "\uE000", "\uE001"

// mark returns the messages with a mark in place of each text, and the texts. White
// space at the ends of a text stays where it is: the template may trim it.
func mark(messages []Message) (marked []Message, texts []string) {
	for i, m := range messages {
		text := strings.TrimFunc(m.Content, isSpace)
		if text != "" {
			lead, trail, _ := strings.Cut(m.Content, text)
			m.Content = lead + markStart + strconv.Itoa(i) + markEnd + trail
		}
		marked, texts = append(marked, m), append(texts, text)
	}
	return marked, texts
}

// isSpace is str.isspace of Python.
func isSpace(r rune) bool { return unicode.IsSpace(r) || r >= 0x1c && r <= 0x1f }

// errChanged is the error of a mark that is not whole.
var errChanged = errors.New("the template makes something else of the messages than their text")

// fill returns the parts of a text with marks: the text between the marks, and texts
// in their place.
func fill(skeleton string, texts []string) ([]tokenizer.Part, error) {
	var parts []tokenizer.Part
	seen := make([]bool, len(texts))
	for {
		before, rest, found := strings.Cut(skeleton, markStart)
		if strings.Contains(before, markEnd) {
			return nil, errChanged
		}
		if before != "" {
			parts = append(parts, tokenizer.Part{Text: before, Control: true})
		}
		if !found {
			break
		}
		number, rest, _ := strings.Cut(rest, markEnd)
		i, err := strconv.Atoi(number)
		if err != nil || i < 0 || i >= len(texts) {
			return nil, errChanged
		}
		parts, seen[i] = append(parts, tokenizer.Part{Text: texts[i]}), true
		skeleton = rest
	}
	for i, text := range texts {
		if text != "" && !seen[i] {
			return nil, fmt.Errorf("the template leaves out message %d, %.40q", i+1, text)
		}
	}
	return parts, nil
}

func text(parts []tokenizer.Part) string {
	var b strings.Builder
	for _, p := range parts {
		b.WriteString(p.Text)
	}
	return b.String()
}

// blame returns the error about the first message that a mark cannot stand for.
func (t *Template) blame(messages []Message) error {
	for i, m := range messages {
		one := append([]Message{}, messages...)
		for j := range one {
			if j != i {
				one[j].Content = "-"
			}
		}
		want, err := t.execute(one)
		if err != nil {
			continue
		}
		marked, texts := mark(one)
		skeleton, err := t.execute(marked)
		if err != nil {
			continue
		}
		if parts, err := fill(skeleton, texts); err != nil || text(parts) != want {
			return fmt.Errorf("the template makes something else of message %d, %.40q, than its text", i+1, m.Content)
		}
	}
	return errChanged
}
