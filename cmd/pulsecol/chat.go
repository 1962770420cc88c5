package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/alecthomas/kong"

	"github.com/pulsecol/pulsecol/models"
)

type chatCmd struct {
	Open    modelFlag    `embed:""`
	Form    chatForm     `embed:""`
	Method  methodFlags  `embed:""`
	Sampler samplerFlags `embed:""`

	DropOldest bool `group:"Prompt" help:"Leave out the oldest turns of a conversation that is longer than the model can take, and say so. Without it that is an error."`

	Watch bool `group:"Output" help:"Show answers as they fill in, on the standard error."`
	JSON  bool `name:"json" group:"Output" help:"Print one JSON object a turn: turn, user, dropped_turns, and what generate --json prints."`
}

func (chatCmd) Help() string {
	return `A conversation with an Instruct model. Answers go to the standard output, everything else to the standard error.

At a terminal: a backslash at the end of a line continues the message on the next one, and so does a pasted newline. /clear begins a new conversation, /help lists the commands, /exit or Ctrl-D ends. Ctrl-C stops an answer, which is then forgotten together with its question; at the prompt it ends.

Otherwise each line of the standard input is a message, commands and backslashes included.

Examples:
  pulsecol chat --model LLaDA-8B-Instruct --gen-length 128 --block-length 32
  pulsecol chat --model Dream-v0-Instruct-7B --system "Answer in one sentence." --alg entropy --watch
  printf 'Who are you?\nSince when?\n' | pulsecol chat --model DIR --json`
}

func (c *chatCmd) Run(line *kong.Context, std stdio) error {
	m, err := c.Open.open()
	if err != nil {
		return err
	}
	defer m.Close()
	t, err := c.newTalk(m, line, std)
	if err != nil {
		return err
	}
	defer t.kept.close()
	in, interactive := newMessageReader(std)
	return t.run(in, interactive)
}

// run reads and answers messages to the end of the input. At a terminal it continues after
// an error.
func (t *talk) run(in messageReader, interactive bool) error {
	if interactive {
		t.greet()
	}
	for {
		text, err := in.next()
		if err == io.EOF {
			if interactive {
				fmt.Fprintln(t.std.err) // after the prompt
			}
			return nil
		}
		if err != nil {
			return err
		}
		if interactive && strings.HasPrefix(text, "/") {
			if t.command(text) {
				return nil
			}
			continue
		}
		if strings.TrimSpace(text) == "" {
			continue
		}
		switch err := t.say(text); {
		case err != nil && !interactive:
			return fmt.Errorf("message %d: %w", t.turns, err)
		case errors.Is(err, context.Canceled):
			fmt.Fprintln(t.std.err, "Stopped. The question and the answer are forgotten.")
		case err != nil:
			report(t.std.err, err)
		}
	}
}

// talk is a conversation.
type talk struct {
	*chatCmd
	line     *kong.Context
	std      stdio
	m        *openModel
	kept     *keptSession // of all turns
	s        sampler
	stops    []int32
	messages []models.Message // of the user and the assistant, alternating
	turns    int              // since the start, including dropped ones
}

func (c *chatCmd) newTalk(m *openModel, line *kong.Context, std stdio) (*talk, error) {
	s, err := c.Sampler.configure(m, line)
	if err != nil {
		return nil, err
	}
	switch {
	case c.Sampler.Infill:
		return nil, usagef("--infill does not apply to chat")
	case m.embedded && (c.Form.System != nil || c.Form.ChatTemplate != nil):
		return nil, usagef("--system and --chat-template: the small model has no chat form")
	}
	if _, err := m.Encode(""); err != nil {
		return nil, fmt.Errorf("%s: %w", m.name, err)
	}
	stops, err := m.stops()
	if err != nil {
		return nil, err
	}
	t := &talk{chatCmd: c, line: line, std: std, m: m, kept: &keptSession{m: m}, s: s, stops: stops}
	ids, err := t.prompt(nil) // finds an invalid form or system message
	if err != nil {
		return nil, err
	}
	att, err := c.Method.answer(m, s, ids, c.Sampler.Seed, line)
	if err != nil {
		return nil, err
	}
	_, err = s.steps(ids, att.Config)
	return t, err
}

