package main

import (
	"context"
	"fmt"

	"github.com/alecthomas/kong"
	"github.com/pulsecol/pulsecol/internal/tinymodel"
)

type generateCmd struct {
	Open    modelFlag    `embed:""`
	Text    *string      `arg:"" optional:"" name:"prompt" help:"The prompt, as --prompt gives it."`
	Prompt  promptFlags  `embed:""`
	Many    batchFlags   `embed:""`
	Method  methodFlags  `embed:""`
	Sampler samplerFlags `embed:""`

	Watch bool `group:"Output" help:"Show the text as it fills in, on the standard error."`
	JSON  bool `name:"json" group:"Output" help:"Print one JSON object: prompt_ids, output_ids (without the prompt), text, steps, forwards, refresh_steps (counted from 1), seconds and more; with --cache passes, what each forward computed."`
}

func (generateCmd) Help() string {
	return `The answer goes to the standard output, a line about the run to the standard error.

Examples:
  pulsecol generate                                 the small model answers its own question
  pulsecol generate "Please reverse the list 66 50 47 62." --watch
  pulsecol generate --model LLaDA-8B-Instruct --chat "Who are you?" --gen-length 64 --block-length 32
  pulsecol generate --model Dream-v0-Instruct-7B --chat --prompt - --alg entropy --temperature 0.2 --sparsity 0.8
  pulsecol generate --model DIR --prompt-ids 5,17,4 --method sparsed --json
  pulsecol generate --model DIR --chat "Who are you?" --gen-length 256 --block-length 32 --cache dual --sparsity 0.8
  pulsecol generate --model DIR --chat --prompts questions.txt --json > answers.jsonl

An interrupt (Ctrl-C) stops within the step in progress and prints what there is; the exit status is then 130.

With --prompts the answers come in the order of the lines, each after a line "==> line N <==", or with --json as an object with index, line and batch. All prompts are checked before the first is answered.`
}

func (c *generateCmd) Run(line *kong.Context, std stdio) error {
	if c.Text != nil && c.Many.Prompts != nil {
		return usagef("the prompt %.60q can't be used together with --prompts", *c.Text)
	}
	if err := c.Prompt.take(c.Text); err != nil {
		return err
	}
	m, err := c.Open.open()
	if err != nil {
		return err
	}
	defer m.Close()
	s, err := c.Sampler.configure(m, line)
	if err != nil {
		return err
	}
	if c.Many.Prompts != nil {
		return c.runPrompts(line, std, m, s)
	}
	if c.Many.Batch != 1 {
		return usagef("--batch needs --prompts")
	}
	p, err := c.Prompt.read(m, std.in)
	if err != nil {
		return err
	}
	att, err := c.Method.answer(m, s, p.ids, c.Sampler.Seed, line)
	if err != nil {
		return err
	}
	if err := checkLength(m, len(p.ids), s.newTokens()); err != nil {
		return err
	}
	if m.embedded && p.text != "" {
		adviseSmall(std.err, p.text)
	}
	if p.question != "" && !c.JSON {
		fmt.Fprintln(std.err, elided(p.question))
	}
	kept := &keptSession{m: m}
	defer kept.close()
	out, err := runGeneration(std, &c.Open, kept, s, att, p.ids, c.Watch)
	if err != nil {
		return err
	}
	if c.Sampler.Infill {
		out.output = out.Filled
	}
	if err := c.print(std, m, att, p, out); err != nil {
		return err
	}
	if out.interrupted {
		return context.Canceled
	}
	return nil
}

func (c *generateCmd) print(std stdio, m *openModel, att attention, p prompt, out outcome) error {
	if c.JSON {
		g, err := describe(m, att, c.Sampler.Seed, out)
		if err != nil {
			return err
		}
		return printJSON(std.out, g)
	}
	text, err := answerText(m, out)
	if err != nil {
		return err
	}
	if _, err := fmt.Fprintln(std.out, text); err != nil {
		return err
	}
	if p.question != "" {
		fmt.Fprintf(std.err, "expected: %s\n", tinymodel.Answer)
	}
	printRun(std.err, m, att, out)
	return nil
}
