package dream

import (
	"errors"
	"strings"
	"testing"

	"github.com/pulsecol/pulsecol/models"
	"github.com/pulsecol/pulsecol/models/internal/modeltest"
)

func TestPublishedConfig(t *testing.T) {
	c, err := parseConfig(modeltest.File(published))
	if err != nil {
		t.Fatal(err)
	}
	want := models.Config{
		Layers: 28, Hidden: 3584, Heads: 28, KVHeads: 4, HeadDim: 128, FeedForward: 18944, Vocab: 152064,
		Context: 131072, RopeTheta: 1e6, Eps: 1e-6, QKVBias: true, MaskID: 151666, EOSID: 151643, PadID: 151643,
	}
	if c != want {
		t.Errorf("got  %+v\nwant %+v", c, want)
	}
	if got := c.Parameters(); got != 7_615_616_512 {
		t.Errorf("%d parameters, want 7615616512", got)
	}
}

func TestConfigVariants(t *testing.T) {
	c, err := parseConfig(modeltest.With(t, published, map[string]any{"head_dim": 64, "tie_word_embeddings": true}))
	if err != nil || c.HeadDim != 64 || !c.TiedHead {
		t.Errorf("head_dim and tied head: %+v, %v", c, err)
	}
	c, err = parseConfig(modeltest.With(t, published, map[string]any{"num_key_value_heads": nil}))
	if err != nil || c.KVHeads != 28 {
		t.Errorf("without num_key_value_heads: %+v, %v", c, err)
	}
}

// A value that is not supported is an error that names its field.
func TestConfigErrorsNameTheField(t *testing.T) {
	modeltest.ConfigErrors(t, parseConfig, published, map[string]any{
		"model_type": "qwen2", "hidden_act": "gelu", "rope_scaling": map[string]any{"type": "yarn"}, "use_mrope": true,
		"use_sliding_window": true, "quantization_config": map[string]any{"bits": 4}, "num_hidden_layers": 0,
		"hidden_size": 0, "num_attention_heads": 5, "num_key_value_heads": 3, "head_dim": 7, "intermediate_size": -1,
		"vocab_size": 1 << 30, "max_position_embeddings": 0, "rope_theta": -1, "rms_norm_eps": 0,
		"mask_token_id": 152064, "eos_token_id": -1, "pad_token_id": 1 << 20,
	}, []string{"mask_token_id", "eos_token_id", "pad_token_id", "model_type"})
}

func FuzzConfig(f *testing.F) {
	f.Add([]byte(published))
	f.Add([]byte(`{"num_hidden_layers": 1e9, "hidden_size": -3}`))
	f.Add([]byte(`{"head_dim": "many"}`))
	f.Add([]byte(`[`))
	f.Fuzz(func(t *testing.T, data []byte) {
		c, err := parseConfig(modeltest.File(string(data)))
		if err != nil {
			return
		}
		if c.Layers < 1 || c.HeadDim < 2 || c.Heads%c.KVHeads != 0 || int(c.MaskID) >= c.Vocab || c.FeedForward < 1 || c.Context < 1 {
			t.Errorf("accepted %+v", c)
		}
	})
}

func FuzzGenerationConfig(f *testing.F) {
	f.Add(`{"max_new_tokens": 3, "steps": null, "eps": 1e-3, "alg": "entropy", "top_p": 0.9, "top_k": 5, "alg_temp": 0}`)
	f.Add(`{"steps": "many"}`)
	f.Add(`{"temperature": 1e999}`)
	f.Fuzz(func(t *testing.T, text string) {
		o, err := parseGeneration(modeltest.File(text))
		if err == nil && (o.Steps < 0 || !(o.Temperature >= 0)) {
			t.Errorf("accepted %+v", o)
		}
		if err != nil && (!errors.Is(err, models.ErrConfig) || !strings.HasPrefix(err.Error(), "config.json")) {
			t.Errorf("error %q", err)
		}
	})
}
