package dream

import (
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/pulsecol/pulsecol/internal/gguf/gguftest"
	"github.com/pulsecol/pulsecol/internal/golden"
	"github.com/pulsecol/pulsecol/models"
	"github.com/pulsecol/pulsecol/models/internal/modeltest"
)

func TestGGUFLogits(t *testing.T) {
	modeltest.GGUFLogitsEqualReference(t, "dream", func(path string) (modeltest.Model, error) { return Open(path) })
}

// keys are those of the tiny model in a file of llama.cpp, or of another architecture's
// name.
func keys(architecture string) []gguftest.Key {
	at := architecture + "."
	return []gguftest.Key{
		{Name: "general.architecture", Value: architecture}, {Name: "diffuse.model_type", Value: "dream"},
		{Name: at + "block_count", Value: uint32(3)}, {Name: at + "attention.head_count", Value: uint32(4)},
		{Name: at + "attention.head_count_kv", Value: uint32(2)}, {Name: at + "embedding_length", Value: uint32(64)},
		{Name: at + "feed_forward_length", Value: uint32(160)}, {Name: at + "context_length", Value: uint32(512)},
		{Name: at + "rope.freq_base", Value: float32(1e6)}, {Name: at + "attention.layer_norm_rms_epsilon", Value: float32(1e-6)},
		{Name: "tokenizer.ggml.mask_token_id", Value: uint32(299)}, {Name: "tokenizer.ggml.eos_token_id", Value: uint32(298)},
		{Name: "tokenizer.ggml.padding_token_id", Value: uint32(298)},
		{Name: "diffuse.mask_token_id", Value: uint32(299)}, {Name: "diffuse.eos_token_id", Value: uint32(298)},
	}
}

// TestGGUFGeneration: files with the reference's weights give its generations.
func TestGGUFInt8(t *testing.T) {
	modeltest.GGUFInt8Error(t, "dream", func(path string) (modeltest.Builder, error) { return Open(path) })
}

func TestGGUFGeneration(t *testing.T) {
	files := modeltest.GGUFFiles(t, "dream-tiny.F32.gguf")
	for _, architecture := range []string{"dream", "diffuse"} {
		files = append(files, modeltest.GGUFFile(t, keys(architecture), modeltest.GGUFTensors(t, "dream", ggufForm.Names)))
	}
	for _, path := range files {
		m := modeltest.Opened(Open(path))(t)
		generationEqualsReference(t, m)
		modeltest.LogitsEqualReference(t, m, golden.Open(t, "dream/expected"))
		got, want := m.Config(), openGolden(t).Config()
		if got.Eps, got.RopeTheta = want.Eps, want.RopeTheta; got != want { // float32 in the file
			t.Errorf("configuration %+v, want %+v", got, want)
		}
	}
}

// TestGGUFErrors: a file without biases, as diffuse-cpp's converter writes them, is not taken
// for a model without any.
func TestGGUFErrors(t *testing.T) {
	tensors := modeltest.GGUFTensors(t, "dream", ggufForm.Names)
	unbiased := slices.DeleteFunc(slices.Clone(tensors), func(x gguftest.Tensor) bool { return strings.HasSuffix(x.Name, ".bias") })
	if len(unbiased) != len(tensors)-9 {
		t.Fatalf("%d of %d tensors without biases", len(unbiased), len(tensors))
	}
	_, err := Open(modeltest.GGUFFile(t, keys("diffuse"), unbiased))
	if !errors.Is(err, models.ErrWeights) || !strings.Contains(err.Error(), `no tensor "blk.0.attn_q.bias"`) {
		t.Errorf("error %v", err)
	}
	_, err = Open(modeltest.GGUFFile(t, append(keys("dream"), gguftest.Key{Name: "diffusion.shift_logits", Value: false}), tensors))
	if !errors.Is(err, models.ErrConfig) || !strings.Contains(err.Error(), "diffusion.shift_logits is false, which is not supported; want true") {
		t.Errorf("error %v", err)
	}
}
