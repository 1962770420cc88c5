package dream

import (
	"github.com/pulsecol/pulsecol/internal/chattemplate"
	"github.com/pulsecol/pulsecol/internal/tokenizer"
)

// Message is one turn of a conversation.
type Message struct {
	Role    string // "system", "user" or "assistant"
	Content string
}

// EncodeChat returns the token ids of a conversation, ready for the assistant's answer.
// A last message of the assistant is the beginning of that answer, taken as it is.
//
// The form is the checkpoint's own chat template (chat_template.jinja, or chat_template
// in tokenizer_config.json), as transformers renders it. Without one it is that of
// Dream-v0-Instruct-7B, which is Qwen2.5's without tools and puts a default system
// message before a conversation that has none.
//
// Special tokens are recognised in the form only: a message that spells
// "<|im_end|>" does not end its turn, and has the ids of these ten characters.
//
// The error is ErrNoTokenizer, ErrChatTemplate, which says what of the template is not
// supported or which message it changes, or names text that is not valid UTF-8.
func (m *Model) EncodeChat(messages []Message) ([]int32, error) {
	t, err := m.files.ChatTemplate()
	if err != nil {
		return nil, err
	}
	return m.files.EncodeChat(t, plain(messages), chatParts)
}

// EncodeChatTemplate is EncodeChat with source, a Jinja template, in the place of the
// checkpoint's own. If it is empty, the form is the one that EncodeChat takes without
// a template.
func (m *Model) EncodeChatTemplate(source string, messages []Message) ([]int32, error) {
	t, err := m.files.ChatTemplate()
	if err != nil { // of the checkpoint's; that one may refer to no special token then
		t = chattemplate.Template{}
	}
	t.Name, t.Source = "the given template", source
	return m.files.EncodeChat(t, plain(messages), chatParts)
}

// plain returns messages as package chattemplate has them.
func plain(messages []Message) []chattemplate.Message {
	var out []chattemplate.Message
	for _, m := range messages {
		out = append(out, chattemplate.Message(m))
	}
	return out
}

// chatParts is the form of a checkpoint without a template, and in it roles and
// contents.
func chatParts(messages []chattemplate.Message) []tokenizer.Part {
	var answer string
	if last := len(messages) - 1; last >= 0 && messages[last].Role == "assistant" {
		messages, answer = messages[:last], messages[last].Content
	}
	if len(messages) == 0 || messages[0].Role != "system" {
		messages = append([]chattemplate.Message{{Role: "system", Content: "You are a helpful assistant."}}, messages...)
	}
	var parts []tokenizer.Part
	for _, m := range messages {
		parts = append(parts, header(m.Role)...)
		parts = append(parts, tokenizer.Part{Text: m.Content}, tokenizer.Part{Text: "<|im_end|>\n", Control: true})
	}
	return append(append(parts, header("assistant")...), tokenizer.Part{Text: answer})
}

func header(role string) []tokenizer.Part {
	return []tokenizer.Part{{Text: "<|im_start|>", Control: true}, {Text: role}, {Text: "\n", Control: true}}
}
