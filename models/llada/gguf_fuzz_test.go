package llada

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/pulsecol/pulsecol/internal/gguf/gguftest"
	"github.com/pulsecol/pulsecol/models/internal/modeltest"
)

// smallest are the keys and tensors of a model with one layer of 4 features, in a file of
// llama.cpp without a tokenizer.
func smallest() ([]gguftest.Key, []gguftest.Tensor) {
	keys := []gguftest.Key{
		{Name: "general.architecture", Value: "llada"}, {Name: "llada.block_count", Value: uint32(1)},
		{Name: "llada.attention.head_count", Value: uint32(2)}, {Name: "llada.attention.head_count_kv", Value: uint32(1)},
		{Name: "llada.embedding_length", Value: uint32(4)}, {Name: "llada.feed_forward_length", Value: uint32(3)},
		{Name: "llada.context_length", Value: uint32(16)}, {Name: "llada.attention.layer_norm_rms_epsilon", Value: float32(1e-5)},
		{Name: "tokenizer.ggml.mask_token_id", Value: uint32(4)}, {Name: "tokenizer.ggml.eos_token_id", Value: uint32(3)},
	}
	var tensors []gguftest.Tensor
	add := func(name string, shape ...int) {
		n := 1
		for _, d := range shape {
			n *= d
		}
		values := make([]float32, n)
		for i := range values {
			values[i] = float32(i%5) - 2
		}
		tensors = append(tensors, gguftest.Tensor{Name: name + ".weight", Shape: shape, Data: gguftest.Float32s(values)})
	}
	add("token_embd", 5, 4)
	add("output_norm", 4)
	add("blk.0.attn_norm", 4)
	add("blk.0.attn_q", 4, 4)
	add("blk.0.attn_k", 2, 4)
	add("blk.0.attn_v", 2, 4)
	add("blk.0.attn_output", 4, 4)
	add("blk.0.ffn_norm", 4)
	add("blk.0.ffn_gate", 3, 4)
	add("blk.0.ffn_up", 3, 4)
	add("blk.0.ffn_down", 4, 3)
	return keys, tensors
}

// FuzzGGUF: any file is a model whose logits can be computed, or an error that names it.
func FuzzGGUF(f *testing.F) {
	keys, tensors := smallest()
	f.Add(gguftest.File(keys, tensors))
	f.Add(gguftest.File(diffuse, nil))
	f.Add(gguftest.File(append(keys,
		gguftest.Key{Name: "tokenizer.ggml.model", Value: "gpt2"}, gguftest.Key{Name: "tokenizer.ggml.pre", Value: "qwen2"},
		gguftest.Key{Name: "tokenizer.ggml.tokens", Value: []string{"a", "b", "ab"}}, gguftest.Key{Name: "tokenizer.ggml.token_type", Value: []int32{1, 3, 4}},
		gguftest.Key{Name: "tokenizer.ggml.merges", Value: []string{"a b"}}, gguftest.Key{Name: "tokenizer.chat_template", Value: "{{ messages }}"},
	), tensors))
	path := filepath.Join(f.TempDir(), "m.gguf")
	f.Fuzz(func(t *testing.T, data []byte) {
		if err := os.WriteFile(path, data, 0o600); err != nil {
			t.Fatal(err)
		}
		m, err := Open(path)
		if err != nil {
			if !strings.HasPrefix(err.Error(), "llada: ") || !strings.Contains(err.Error(), path) {
				t.Fatalf("error %q does not name the file", err)
			}
			return
		}
		defer m.Close()
		c := m.Config()
		ids := []int32{0, c.MaskID}[:min(2, c.Context)]
		if _, err := m.Logits(t.Context(), [][]int32{ids}, nil); err != nil {
			t.Fatal(err)
		}
	})
}

// TestGGUFSmallest: the first seed of FuzzGGUF is a model.
func TestGGUFSmallest(t *testing.T) {
	keys, tensors := smallest()
	m := modeltest.Opened(Open(modeltest.GGUFFile(t, keys, tensors)))(t)
	if logits, err := m.Logits(t.Context(), [][]int32{{0, 4}}, nil); err != nil || len(logits) != 10 {
		t.Errorf("%d logits, %v", len(logits), err)
	}
}
