package llada

import (
	"context"
	"errors"
	"io"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/pulsecol/pulsecol/internal/golden"
	"github.com/pulsecol/pulsecol/models"
	"github.com/pulsecol/pulsecol/models/internal/modeltest"
)

func TestWriteGGUFEqualsReference(t *testing.T) {
	modeltest.WrittenEqualsReference(t, "llada", func(dir string) modeltest.Writer { return modeltest.Opened(Open(dir))(t) })
}

// TestWriteGGUFGeneration: generations and logits from a written file are those from the
// checkpoint.
func TestWriteGGUFGeneration(t *testing.T) {
	m := modeltest.Opened(Open(modeltest.WriteGGUF(t, openGolden(t), models.GGUFOptions{Type: "F32"})))(t)
	generationEqualsReference(t, m)
	modeltest.LogitsEqualReference(t, m, golden.Open(t, "llada/expected"))
	if got, want := m.Config(), openGolden(t).Config(); !sameConfig(got, want) {
		t.Errorf("configuration %+v, want %+v", got, want)
	}
}

func TestWriteGGUFBytes(t *testing.T) {
	modeltest.WrittenBytesStay(t, openGolden(t), func(path string) modeltest.Writer { return modeltest.Opened(Open(path))(t) })
}

// TestWriteGGUFDiffuse: a file of diffuse-cpp becomes one of llama.cpp.
func TestWriteGGUFDiffuse(t *testing.T) {
	path := modeltest.GGUFFile(t, diffuse, modeltest.GGUFTensors(t, "llada", ggufForm.Names))
	m := modeltest.Opened(Open(modeltest.WriteGGUF(t, modeltest.Opened(Open(path))(t), models.GGUFOptions{Type: "F32"})))(t)
	modeltest.LogitsEqualReference(t, m, golden.Open(t, "llada/expected"))
}

// TestWriteGGUFLogits: the small model's logits are those of the checkpoint where its
// bfloat16 weights stay as they are, and the error grows as the bits get fewer.
func TestWriteGGUFLogits(t *testing.T) {
	if testing.Short() {
		t.Skip("some seconds; a minute under the race detector")
	}
	m := openTiny(t)
	ids, err := m.Encode("Ada has 12 pencils. Ada finds 7 more. How many pencils does Ada have now?")
	if err != nil {
		t.Fatal(err)
	}
	types := []string{"F32", "BF16", "Q8_0", "Q6_K", "Q5_K_M", "Q4_K_M"}
	found := modeltest.LogitErrors(t, m, append(ids, m.Config().MaskID, m.Config().MaskID), types, func(path string) modeltest.Writer {
		w := modeltest.Opened(Open(path))(t)
		if again, err := w.Encode("Ada has 12 pencils."); err != nil || len(again) == 0 {
			t.Errorf("%s: %v, %v", path, again, err)
		}
		return w
	})
	if found["F32"] != 0 || found["BF16"] != 0 {
		t.Errorf("logits of F32 and BF16 differ: %g, %g", found["F32"], found["BF16"])
	}
	for _, pair := range [][2]string{{"Q8_0", "Q6_K"}, {"Q6_K", "Q5_K_M"}, {"Q5_K_M", "Q4_K_M"}} {
		if found[pair[0]] >= found[pair[1]] {
			t.Errorf("%s has an error of %g, %s of %g", pair[0], found[pair[0]], pair[1], found[pair[1]])
		}
	}
	if !(found["Q4_K_M"] < 0.2) {
		t.Errorf("Q4_K_M has an error of %g", found["Q4_K_M"])
	}
}

func TestWriteGGUFErrors(t *testing.T) {
	const name = "model.transformer.blocks.1.q_proj.weight"
	nan := modeltest.Opened(Open(modeltest.Broken(t, "llada", name, 64*5+7, math.Float32bits(float32(math.NaN())))))(t)
	large := modeltest.Opened(Open(modeltest.Broken(t, "llada", name, 64*5+7, math.Float32bits(1e9))))(t)
	whole := openGolden(t)
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	closed, err := Open(golden.Dir(t, "llada"))
	if err != nil {
		t.Fatal(err)
	}
	closed.Close()
	for _, c := range []struct {
		m        *Model
		ctx      context.Context
		typ      string
		sentinel error
		want     string
	}{
		{nan, t.Context(), "F32", models.ErrWeights, `tensor "` + name + `": row 5: element 7 is NaN, want a finite number`},
		{nan, t.Context(), "Q8_0", models.ErrWeights, "row 5: element 7 is NaN"},
		{large, t.Context(), "F16", models.ErrWeights, "row 5: element 7 is 1e+09, which F16 cannot hold"},
		{whole, t.Context(), "Q9", models.ErrRequest, `the type of a GGUF file is "Q9", want one of F32, BF16, F16, Q8_0`},
		{whole, ended, "F32", context.Canceled, ""},
		{closed, t.Context(), "F32", models.ErrClosed, ""},
	} {
		err := c.m.WriteGGUF(c.ctx, io.Discard, models.GGUFOptions{Type: c.typ})
		if !errors.Is(err, c.sentinel) || !strings.HasPrefix(err.Error(), "llada: ") || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: error %v, want %s", c.typ, err, c.want)
		}
	}
	config, err := os.ReadFile(filepath.Join(golden.Dir(t, "llada"), "config.json"))
	if err != nil {
		t.Fatal(err)
	}
	random, err := Random(config, 16, 1)
	if err != nil {
		t.Fatal(err)
	}
	defer random.Close()
	if err := random.WriteGGUF(t.Context(), io.Discard, models.GGUFOptions{Type: "F32"}); !errors.Is(err, models.ErrRequest) {
		t.Errorf("random weights: %v", err)
	}
}
