package checkpoint

import (
	"fmt"
	"io/fs"
	"strings"

	"github.com/pulsecol/pulsecol/internal/chattemplate"
	"github.com/pulsecol/pulsecol/internal/tokenizer"
	"github.com/pulsecol/pulsecol/models"
)

// ChatForm is the form of a conversation with a checkpoint that has no template:
//
//	Begin (BeforeRole role AfterRole content End)... BeforeRole "assistant" AfterRole
//
// All but roles and contents are control tokens.
type ChatForm struct {
	Begin, BeforeRole, AfterRole, End string

	System    string // content of a system message before a conversation without one; "" for none
	TrimSpace bool   // of contents, but for the beginning of the answer
}

// parts returns the text of a conversation. A last message of the assistant is the
// beginning of the answer.
func (c *ChatForm) parts(messages []models.Message) []tokenizer.Part {
	var answer string
	if last := len(messages) - 1; last >= 0 && messages[last].Role == "assistant" {
		messages, answer = messages[:last], messages[last].Content
	}
	if c.System != "" && (len(messages) == 0 || messages[0].Role != "system") {
		messages = append([]models.Message{{Role: "system", Content: c.System}}, messages...)
	}
	control := func(text string) tokenizer.Part { return tokenizer.Part{Text: text, Control: true} }
	var parts []tokenizer.Part
	if c.Begin != "" {
		parts = append(parts, control(c.Begin))
	}
	header := func(role string) {
		parts = append(parts, control(c.BeforeRole), tokenizer.Part{Text: role}, control(c.AfterRole))
	}
	for _, m := range messages {
		if c.TrimSpace {
			m.Content = strings.TrimSpace(m.Content)
		}
		header(m.Role)
		parts = append(parts, tokenizer.Part{Text: m.Content}, control(c.End))
	}
	header("assistant")
	return append(parts, tokenizer.Part{Text: answer})
}

// openChat reads the directory's chat template. A broken one is an error of
// conversations only.
func (f *Files) openChat(fsys fs.FS) {
	if f.chat, f.chatErr = chattemplate.Open(fsys); f.chatErr != nil {
		f.chatErr = fmt.Errorf("%w: %w", models.ErrChatTemplate, f.chatErr)
	}
}

// EncodeChat returns the token ids of a conversation in the form of the directory's chat
// template, or of form if it has none.
func (f *Files) EncodeChat(form *ChatForm, messages []models.Message) ([]int32, error) {
	if f.chatErr != nil {
		return nil, f.chatErr
	}
	if f.chat == nil { // there is no directory
		return f.encodeChat(chattemplate.Template{}, form, messages)
	}
	return f.encodeChat(*f.chat, form, messages)
}

// EncodeChatTemplate is EncodeChat with source, a Jinja template, in place of the
// directory's own, whose special tokens it may use. If it is empty, it takes form.
func (f *Files) EncodeChatTemplate(source string, form *ChatForm, messages []models.Message) ([]int32, error) {
	var t chattemplate.Template
	if f.chat != nil {
		t = *f.chat
	}
	t.Name, t.Source = "the given template", source
	return f.encodeChat(t, form, messages)
}

func (f *Files) encodeChat(t chattemplate.Template, form *ChatForm, messages []models.Message) ([]int32, error) {
	if f.Tokenizer == nil {
		return nil, models.ErrNoTokenizer
	}
	if t.Source == "" {
		return f.Tokenizer.EncodeParts(form.parts(messages))
	}
	var turns []chattemplate.Message
	for _, m := range messages {
		turns = append(turns, chattemplate.Message(m))
	}
	parts, err := t.Render(turns)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", models.ErrChatTemplate, err)
	}
	return f.Tokenizer.EncodeParts(parts)
}
