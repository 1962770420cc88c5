package dream

import (
	"github.com/pulsecol/pulsecol/internal/jsonfile"
	"github.com/pulsecol/pulsecol/models"
	"github.com/pulsecol/pulsecol/models/internal/checkpoint"
)

// configJSON has the fields of Dream's configuration class, which has defaults for some of
// them.
type configJSON struct {
	ModelType             string  `json:"model_type"`
	VocabSize             int     `json:"vocab_size"`
	HiddenSize            int     `json:"hidden_size"`
	IntermediateSize      int     `json:"intermediate_size"`
	NumHiddenLayers       int     `json:"num_hidden_layers"`
	NumAttentionHeads     int     `json:"num_attention_heads"`
	NumKeyValueHeads      *int    `json:"num_key_value_heads"`
	HeadDim               *int    `json:"head_dim"`
	HiddenAct             string  `json:"hidden_act"`
	MaxPositionEmbeddings int     `json:"max_position_embeddings"`
	RMSNormEps            float64 `json:"rms_norm_eps"`
	RopeTheta             float64 `json:"rope_theta"`
	RopeScaling           any     `json:"rope_scaling"`
	UseMrope              bool    `json:"use_mrope"`
	UseSlidingWindow      bool    `json:"use_sliding_window"`
	TieWordEmbeddings     bool    `json:"tie_word_embeddings"`
	QuantizationConfig    any     `json:"quantization_config"`
	MaskTokenID           *int32  `json:"mask_token_id"`
	EOSTokenID            *int32  `json:"eos_token_id"`
	PadTokenID            *int32  `json:"pad_token_id"`
}

// parseConfig reads config.json. A value that this package does not support is an error
// that names its field.
func parseConfig(file jsonfile.File) (models.Config, error) {
	j := configJSON{
		VocabSize: 151936, HiddenSize: 4096, IntermediateSize: 22016, NumHiddenLayers: 32, NumAttentionHeads: 32,
		HiddenAct: "silu", MaxPositionEmbeddings: 32768, RMSNormEps: 1e-6, RopeTheta: 10000,
	}
	v, err := checkpoint.DecodeConfig(file, &j)
	if err != nil {
		return models.Config{}, err
	}
	return j.config(v)
}

func (j *configJSON) config(v *checkpoint.ConfigChecker) (models.Config, error) {
	v.Unsupported(j.ModelType != "Dream", "model_type", j.ModelType, "Dream")
	v.Unsupported(j.HiddenAct != "silu", "hidden_act", j.HiddenAct, "silu")
	v.Unsupported(j.RopeScaling != nil, "rope_scaling", j.RopeScaling, nil)
	v.Unsupported(j.UseMrope, "use_mrope", true, false)
	v.Unsupported(j.UseSlidingWindow, "use_sliding_window", true, false)
	v.Unsupported(j.QuantizationConfig != nil, "quantization_config", j.QuantizationConfig, nil)

	c := models.Config{
		Layers: j.NumHiddenLayers, Hidden: j.HiddenSize, Heads: j.NumAttentionHeads, KVHeads: j.NumAttentionHeads,
		FeedForward: j.IntermediateSize, Vocab: j.VocabSize, Context: j.MaxPositionEmbeddings,
		RopeTheta: j.RopeTheta, Eps: j.RMSNormEps, QKVBias: true, TiedHead: j.TieWordEmbeddings,
	}
	if j.NumKeyValueHeads != nil {
		c.KVHeads = *j.NumKeyValueHeads
	}
	v.Layers("num_hidden_layers", c.Layers)
	v.Size("hidden_size", c.Hidden)
	v.Size("intermediate_size", c.FeedForward)
	v.Size("vocab_size", c.Vocab)
	v.Size("max_position_embeddings", c.Context)
	c.HeadDim = v.Heads("num_attention_heads", c.Heads, "num_key_value_heads", c.KVHeads, "hidden_size", c.Hidden, j.HeadDim)
	v.Positive("rope_theta", c.RopeTheta)
	v.Positive("rms_norm_eps", c.Eps)
	c.MaskID = v.Token("mask_token_id", j.MaskTokenID, c.Vocab)
	c.EOSID = v.Token("eos_token_id", j.EOSTokenID, c.Vocab)
	c.PadID = v.Token("pad_token_id", j.PadTokenID, c.Vocab)
	return c, v.Err()
}
