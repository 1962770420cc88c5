package sampler

import (
	"context"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/pulsecol/pulsecol/internal/lmhead"
)

// blocksOf returns the block of every pass of a generation.
func blocksOf(t *testing.T, s sampler, prompts [][]int32) []Block {
	t.Helper()
	var blocks []Block
	_, err := s.Generate(t.Context(), prompts, func(ctx context.Context, p Pass) (lmhead.Logits, error) {
		blocks = append(blocks, p.Block)
		return asForward(t, waveLogits)(ctx, p)
	})
	if err != nil {
		t.Fatal(err)
	}
	return blocks
}

// A pass names the block that is being filled; Dream's starts at the row before.
func TestPassNamesTheBlock(t *testing.T) {
	l := llada()
	l.GenLength, l.BlockLength, l.Steps = 4, 2, 4
	for _, c := range []struct {
		sampler sampler
		prompt  []int32
		want    []Block
	}{
		{l, []int32{1, 2, 3}, []Block{{0, 3, 5}, {0, 3, 5}, {1, 5, 7}, {1, 5, 7}}},
		{Dream{MaxNewTokens: 4, Steps: 2, Eps: 1e-3, TopP: 1, MaskID: waveMask}, []int32{1, 2, 3}, []Block{{0, 2, 7}, {0, 2, 7}}},
		{Dream{MaxNewTokens: 4, Steps: 1, Eps: 1e-3, TopP: 1, MaskID: waveMask}, nil, []Block{{0, 0, 4}}},
	} {
		if diff := cmp.Diff(c.want, blocksOf(t, c.sampler, [][]int32{c.prompt})); diff != "" {
			t.Errorf("%T, prompt %v (-want +got):\n%s", c.sampler, c.prompt, diff)
		}
	}
}
