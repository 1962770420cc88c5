package dream

import (
	"context"
	"slices"
	"testing"

	"github.com/pulsecol/pulsecol"
	"github.com/pulsecol/pulsecol/internal/golden"
	"github.com/pulsecol/pulsecol/internal/tol"
	"github.com/pulsecol/pulsecol/models/internal/modeltest"
)

// exact rounds nothing, whichever device it is on: in a cuda build with a GPU that is
// the GPU.
var exact = pulsecol.Config{Precision: pulsecol.Float32}

func openGolden(t testing.TB) *Model { return modeltest.Opened(Open(golden.Dir(t, "dream")))(t) }

func TestLogitsEqualReference(t *testing.T) {
	modeltest.LogitsEqualReference(t, openGolden(t), golden.Open(t, "dream/expected"))
}

// Rows of padding positions are meaningless in the reference and left out.
func TestPaddedLogitsEqualReference(t *testing.T) {
	m, set := openGolden(t), golden.Open(t, "dream/expected")
	ids, shape := set.Int32s("padded.ids")
	mask, _ := set.Int32s("padded.mask")
	want, _ := set.Float32s("padded.out")
	n, vocab := shape[1], m.Config().Vocab
	padding := make([]int, shape[0])
	for b := range padding {
		padding[b] = max(0, slices.Index(mask[b*n:(b+1)*n], 1))
	}
	if slices.Max(padding) == 0 {
		t.Fatal("no padding in the case")
	}
	got, err := m.Logits(context.Background(), modeltest.Rows(ids, shape), padding)
	if err != nil {
		t.Fatal(err)
	}
	for b, pad := range padding {
		from, to := (b*n+pad)*vocab, (b+1)*n*vocab
		tol.Close(t, got[from:to], want[from:to], 1e-4)
	}
}

func TestGenerationEqualsReference(t *testing.T) { generationEqualsReference(t, openGolden(t)) }

func generationEqualsReference(t *testing.T, m *Model) {
	set := golden.Open(t, "dream/expected")
	var cases struct {
		Generate []struct {
			Name         string
			Steps        int
			MaxNewTokens int `json:"max_new_tokens"`
			Eps          float64
			Alg          string
			Temperature  float64
		}
	}
	set.JSON(&cases)
	if len(cases.Generate) == 0 {
		t.Fatal("no cases")
	}
	for _, c := range cases.Generate {
		t.Run(c.Alg, func(t *testing.T) {
			prompt, _ := set.Int32s(c.Name + ".prompt")
			want, _ := set.Int32s(c.Name + ".out")
			res, err := m.Generate(context.Background(), prompt, exact, GenerateOptions{
				Steps: c.Steps, MaxNewTokens: c.MaxNewTokens, Eps: c.Eps, Alg: c.Alg, Temperature: c.Temperature,
			})
			if err != nil {
				t.Fatal(err)
			}
			if got := slices.Concat(prompt, res.OutputIDs); !slices.Equal(got, want) {
				t.Errorf("got  %v\nwant %v", got, want)
			}
		})
	}
}
