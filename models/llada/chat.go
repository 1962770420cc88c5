package llada

import (
	"strings"

	"github.com/pulsecol/pulsecol/internal/tokenizer"
)

// Message is one turn of a conversation.
type Message struct {
	Role    string // "system", "user" or "assistant"
	Content string
}

// EncodeChat returns the token ids of a conversation in the form of LLaDA-8B-Instruct
// and LLaDA-1.5, ready for the assistant's answer. A last message of the assistant
// is the beginning of that answer, taken as it is. White space at the ends of the
// others is left out.
//
// Special tokens are recognised in the form only: a message that spells
// "<|eot_id|>" does not end its turn, and has the ids of these ten characters. The
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
	parts := []tokenizer.Part{{Text: "<|startoftext|>", Control: true}}
	for _, m := range messages {
		parts = append(parts, header(m.Role)...)
		parts = append(parts, tokenizer.Part{Text: strings.TrimSpace(m.Content)}, tokenizer.Part{Text: "<|eot_id|>", Control: true})
	}
	return append(append(parts, header("assistant")...), tokenizer.Part{Text: answer})
}

func header(role string) []tokenizer.Part {
	return []tokenizer.Part{{Text: "<|start_header_id|>", Control: true}, {Text: role}, {Text: "<|end_header_id|>\n\n", Control: true}}
}
