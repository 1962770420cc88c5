package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/alecthomas/kong"
	"github.com/pulsecol/pulsecol/internal/tinymodel"
	"github.com/pulsecol/pulsecol/models/llada"
)

type generateCmd struct {
	Open    modelFlag    `embed:""`
	Text    *string      `arg:"" optional:"" name:"prompt" help:"The prompt, as --prompt gives it."`
	Prompt  promptFlags  `embed:""`
	Method  methodFlags  `embed:""`
	Sampler samplerFlags `embed:""`

	Watch bool `group:"Output" help:"Show the text as it fills in, on the standard error."`
	JSON  bool `name:"json" group:"Output" help:"Print one JSON object: prompt_ids, output_ids (without the prompt), text, steps, forwards, refresh_steps (counted from 1), seconds and more."`
}

func (generateCmd) Help() string {
	return `The answer goes to the standard output, a line about the run to the standard error.

Examples:
  pulsecol generate                                 the small model answers its own question
  pulsecol generate "Please reverse the list 66 50 47 62." --watch
  pulsecol generate --model LLaDA-8B-Instruct --chat "Who are you?" --gen-length 64 --block-length 32
  pulsecol generate --model Dream-v0-Instruct-7B --chat --prompt - --alg entropy --temperature 0.2 --sparsity 0.8
  pulsecol generate --model DIR --prompt-ids 5,17,4 --method sparsed --json

An interrupt (Ctrl-C) stops within the step in progress and prints what there is; the exit status is then 130.`
}

func (c *generateCmd) Run(line *kong.Context, std stdio) error {
	if err := c.Prompt.take(c.Text); err != nil {
		return err
	}
	m, err := c.Open.open()
	if err != nil {
		return err
	}
	defer m.Close()
	s, err := c.Sampler.choose(m, line)
	if err != nil {
		return err
	}
	p, err := c.Prompt.read(m, std.in)
	if err != nil {
		return err
	}
	att, err := c.Method.choose(m, len(p.ids)+s.newTokens(), c.Sampler.Seed, line)
	if err != nil {
		return err
	}
	if err := checkLength(m, len(p.ids), s.newTokens()); err != nil {
		return err
	}
	mem, err := s.memory(1, len(p.ids), att.Config)
	if err != nil {
		return err
	}
	limitGarbage(mem.Workspace + mem.Columns)
	if _, err := s.steps(p.ids); err != nil {
		return err
	}
	if p.question != "" && !c.JSON {
		fmt.Fprintln(std.err, elided(p.question))
	}

	ctx, stop := untilInterrupted()
	defer stop()
	d := newDisplay(std.err, m, c.Watch)
	s.onLoad(d.load)
	res, err := s.generate(ctx, p.ids, att.Config, d.step)
	d.close()
	out := outcome{Result: res, interrupted: res != nil && errors.Is(err, context.Canceled)}
	if err != nil && !out.interrupted {
		return err
	}
	if out.output = res.OutputIDs; c.Sampler.Infill {
		out.output = res.Filled
	}
	if c.JSON {
		err = c.printJSON(std, m, att, out)
	} else {
		err = printAnswer(std, m, att, p, out)
	}
	if err == nil && out.interrupted {
		return context.Canceled
	}
	return err
}

// outcome is what a generation came to.
type outcome struct {
	*llada.Result
	output      []int32 // without the prompt, or with --infill the whole text
	interrupted bool
}

// tokensPerSecond is the rate at which the generation filled masks, those inside
// the prompt included.
func (o *outcome) tokensPerSecond(mask int32) float64 {
	filled := 0
	for i, id := range o.Filled {
		if id != mask && (i >= len(o.PromptIDs) || o.PromptIDs[i] == mask) {
			filled++
		}
	}
	if filled == 0 {
		return 0
	}
	return float64(filled) / o.Seconds
}

// checkLength reports a sequence that is too long for m.
func checkLength(m *openModel, promptTokens, newTokens int) error {
	if limit := m.config().Context; newTokens > limit || promptTokens > limit-newTokens {
		return fmt.Errorf("a prompt of %d tokens and %d new ones are more than the %d that the model can take", promptTokens, newTokens, limit)
	}
	return nil
}

// generation is what generate --json prints.
type generation struct {
	Model        string         `json:"model"`
	ModelType    string         `json:"model_type"`
	PromptIDs    []int32        `json:"prompt_ids"`
	OutputIDs    []int32        `json:"output_ids"`           // with --infill the whole text
	FilledIDs    []int32        `json:"filled_ids,omitempty"` // prompt and output, if there were masks in the prompt
	Text         string         `json:"text"`
	Method       string         `json:"method"`
	Sparsity     float64        `json:"sparsity"`
	GroupSize    *int           `json:"group_size"` // null where no queries share keys
	Precision    string         `json:"precision"`
	Seed         uint64         `json:"seed"`
	Steps        int            `json:"steps"`
	Forwards     int            `json:"forwards"`
	RefreshSteps []int          `json:"refresh_steps"`
	Modes        map[string]int `json:"modes"`   // steps of each
	Density      float64        `json:"density"` // share of pairs in the last column tables; 1 without sparse steps
	Seconds      float64        `json:"seconds"`
	TokensPerSec float64        `json:"tokens_per_second"` // tokens filled in, padding after the answer among them
	Interrupted  bool           `json:"interrupted"`
}

func (c *generateCmd) printJSON(std stdio, m *openModel, att attention, out outcome) error {
	text, err := m.Decode(out.output)
	if err != nil && !errors.Is(err, llada.ErrNoTokenizer) {
		return err
	}
	g := generation{
		Model: m.name, ModelType: m.kind(), PromptIDs: append([]int32{}, out.PromptIDs...), OutputIDs: append([]int32{}, out.output...), Text: text,
		Method: att.method, Sparsity: att.Sparsity, GroupSize: att.groupSize(), Precision: att.Precision.String(), Seed: c.Sampler.Seed,
		Steps: out.Steps, Forwards: out.Forwards, RefreshSteps: append([]int{}, out.RefreshSteps...),
		Modes:   map[string]int{"dense": out.Stats.Dense, "refresh": out.Stats.Refreshes, "reuse": out.Stats.Reuses},
		Density: density(out.Stats), Seconds: out.Seconds, TokensPerSec: out.tokensPerSecond(m.config().MaskID), Interrupted: out.interrupted,
	}
	if slices.Contains(out.PromptIDs, m.config().MaskID) {
		g.FilledIDs = out.Filled
	}
	return printJSON(std.out, g)
}

// printAnswer prints the answer, and to the standard error what it took.
func printAnswer(std stdio, m *openModel, att attention, p prompt, out outcome) error {
	text, err := m.Decode(out.output)
	switch {
	case out.interrupted:
		text = render(m, out.output, "_")
	case errors.Is(err, llada.ErrNoTokenizer):
		text = listed(out.output)
	case err != nil:
		return err
	}
	if _, err := fmt.Fprintln(std.out, strings.TrimSpace(text)); err != nil {
		return err
	}
	if p.question != "" {
		fmt.Fprintf(std.err, "expected: %s\n", tinymodel.Answer)
	}
	fmt.Fprintf(std.err, "%d steps in %s, %.3g tokens a second: %s\n",
		out.Steps, seconds(out.Seconds), out.tokensPerSecond(m.config().MaskID), att.describe(out.Stats))
	return nil
}
