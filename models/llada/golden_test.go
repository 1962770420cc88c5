package llada

import (
	"context"
	"slices"
	"testing"

	"github.com/pulsecol/pulsecol"
	"github.com/pulsecol/pulsecol/internal/golden"
	"github.com/pulsecol/pulsecol/models/internal/modeltest"
)

// exact rounds nothing, whichever device it is on: in a cuda build with a GPU that is
// the GPU.
var exact = pulsecol.Config{Precision: pulsecol.Float32}

func openGolden(t testing.TB) *Model { return modeltest.Opened(Open(golden.Dir(t, "llada")))(t) }

func TestLogitsEqualReference(t *testing.T) {
	modeltest.LogitsEqualReference(t, openGolden(t), golden.Open(t, "llada/expected"))
}

func TestGenerationEqualsReference(t *testing.T) { generationEqualsReference(t, openGolden(t)) }

func generationEqualsReference(t *testing.T, m *Model) {
	set := golden.Open(t, "llada/expected")
	var cases struct {
		Generate []struct {
			Name        string
			Steps       int
			GenLength   int     `json:"gen_length"`
			BlockLength int     `json:"block_length"`
			CFGScale    float64 `json:"cfg_scale"`
			Temperature float64
			Remasking   string
		}
	}
	set.JSON(&cases)
	if len(cases.Generate) == 0 {
		t.Fatal("no cases")
	}
	for _, c := range cases.Generate {
		t.Run(c.Name, func(t *testing.T) {
			prompt, _ := set.Int32s(c.Name + ".prompt")
			want, _ := set.Int32s(c.Name + ".out")
			res, err := m.Generate(context.Background(), prompt, exact, GenerateOptions{
				Steps: c.Steps, GenLength: c.GenLength, BlockLength: c.BlockLength,
				CFGScale: c.CFGScale, Temperature: c.Temperature, Remasking: c.Remasking,
			})
			if err != nil {
				t.Fatal(err)
			}
			if got := slices.Concat(prompt, res.OutputIDs); !slices.Equal(got, want) {
				t.Errorf("got  %v\nwant %v", got, want)
			}
			if res.Steps != c.Steps || res.Forwards != c.Steps || res.RefreshSteps != nil {
				t.Errorf("%d steps, %d forwards, refreshes at %v; want %d, %d and none", res.Steps, res.Forwards, res.RefreshSteps, c.Steps, c.Steps)
			}
		})
	}
}

func TestPulseColGenerationEqualsReference(t *testing.T) {
	m, set := openGolden(t), golden.Open(t, "llada/expected")
	var cases struct {
		PulseCol []struct {
			Name         string
			Steps        int
			GenLength    int `json:"gen_length"`
			BlockLength  int `json:"block_length"`
			GroupSize    int `json:"group_size"`
			Sparsity     float64
			Eta          float64
			Refreshes    int
			RefreshSteps []int `json:"refresh_steps_0based"`
		} `json:"pulsecol"`
	}
	set.JSON(&cases)
	if len(cases.PulseCol) == 0 {
		t.Fatal("no cases")
	}
	for _, c := range cases.PulseCol {
		t.Run(c.Name, func(t *testing.T) {
			prompt, _ := set.Int32s(c.Name + ".prompt")
			want, _ := set.Int32s(c.Name + ".out")
			res, err := m.Generate(context.Background(), prompt, pulsecol.Config{
				Sparsity: c.Sparsity, GroupSize: c.GroupSize, Precision: exact.Precision,
				Schedule: pulsecol.Uniform{Eta: c.Eta, Refreshes: c.Refreshes},
			}, GenerateOptions{Steps: c.Steps, GenLength: c.GenLength, BlockLength: c.BlockLength})
			if err != nil {
				t.Fatal(err)
			}
			if got := slices.Concat(prompt, res.OutputIDs); !slices.Equal(got, want) {
				t.Errorf("got  %v\nwant %v", got, want)
			}
			for i, s := range c.RefreshSteps {
				c.RefreshSteps[i] = s + 1
			}
			if !slices.Equal(res.RefreshSteps, c.RefreshSteps) {
				t.Errorf("refreshed at steps %v, want %v", res.RefreshSteps, c.RefreshSteps)
			}
		})
	}
}
