package checkpoint

import (
	"errors"
	"fmt"
	"io/fs"

	"github.com/pulsecol/pulsecol/internal/chattemplate"
	"github.com/pulsecol/pulsecol/internal/tokenizer"
)

// ErrChatTemplate: a chat template is broken, uses what is not supported, or does not
// fit the conversation.
var ErrChatTemplate = errors.New("chat template")

// openChat reads the directory's chat template. A broken one is an error of
// conversations only.
func (f *Files) openChat(fsys fs.FS) {
	if f.chat, f.chatErr = chattemplate.Open(fsys); f.chatErr != nil {
		f.chatErr = fmt.Errorf("%w: %w", ErrChatTemplate, f.chatErr)
	}
}

// ChatTemplate returns the directory's chat template, whose Source is empty if it has
// none.
func (f *Files) ChatTemplate() (chattemplate.Template, error) {
	if f.chat == nil { // there is no directory, or its template is broken
		return chattemplate.Template{}, f.chatErr
	}
	return *f.chat, nil
}

// EncodeChat returns the token ids of a conversation in the form of a template, or if
// that is empty in the form of builtin.
func (f *Files) EncodeChat(t chattemplate.Template, messages []chattemplate.Message, builtin func([]chattemplate.Message) []tokenizer.Part) ([]int32, error) {
	if f.Tokenizer == nil {
		return nil, ErrNoTokenizer
	}
	if t.Source == "" {
		return f.Tokenizer.EncodeParts(builtin(messages))
	}
	parts, err := t.Render(messages)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrChatTemplate, err)
	}
	return f.Tokenizer.EncodeParts(parts)
}
