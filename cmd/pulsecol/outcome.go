package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/pulsecol/pulsecol"
	"github.com/pulsecol/pulsecol/models"
)

// outcome is the result of a generation.
type outcome struct {
	*models.Result
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

// untilStop returns the output up to the first of stops.
func (o *outcome) untilStop(stops []int32) []int32 {
	if end := slices.IndexFunc(o.output, func(id int32) bool { return slices.Contains(stops, id) }); end >= 0 {
		return o.output[:end]
	}
	return o.output
}

// runGeneration generates from one prompt and shows progress on the standard error. An
// interrupted generation is no error.
func runGeneration(std stdio, open *modelFlag, kept *keptSession, s sampler, att attention, prompt []int32, watch bool) (outcome, error) {
	if _, err := s.steps(prompt, att.Config); err != nil {
		return outcome{}, err
	}
	mem, err := s.memory(1, len(prompt), att.Config)
	if err != nil {
		return outcome{}, err
	}
	if err := kept.checkMemory(open, mem, len(prompt)+s.newTokens()); err != nil {
		return outcome{}, err
	}
	limitGarbage(dataBytes(mem))
	in, err := kept.under(att.Config)
	if err != nil {
		return outcome{}, err
	}
	ctx, stop := untilInterrupted()
	defer stop()
	d := newDisplay(std.err, kept.m, watch)
	s.onLoad(d.load)
	results, err := s.generateIn(ctx, in, [][]int32{prompt}, d.step)
	d.close()
	interrupted := len(results) > 0 && errors.Is(err, context.Canceled)
	if err != nil && !interrupted {
		return outcome{}, err
	}
	return outcome{&results[0], results[0].OutputIDs, interrupted}, nil
}

// checkLength reports a sequence that is too long for m.
func checkLength(m *openModel, promptTokens, newTokens int) error {
	if limit := m.config().Context; newTokens > limit || promptTokens > limit-newTokens {
		return fmt.Errorf("a prompt of %d tokens and %d new ones are more than the %d that the model can take", promptTokens, newTokens, limit)
	}
	return nil
}

// generation is the output of generate --json.
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
	Passes       []pass         `json:"passes,omitempty"` // of the forwards, with a cache
	Modes        map[string]int `json:"modes"`            // steps of each
	Density      float64        `json:"density"`          // share of pairs in the last column tables; 1 without sparse steps
	Seconds      float64        `json:"seconds"`
	TokensPerSec float64        `json:"tokens_per_second"` // tokens filled in, padding after the answer among them
	Interrupted  bool           `json:"interrupted"`
}

// describe returns the output of generate --json.
func describe(m *openModel, att attention, seed uint64, out outcome) (generation, error) {
	text, err := m.Decode(out.output)
	if err != nil && !errors.Is(err, models.ErrNoTokenizer) {
		return generation{}, err
	}
	g := generation{
		Model: m.name, ModelType: m.kind(), PromptIDs: append([]int32{}, out.PromptIDs...), OutputIDs: append([]int32{}, out.output...), Text: text,
		Method: att.method, Sparsity: att.Sparsity, GroupSize: att.groupSize(), Precision: att.Precision.String(), Seed: seed,
		Steps: out.Steps, Forwards: out.Forwards, RefreshSteps: append([]int{}, out.RefreshSteps...),
		Modes:   map[string]int{"dense": out.Stats.Dense, "refresh": out.Stats.Refreshes, "reuse": out.Stats.Reuses},
		Density: density(out.Stats), Seconds: out.Seconds, TokensPerSec: out.tokensPerSecond(m.config().MaskID), Interrupted: out.interrupted,
	}
	if att.Cache != pulsecol.NoCache {
		g.Passes = describePasses(out.Passes)
	}
	if slices.Contains(out.PromptIDs, m.config().MaskID) {
		g.FilledIDs = out.Filled
	}
	return g, nil
}

// answerText returns the output as text.
func answerText(m *openModel, out outcome) (string, error) {
	text, err := m.Decode(out.output)
	switch {
	case out.interrupted:
		text = render(m, out.output, "_")
	case errors.Is(err, models.ErrNoTokenizer):
		text = listed(out.output)
	case err != nil:
		return "", err
	}
	return strings.TrimSpace(text), nil
}

// printRun prints time and steps of a generation of one sequence or several.
func printRun(w io.Writer, m *openModel, att attention, outs ...outcome) {
	rate := 0.0
	for _, out := range outs {
		rate += out.tokensPerSecond(m.config().MaskID)
	}
	fmt.Fprintf(w, "%d steps in %s, %.3g tokens a second: %s\n",
		outs[0].Steps, seconds(outs[0].Seconds), rate, att.describe(outs[0].Stats))
}
