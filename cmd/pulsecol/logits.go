package main

import (
	"fmt"
	"slices"

	"github.com/pulsecol/pulsecol/internal/outfile"
	"github.com/pulsecol/pulsecol/internal/safetensors"
)

type logitsCmd struct {
	Open modelFlag `embed:""`
	IDs  string    `name:"ids" required:"" placeholder:"1,2,3" help:"Token ids."`
	Out  string    `required:"" placeholder:"FILE" help:"File to write; it appears complete or not at all."`
}

func (logitsCmd) Help() string {
	return `Runs the model once, with full attention, and writes one tensor, "logits" [1,n,vocabulary] F32, in the safetensors format. Row i is the model's row i: the prediction of token i for LLaDA, of token i+1 for Dream.

Example:
  pulsecol logits --model DIR --ids 5,17,4 --out logits.safetensors`
}

func (c *logitsCmd) Run() error {
	m, err := c.Open.open()
	if err != nil {
		return err
	}
	defer m.Close()
	ids, err := parseIDs("ids", c.IDs, m.config().Vocab)
	if err != nil {
		return err
	}
	if err := checkLength(m, len(ids), 0); err != nil {
		return err
	}
	if err := c.checkOut(); err != nil { // before the work, not after it
		return err
	}
	ctx, stop := untilInterrupted()
	defer stop()
	logits, err := m.Logits(ctx, [][]int32{ids}, nil)
	if err != nil {
		return err
	}
	if i := slices.IndexFunc(logits, func(x float32) bool { return x != x }); i >= 0 {
		vocab := m.config().Vocab
		return fmt.Errorf("%s: the logit of token %d at position %d is NaN; are its weights?", m.name, i%vocab, i/vocab)
	}
	shape := []int{1, len(ids), m.config().Vocab}
	return safetensors.WriteFile(c.Out, []safetensors.Tensor{safetensors.FromFloat32s("logits", shape, logits)}, nil)
}

// checkOut reports an --out that cannot be written.
func (c *logitsCmd) checkOut() error {
	if c.Out == "" {
		return usagef("--out is empty")
	}
	if err := outfile.Check(c.Out); err != nil {
		return fmt.Errorf("--out %w", err)
	}
	return nil
}
