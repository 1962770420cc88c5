package dream

import "github.com/pulsecol/pulsecol/internal/tokenizer"

// Message is one turn of a conversation.
type Message struct {
	Role    string // "system", "user" or "assistant"
	Content string
}

// EncodeChat returns the token ids of a conversation in the form of
// Dream-v0-Instruct-7B, which is Qwen2.5's without tools, ready for the assistant's
// answer. A conversation that does not start with a system message gets the default
// one. A last message of the assistant is the beginning of the answer.
//
// Special tokens are recognised in the form only: a message that spells
// "<|im_end|>" does not end its turn, and has the ids of these ten characters. The
// error is ErrNoTokenizer, or names text that is not valid UTF-8.
func (m *Model) EncodeChat(messages []Message) ([]int32, error) {
	return m.files.EncodeParts(chatParts(messages))
}

// chatParts is the chat template: the form, and in it roles and contents.
func chatParts(messages []Message) []tokenizer.Part {
	var answer string
	if last := len(messages) - 1; last >= 0 && messages[last].Role == "assistant" {
		messages, answer = messages[:last], messages[last].Content
	}
	if len(messages) == 0 || messages[0].Role != "system" {
		messages = append([]Message{{"system", "You are a helpful assistant."}}, messages...)
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
