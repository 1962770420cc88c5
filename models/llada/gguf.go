package llada

import "github.com/pulsecol/pulsecol/models/internal/checkpoint"

// ggufForm is how LLaDA is in GGUF files. The ids of tokens are those of LLaDA-8B.
var ggufForm = checkpoint.GGUF{
	Name: "llada", Paired: true, AddBOS: true, MaskID: 126336, EOSID: 126081,
	Names: map[string]string{
		"model.transformer.wte":                "token_embd",
		"model.transformer.ln_f":               "output_norm",
		"model.transformer.ff_out":             "output",
		"model.transformer.blocks.#.attn_norm": "blk.#.attn_norm",
		"model.transformer.blocks.#.q_proj":    "blk.#.attn_q",
		"model.transformer.blocks.#.k_proj":    "blk.#.attn_k",
		"model.transformer.blocks.#.v_proj":    "blk.#.attn_v",
		"model.transformer.blocks.#.attn_out":  "blk.#.attn_output",
		"model.transformer.blocks.#.ff_norm":   "blk.#.ffn_norm",
		"model.transformer.blocks.#.ff_proj":   "blk.#.ffn_gate",
		"model.transformer.blocks.#.up_proj":   "blk.#.ffn_up",
		"model.transformer.blocks.#.ff_out":    "blk.#.ffn_down",
	},
}
