package llada

import (
	_ "embed"
	"fmt"

	"github.com/pulsecol/pulsecol/internal/jsonfile"
	"github.com/pulsecol/pulsecol/models/internal/checkpoint"
)

//go:embed llada-8b.json
var published string

// Published returns the config.json of LLaDA-8B-Base, LLaDA-8B-Instruct and LLaDA-1.5.
func Published() []byte { return []byte(published) }

// Random returns a model of a config.json with random weights, for measuring what
// a checkpoint is not needed for: times and memory. context above 0 replaces
// max_sequence_length, on which neither depends. Equal seeds give equal weights.
// The model has no tokenizer.
//
// Weights are bfloat16, normally distributed with a standard deviation of 0.02;
// norms are 1. All tensors are windows of one block in host memory, little larger
// than the largest of them.
func Random(config []byte, context int, seed uint64) (*Model, error) {
	c, err := parseConfig(jsonfile.File{Name: "config.json", Text: config})
	if err == nil && context < 0 {
		err = fmt.Errorf("%w: a context of %d tokens, want at least 0", ErrRequest, context)
	}
	if err != nil {
		return nil, fmt.Errorf("llada: %w", err)
	}
	if context > 0 {
		c.Context = context
	}
	m := &Model{cfg: c}
	largest := int64(max(c.Vocab, c.FeedForward, c.Heads*c.HeadDim)) * int64(c.Hidden)
	if m.files, err = checkpoint.RandomFiles(largest, seed); err == nil {
		m.weights, err = loadWeights(m.files, c)
	}
	if err != nil {
		return nil, fmt.Errorf("llada: %w", err)
	}
	return m, nil
}
