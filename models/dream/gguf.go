package dream

import "github.com/pulsecol/pulsecol/models/internal/checkpoint"

// ggufForm is how Dream is in GGUF files. The ids of tokens are those of Dream-7B.
var ggufForm = checkpoint.GGUF{
	Name: "dream", QKVBias: true, ShiftLogits: true, MaskID: 151666, EOSID: 151643,
	Names: map[string]string{
		"model.embed_tokens":                      "token_embd",
		"model.norm":                              "output_norm",
		"lm_head":                                 "output",
		"model.layers.#.input_layernorm":          "blk.#.attn_norm",
		"model.layers.#.self_attn.q_proj":         "blk.#.attn_q",
		"model.layers.#.self_attn.k_proj":         "blk.#.attn_k",
		"model.layers.#.self_attn.v_proj":         "blk.#.attn_v",
		"model.layers.#.self_attn.o_proj":         "blk.#.attn_output",
		"model.layers.#.post_attention_layernorm": "blk.#.ffn_norm",
		"model.layers.#.mlp.gate_proj":            "blk.#.ffn_gate",
		"model.layers.#.mlp.up_proj":              "blk.#.ffn_up",
		"model.layers.#.mlp.down_proj":            "blk.#.ffn_down",
	},
}
