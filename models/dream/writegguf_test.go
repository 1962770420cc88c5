package dream

import (
	"testing"

	"github.com/pulsecol/pulsecol/internal/golden"
	"github.com/pulsecol/pulsecol/models"
	"github.com/pulsecol/pulsecol/models/internal/modeltest"
)

func TestWriteGGUFEqualsReference(t *testing.T) {
	modeltest.WrittenEqualsReference(t, "dream", func(dir string) modeltest.Writer { return modeltest.Opened(Open(dir))(t) },
		"dream.vocab_size", "dream.rope.dimension_count", "diffusion.shift_logits", "tokenizer.ggml.add_eos_token")
}

// TestWriteGGUFGeneration: generations and logits from a written file are those from the
// checkpoint.
func TestWriteGGUFGeneration(t *testing.T) {
	m := modeltest.Opened(Open(modeltest.WriteGGUF(t, openGolden(t), models.GGUFOptions{Type: "F32"})))(t)
	generationEqualsReference(t, m)
	modeltest.LogitsEqualReference(t, m, golden.Open(t, "dream/expected"))
}

func TestWriteGGUFBytes(t *testing.T) {
	modeltest.WrittenBytesStay(t, openGolden(t), func(path string) modeltest.Writer { return modeltest.Opened(Open(path))(t) })
}
