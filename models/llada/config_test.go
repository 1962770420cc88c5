package llada

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
		Layers: 32, Hidden: 4096, Heads: 32, KVHeads: 32, HeadDim: 128, FeedForward: 12288, Vocab: 126464,
		Context: 4096, RopeTheta: 500000, Eps: 1e-5, MaskID: 126336, EOSID: 126081, PadID: 126081,
	}
	if c != want {
		t.Errorf("got  %+v\nwant %+v", c, want)
	}
	if got := c.Parameters(); got != 8_015_581_184 {
		t.Errorf("%d parameters, want 8015581184", got)
	}
}

func TestConfigVariants(t *testing.T) {
	grouped, err := parseConfig(modeltest.With(t, published, map[string]any{"n_kv_heads": 8, "weight_tying": true}))
	if err != nil || grouped.KVHeads != 8 || !grouped.TiedHead {
		t.Errorf("grouped queries and tied head: %+v, %v", grouped, err)
	}
	single, err := parseConfig(modeltest.With(t, published, map[string]any{"n_kv_heads": nil, "multi_query_attention": true}))
	if err != nil || single.KVHeads != 1 {
		t.Errorf("multi-query attention: %+v, %v", single, err)
	}
	ratio, err := parseConfig(modeltest.With(t, published, map[string]any{"mlp_hidden_size": nil}))
	if err != nil || ratio.FeedForward != 4*4096 {
		t.Errorf("mlp_ratio: %+v, %v", ratio, err)
	}
}

// A value that is not supported is an error that names its field.
func TestConfigErrorsNameTheField(t *testing.T) {
	modeltest.ConfigErrors(t, parseConfig, published, map[string]any{
		"model_type": "llama", "block_type": "sequential", "block_group_size": 2, "layer_norm_type": "default",
		"layer_norm_with_affine": false, "attention_layer_norm": true, "bias_for_layer_norm": true,
		"activation_type": "swiglu", "include_bias": true, "include_qkv_bias": true, "rope": false,
		"rope_scaling": map[string]any{"type": "linear"}, "alibi": true, "input_emb_norm": true, "scale_logits": true,
		"quantization_config": map[string]any{"bits": 4}, "n_layers": 0, "d_model": -1, "n_heads": 3, "n_kv_heads": 5,
		"mlp_hidden_size": 1 << 30, "embedding_size": 0, "max_sequence_length": 0, "rope_theta": 0, "rms_norm_eps": -1e-5,
		"mask_token_id": 126464, "eos_token_id": -1, "pad_token_id": 1 << 20,
	}, []string{"mask_token_id", "block_type", "activation_type", "layer_norm_type", "rope", "include_bias"})
}

func FuzzConfig(f *testing.F) {
	f.Add([]byte(published))
	f.Add([]byte(`{"n_layers": 1e9, "d_model": -3}`))
	f.Add([]byte(`{"n_layers": "many"}`))
	f.Add([]byte(`[`))
	f.Fuzz(func(t *testing.T, data []byte) {
		c, err := parseConfig(modeltest.File(string(data)))
		if err != nil {
			return
		}
		if c.Layers < 1 || c.HeadDim < 2 || c.Heads%c.KVHeads != 0 || c.Heads*c.HeadDim != c.Hidden ||
			int(c.MaskID) >= c.Vocab || c.FeedForward < 1 || c.Context < 1 {
			t.Errorf("accepted %+v", c)
		}
	})
}

func TestGenerationConfigErrorsNameTheField(t *testing.T) {
	for text, field := range map[string]string{
		`{"gen_length": -5}`:                    "gen_length",
		`{"gen_length": 32, "block_length": 5}`: "block_length",
		`{"steps": -1}`:                         "steps",
		`{"temperature": -5}`:                   "temperature",
		`{"steps": "many"}`:                     "steps",
	} {
		if _, err := parseGeneration(modeltest.File(text)); err == nil || !strings.Contains(err.Error(), field) {
			t.Errorf("%s: error %v does not name %s", text, err, field)
		}
	}
}

func FuzzGenerationConfig(f *testing.F) {
	f.Add(`{"gen_length": 32, "block_length": 8, "steps": null, "temperature": 1e-3}`)
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
