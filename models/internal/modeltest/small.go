package modeltest

import (
	"encoding/json"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/pulsecol/pulsecol"
	"github.com/pulsecol/pulsecol/internal/golden"
	"github.com/pulsecol/pulsecol/internal/tinymodel"
	"github.com/pulsecol/pulsecol/models"
)

// Small is a small trained model and PyTorch's results for it.
type Small struct {
	Model
	Generate func(prompt []int32, cfg pulsecol.Config) (*models.Result, error)
	Expected string // file of internal/tinymodel/testdata
	Shift    int    // row i of the logits predicts token i+Shift
}

// SmallTestdata returns the path of a file in the test data of the small models.
func SmallTestdata(t testing.TB, name string) string {
	return filepath.Join(golden.Dir(t, ".."), "internal", "tinymodel", "testdata", name)
}

type generation struct {
	Prompt    string
	PromptIDs []int32 `json:"prompt_ids"`
	OutputIDs []int32 `json:"output_ids"`
	Text      string
}

// EqualsPyTorch compares the model with PyTorch on the same bf16 weights in float32: the
// five largest logits of every masked position, and the text after all steps, with full and
// with column-sparse attention.
func (s *Small) EqualsPyTorch(t *testing.T) {
	text, err := os.ReadFile(SmallTestdata(t, s.Expected))
	if err != nil {
		t.Fatal(err)
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
	for _, c := range want.Cases {
		s.checkLogits(t, c.PromptIDs, c.TopIDs, c.TopLogits)
		s.check(t, c.generation, pulsecol.Config{})
	}
	want.Question.Prompt = tinymodel.Question
	want.PulseCol.Prompt, want.PulseCol.PromptIDs = tinymodel.Question, want.Question.PromptIDs
	s.check(t, want.Question, pulsecol.Config{})
	p := want.PulseCol
	s.check(t, p.generation, pulsecol.Config{
		Sparsity: p.Sparsity, GroupSize: p.Group, Schedule: pulsecol.Uniform{Eta: p.Eta, Refreshes: p.Refreshes},
	})
}

// checkLogits compares the largest logits of the masked positions after a prompt.
func (s *Small) checkLogits(t *testing.T, prompt []int32, topIDs [][]int32, topLogits [][]float64) {
	t.Helper()
	c := s.Config()
	masked := slices.Concat(prompt, slices.Repeat([]int32{c.MaskID}, len(topIDs)))
	logits, err := s.Logits(t.Context(), [][]int32{masked}, nil)
	if err != nil {
		t.Fatal(err)
	}
	for r, ids := range topIDs {
		row := logits[(len(prompt)+r-s.Shift)*c.Vocab:]
		for i, id := range ids {
			// Float32 sums of 256 products, through six layers, of logits near 30.
			if got := float64(row[id]); math.Abs(got-topLogits[r][i]) > 1e-3 {
				t.Errorf("position %d, token %d: logit %v, want %v", r, id, got, topLogits[r][i])
			}
		}
	}
}

// check compares a generation.
func (s *Small) check(t *testing.T, g generation, cfg pulsecol.Config) {
	t.Helper()
	ids, err := s.Encode(g.Prompt)
	if err != nil || !slices.Equal(ids, g.PromptIDs) {
		t.Fatalf("ids %v, %v; want %v", ids, err, g.PromptIDs)
	}
	res, err := s.Generate(ids, cfg)
	if err != nil {
		t.Fatal(err)
	}
	got, err := s.Decode(res.OutputIDs)
	if err != nil || !slices.Equal(res.OutputIDs, g.OutputIDs) || strings.TrimSpace(got) != strings.TrimSpace(g.Text) {
		t.Errorf("%q %v, %v; want %q %v", got, res.OutputIDs, err, g.Text, g.OutputIDs)
	}
}
