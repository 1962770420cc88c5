package dream

import (
	"context"
	"encoding/json"
	"math"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/pulsecol/pulsecol"
	"github.com/pulsecol/pulsecol/internal/golden"
	"github.com/pulsecol/pulsecol/internal/tinymodel"
)

// The small trained model gives what PyTorch gave from the same bf16 weights in
// float32: the five largest logits for every masked position, and after 32 steps
// the same text, with full and with column-sparse attention.
func TestTinyModelEqualsPyTorch(t *testing.T) {
	if testing.Short() {
		t.Skip("generates five answers")
	}
	text, err := os.ReadFile(filepath.Join(golden.Dir(t, ".."), "internal", "tinymodel", "testdata", "expected_dream.json"))
	if err != nil {
		t.Fatal(err)
	}
	type generation struct {
		Prompt    string
		PromptIDs []int32 `json:"prompt_ids"`
		OutputIDs []int32 `json:"output_ids"`
		Text      string
	}
	var want struct {
		Cases []struct {
			generation
			TopIDs    [][]int32   `json:"top_ids"`
			TopLogits [][]float64 `json:"top_logits"`
		}
		Question generation
		PulseCol struct {
			generation
			Sparsity, Eta    float64
			Group, Refreshes int
		} `json:"question_pulsecol"`
	}
	if err := json.Unmarshal(text, &want); err != nil {
		t.Fatal(err)
	}
	if len(want.Cases) == 0 || len(want.Question.OutputIDs) == 0 || len(want.PulseCol.OutputIDs) == 0 {
		t.Fatal("no cases")
	}
	m, err := OpenFS(tinymodel.DreamFS(), tinymodel.DreamWeights())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { m.Close() })
	check := func(g generation, cfg pulsecol.Config) {
		t.Helper()
		ids, err := m.Encode(g.Prompt)
		if err != nil || !slices.Equal(ids, g.PromptIDs) {
			t.Fatalf("ids %v, %v; want %v", ids, err, g.PromptIDs)
		}
		res, err := m.Generate(context.Background(), ids, cfg, GenerateOptions{})
		if err != nil {
			t.Fatal(err)
		}
		got, err := m.Decode(res.OutputIDs)
		if err != nil || !slices.Equal(res.OutputIDs, g.OutputIDs) || got != g.Text {
			t.Errorf("%q %v, %v; want %q %v", got, res.OutputIDs, err, g.Text, g.OutputIDs)
		}
	}
	for _, c := range want.Cases {
		masked := slices.Concat(c.PromptIDs, slices.Repeat([]int32{m.base.Config.MaskID}, len(c.TopIDs)))
		logits, err := m.Logits(context.Background(), [][]int32{masked}, nil)
		if err != nil {
			t.Fatal(err)
		}
		for r, ids := range c.TopIDs {
			row := logits[(len(c.PromptIDs)+r-1)*m.base.Config.Vocab:] // the row before the position predicts it
			for i, id := range ids {
				// Float32 sums of 256 products, through six layers, of logits near 30.
				if got := float64(row[id]); math.Abs(got-c.TopLogits[r][i]) > 1e-3 {
					t.Errorf("position %d, token %d: logit %v, want %v", r, id, got, c.TopLogits[r][i])
				}
			}
		}
		check(c.generation, pulsecol.Config{})
	}
	want.Question.Prompt = tinymodel.Question
	want.PulseCol.Prompt, want.PulseCol.PromptIDs = tinymodel.Question, want.Question.PromptIDs
	check(want.Question, pulsecol.Config{})
	p := want.PulseCol
	check(p.generation, pulsecol.Config{
		Sparsity: p.Sparsity, GroupSize: p.Group, Schedule: pulsecol.Uniform{Window: p.Eta, Refreshes: p.Refreshes},
	})
}
