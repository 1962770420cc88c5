package main

import (
	"fmt"
	"io"
	"strings"

	"github.com/pulsecol/pulsecol/internal/infile"
	"github.com/pulsecol/pulsecol/internal/tinymodel"
	"github.com/pulsecol/pulsecol/models"
)

// promptFlags give the text or the tokens to answer.
type promptFlags struct {
	Prompt     *string  `xor:"prompt" group:"Prompt" placeholder:"TEXT" help:"The prompt; - reads it from the standard input. Default with the small model: a question of its own."`
	PromptFile *string  `xor:"prompt" group:"Prompt" placeholder:"FILE" help:"Read the prompt from FILE. One newline at its end is dropped, as with -."`
	PromptIDs  *string  `name:"prompt-ids" xor:"prompt" group:"Prompt" placeholder:"1,2,3" help:"The prompt's token ids, taken as they are."`
	RandomIDs  *int     `name:"random-ids" xor:"prompt" group:"Prompt" placeholder:"N" help:"A prompt of N random tokens, always the same, for measuring."`
	Chat       bool     `group:"Prompt" help:"Put the prompt into the form of a conversation, which the Instruct models know. Special tokens in it are then plain text; without --chat they are recognised."`
	Form       chatForm `embed:""`
	Raw        bool     `group:"Prompt" help:"Leave the prompt as it is. Without it the small model gets TEXT as Q: TEXT, newline, A:, the form that it knows."`
}

// prompt is what a generation starts from.
type prompt struct {
	ids      []int32
	question string // the small model's own question, if it was asked
	text     string // of the user; "" if token ids were given
}

// read returns the prompt for m.
func (f *promptFlags) read(m *openModel, in io.Reader) (prompt, error) {
	if err := f.check(m, f.given()); err != nil {
		return prompt{}, err
	}
	if f.PromptIDs != nil {
		ids, err := parseIDs("prompt-ids", *f.PromptIDs, m.config().Vocab)
		return prompt{ids: ids}, err
	}
	if f.RandomIDs != nil {
		return prompt{ids: randomTokens(*f.RandomIDs, m.config(), 0)}, nil
	}
	text, own, err := f.text(in)
	if err != nil {
		return prompt{}, err
	}
	p := prompt{}
	if own {
		p.question = text
	} else {
		p.text = text
	}
	if p.ids, err = f.encode(m, text); err != nil && f.PromptFile != nil {
		err = fmt.Errorf("--prompt-file %s: %w", *f.PromptFile, err)
	}
	return p, err
}

// encode returns the tokens of a prompt's text.
func (f *promptFlags) encode(m *openModel, text string) (ids []int32, err error) {
	switch {
	case f.Chat:
		ids, err = f.Form.encode(m, []models.Message{{Role: "user", Content: text}})
	case m.embedded && !f.Raw:
		ids, err = m.Encode(asQuestion(text))
	default:
		ids, err = m.Encode(text)
	}
	if err != nil {
		return nil, fmt.Errorf("%s: %w", m.name, err)
	}
	return ids, m.checkVocabulary(ids)
}

// checkVocabulary reports a token of the tokenizer that the model does not have.
func (m *openModel) checkVocabulary(ids []int32) error {
	for _, id := range ids {
		if vocab := m.config().Vocab; int(id) >= vocab {
			return fmt.Errorf("%s: the tokenizer gives token %d, the model has %d", m.name, id, vocab)
		}
	}
	return nil
}

// take makes text, the argument of a command, the prompt; nil is none.
func (f *promptFlags) take(text *string) error {
	switch {
	case text == nil:
		return nil
	case f.given():
		return usagef("the prompt %.60q can't be used together with --prompt, --prompt-file, --prompt-ids or --random-ids", *text)
	}
	f.Prompt = text
	return nil
}

// asQuestion converts text to the form that the small model was trained on, unless it
// has that form.
func asQuestion(text string) string {
	const end = "\nA:"
	if strings.HasSuffix(text, end) {
		return text
	}
	return "Q: " + text + end
}

func (f *promptFlags) given() bool {
	return f.Prompt != nil || f.PromptFile != nil || f.PromptIDs != nil || f.RandomIDs != nil
}

// check reports flags that exclude each other; given says whether there is a prompt.
func (f *promptFlags) check(m *openModel, given bool) error {
	switch {
	case !given && !m.embedded:
		return usagef("no prompt: want --prompt, --prompt-file, --prompt-ids or --random-ids")
	case f.Chat && m.embedded:
		return usagef("--chat: the small model has no chat form")
	case f.Raw && !m.embedded:
		return usagef("--raw does not apply with --model: prompts are left as they are")
	case f.Raw && !given:
		return usagef("--raw needs a prompt")
	case f.Form.System != nil && !f.Chat:
		return usagef("--system needs --chat")
	case f.Form.ChatTemplate != nil && !f.Chat:
		return usagef("--chat-template needs --chat")
	case f.RandomIDs != nil && (*f.RandomIDs < 0 || *f.RandomIDs > m.config().Context):
		return usagef("--random-ids %d: want 0 to %d, what the model can take", *f.RandomIDs, m.config().Context)
	case (f.PromptIDs != nil || f.RandomIDs != nil) && (f.Chat || f.Raw):
		return usagef("--chat and --raw do not apply to token ids")
	}
	return nil
}

// maxPrompt is several times the text that fits the longest context.
var maxPrompt = infile.Limit{Bytes: 16 << 20, What: "a prompt"}

// text returns the text of the prompt, and whether it is the small model's example.
func (f *promptFlags) text(in io.Reader) (text string, own bool, err error) {
	var data []byte
	switch {
	case f.PromptFile != nil:
		if data, err = infile.Read(*f.PromptFile, maxPrompt); err != nil {
			err = fmt.Errorf("--prompt-file: %w", err)
		}
	case f.Prompt == nil:
		return tinymodel.Question, true, nil
	case *f.Prompt == "-":
		data, err = infile.ReadAll(in, "the standard input", maxPrompt)
	default:
		return *f.Prompt, false, nil
	}
	return strings.TrimSuffix(strings.TrimSuffix(string(data), "\n"), "\r"), false, err
}
