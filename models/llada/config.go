package llada

import (
	"math"

	"github.com/pulsecol/pulsecol/internal/jsonfile"
	"github.com/pulsecol/pulsecol/models"
	"github.com/pulsecol/pulsecol/models/internal/checkpoint"
)

// configJSON has the fields of LLaDA's configuration class, which has a default for each.
type configJSON struct {
	ModelType           string  `json:"model_type"`
	DModel              int     `json:"d_model"`
	NHeads              int     `json:"n_heads"`
	NKVHeads            *int    `json:"n_kv_heads"`
	MultiQueryAttention *bool   `json:"multi_query_attention"`
	NLayers             int     `json:"n_layers"`
	MLPRatio            float64 `json:"mlp_ratio"`
	MLPHiddenSize       *int    `json:"mlp_hidden_size"`
	VocabSize           int     `json:"vocab_size"`
	EmbeddingSize       *int    `json:"embedding_size"`
	MaxSequenceLength   int     `json:"max_sequence_length"`
	Rope                bool    `json:"rope"`
	RopeTheta           float64 `json:"rope_theta"`
	RopeScaling         any     `json:"rope_scaling"`
	RMSNormEps          float64 `json:"rms_norm_eps"`
	WeightTying         bool    `json:"weight_tying"`
	BlockType           string  `json:"block_type"`
	BlockGroupSize      int     `json:"block_group_size"`
	LayerNormType       string  `json:"layer_norm_type"`
	LayerNormWithAffine bool    `json:"layer_norm_with_affine"`
	AttentionLayerNorm  bool    `json:"attention_layer_norm"`
	BiasForLayerNorm    *bool   `json:"bias_for_layer_norm"`
	ActivationType      string  `json:"activation_type"`
	IncludeBias         bool    `json:"include_bias"`
	IncludeQKVBias      bool    `json:"include_qkv_bias"`
	Alibi               bool    `json:"alibi"`
	InputEmbNorm        bool    `json:"input_emb_norm"`
	ScaleLogits         bool    `json:"scale_logits"`
	QuantizationConfig  any     `json:"quantization_config"`
	MaskTokenID         *int32  `json:"mask_token_id"`
	EOSTokenID          int32   `json:"eos_token_id"`
	PadTokenID          int32   `json:"pad_token_id"`
}

// parseConfig reads config.json. A value that this package does not support is an error
// that names its field.
func parseConfig(file jsonfile.File) (models.Config, error) {
	j := configJSON{
		DModel: 768, NHeads: 12, NLayers: 12, MLPRatio: 4, ActivationType: "swiglu",
		BlockType: "sequential", BlockGroupSize: 1, LayerNormType: "default", LayerNormWithAffine: true,
		RopeTheta: 10000, RMSNormEps: 1e-5, VocabSize: 50257, MaxSequenceLength: 1024,
		IncludeBias: true, WeightTying: true, EOSTokenID: 50256, PadTokenID: 50256,
	}
	v, err := checkpoint.DecodeConfig(file, &j)
	if err != nil {
		return models.Config{}, err
	}
	return j.config(v)
}

func (j *configJSON) config(v *checkpoint.ConfigChecker) (models.Config, error) {
	v.Unsupported(j.ModelType != "llada", "model_type", j.ModelType, "llada")
	v.Unsupported(j.BlockType != "llama", "block_type", j.BlockType, "llama")
	v.Unsupported(j.BlockGroupSize != 1, "block_group_size", j.BlockGroupSize, 1)
	v.Unsupported(j.LayerNormType != "rms", "layer_norm_type", j.LayerNormType, "rms")
	v.Unsupported(!j.LayerNormWithAffine, "layer_norm_with_affine", false, true)
	v.Unsupported(j.AttentionLayerNorm, "attention_layer_norm", true, false)
	v.Unsupported(j.BiasForLayerNorm != nil && *j.BiasForLayerNorm, "bias_for_layer_norm", true, false)
	v.Unsupported(j.ActivationType != "silu", "activation_type", j.ActivationType, "silu")
	v.Unsupported(j.IncludeBias, "include_bias", true, false)
	v.Unsupported(j.IncludeQKVBias, "include_qkv_bias", true, false)
	v.Unsupported(!j.Rope, "rope", false, true)
	v.Unsupported(j.RopeScaling != nil, "rope_scaling", j.RopeScaling, nil)
	v.Unsupported(j.Alibi, "alibi", true, false)
	v.Unsupported(j.InputEmbNorm, "input_emb_norm", true, false)
	v.Unsupported(j.ScaleLogits, "scale_logits", true, false)
	v.Unsupported(j.QuantizationConfig != nil, "quantization_config", j.QuantizationConfig, nil)

	c := models.Config{
		Layers: j.NLayers, Hidden: j.DModel, Heads: j.NHeads, KVHeads: j.NHeads, Vocab: j.VocabSize,
		Context: j.MaxSequenceLength, RopeTheta: j.RopeTheta, Eps: j.RMSNormEps, TiedHead: j.WeightTying,
	}
	switch {
	case j.NKVHeads != nil:
		c.KVHeads = *j.NKVHeads
	case j.MultiQueryAttention != nil && *j.MultiQueryAttention:
		c.KVHeads = 1
	}
	if j.EmbeddingSize != nil {
		c.Vocab = *j.EmbeddingSize
	}
	if j.MLPHiddenSize != nil {
		c.FeedForward = *j.MLPHiddenSize
		v.Size("mlp_hidden_size", c.FeedForward)
	} else {
		c.FeedForward = int(min(max(j.MLPRatio*float64(j.DModel), 0), math.MaxInt32))
		v.Size("mlp_ratio times d_model", c.FeedForward)
	}
	v.Layers("n_layers", c.Layers)
	v.Size("d_model", c.Hidden)
	v.Size("embedding_size", c.Vocab)
	v.Size("max_sequence_length", c.Context)
	c.HeadDim = v.Heads("n_heads", c.Heads, "n_kv_heads", c.KVHeads, "d_model", c.Hidden, nil)
	v.Positive("rope_theta", c.RopeTheta)
	v.Positive("rms_norm_eps", c.Eps)
	c.MaskID = v.Token("mask_token_id", j.MaskTokenID, c.Vocab)
	c.EOSID = v.Token("eos_token_id", &j.EOSTokenID, c.Vocab)
	c.PadID = v.Token("pad_token_id", &j.PadTokenID, c.Vocab)
	return c, v.Err()
}