// greet prints at a terminal what the model can do.
func (t *talk) greet() {
	switch {
	case t.m.embedded:
		fmt.Fprintln(t.std.err, `This is the small model of the program. It answers single questions about lists, sums and numbers in a text, such as
"Please sort the list 9 3 77 21.", and knows no conversation: each question is answered on its own. --model takes an
Instruct model.`)
	case len(t.stops) == 1:
		fmt.Fprintf(t.std.err, "The tokenizer of %s has no token %s: this may be no Instruct model.\n", t.m.name, t.m.endOfTurn())
	}
	fmt.Fprintln(t.std.err, "/help lists the commands.")
}

// command executes a line that begins with a slash, and reports whether it ends the
// conversation.
func (t *talk) command(text string) (end bool) {
	switch name := strings.TrimSpace(text); name {
	case "/exit":
		return true
	case "/clear":
		t.messages = nil
		fmt.Fprintln(t.std.err, "A new conversation.")
	case "/help":
		fmt.Fprintln(t.std.err, `/clear   begin a new conversation
/exit    end (also Ctrl-D)
\        at the end of a line: the message goes on
Ctrl-C   stop an answer; at the prompt, end
A message that begins with / is written with a space before it.`)
	default:
		fmt.Fprintf(t.std.err, "There is no command %.40q; /help lists them.\n", name)
	}
	return false
}

// prompt returns the tokens of a conversation.
func (t *talk) prompt(messages []models.Message) (ids []int32, err error) {
	if t.m.embedded {
		text := ""
		if len(messages) > 0 {
			text = messages[len(messages)-1].Content
		}
		ids, err = t.m.Encode(asQuestion(text))
	} else {
		ids, err = t.Form.encode(t.m, messages)
	}
	if err != nil {
		return nil, fmt.Errorf("%s: %w", t.m.name, err)
	}
	return ids, t.m.checkVocabulary(ids)
}

// fit returns the tokens of the conversation with a new message, and the number of oldest
// turns that it left out. It does not change t.messages.
func (t *talk) fit(text string) (ids []int32, dropped int, err error) {
	messages := append(slices.Clone(t.messages), models.Message{Role: "user", Content: text})
	for {
		if ids, err = t.prompt(messages[2*dropped:]); err != nil {
			return nil, 0, err
		}
		err := checkLength(t.m, len(ids), t.s.newTokens())
		switch {
		case err == nil:
			return ids, dropped, nil
		case 2*dropped+1 == len(messages): // the new message alone is too long
			return nil, 0, err
		case !t.DropOldest:
			return nil, 0, fmt.Errorf("the conversation is too long: %w; /clear begins a new one, and --drop-oldest leaves out the oldest turns", err)
		}
		dropped++
	}
}

// say answers a message. An interrupted answer does not become part of the conversation.
func (t *talk) say(text string) error {
	t.turns++
	ids, dropped, err := t.fit(text)
	if err != nil {
		return err
	}
	att, err := t.Method.answer(t.m, t.s, ids, t.Sampler.Seed, t.line)
	if err != nil {
		return err
	}
	out, err := runGeneration(t.std, &t.Open, t.kept, t.s, att, ids, t.Watch)
	if err != nil {
		return err
	}
	out.output = out.untilStop(t.stops)
	answer, err := answerText(t.m, out)
	if err != nil {
		return err
	}
	if err := t.print(text, answer, dropped, att, out); err != nil {
		return err
	}
	if out.interrupted {
		return context.Canceled
	}
	if t.m.embedded { // it was not trained on conversations
		return nil
	}
	t.messages = append(t.messages[2*dropped:], models.Message{Role: "user", Content: text}, models.Message{Role: "assistant", Content: answer})
	return nil
}

// turn is a line of chat --json. Text and output end with the answer.
type turn struct {
	Turn    int    `json:"turn"`
	User    string `json:"user"`
	Dropped int    `json:"dropped_turns"` // left out of the conversation before this one
	generation
}

func (t *talk) print(text, answer string, dropped int, att attention, out outcome) error {
	if t.JSON {
		g, err := describe(t.m, att, t.Sampler.Seed, out)
		if err != nil {
			return err
		}
		return printJSON(t.std.out, turn{t.turns, text, dropped, g})
	}
	if dropped > 0 {
		fmt.Fprintf(t.std.err, "The oldest %d turns are left out: the model takes %d tokens.\n", dropped, t.m.config().Context)
	}
	if _, err := fmt.Fprintln(t.std.out, answer); err != nil {
		return err
	}
	printRun(t.std.err, t.m, att, out)
	return nil
}
