"""LLaDA and Dream in PyTorch: bidirectional transformers that differ in a few sizes and switches, and
in the names that their HuggingFace checkpoints (GSAI-ML/LLaDA-8B-*, Dream-org/Dream-v0-*) give to
the same things. Here everything has LLaDA's name.
"""

import math
from dataclasses import dataclass
from typing import ClassVar

import torch
import torch.nn.functional as F
from torch import nn

import data


@dataclass
class Config:
    """What is common to both types: sizes, and how a config.json is read and written."""

    d_model: int = 256
    n_heads: int = 4
    n_kv_heads: int = 4
    n_layers: int = 6
    mlp_hidden_size: int = 384
    vocab_size: int = data.VOCABULARY
    max_sequence_length: int = 4224
    rope_theta: float = 10000.0
    rms_norm_eps: float = 1e-5

    model_type: ClassVar[str]         # value of train.py --model-type: that of config.json in lower case
    qkv_bias: ClassVar[bool] = False
    shifted: ClassVar[bool] = False   # output row i-1 predicts token i
    json_identity: ClassVar[dict]     # the beginning of config.json
    json_fields: ClassVar[dict]       # its sizes, and the field here of each
    json_constants: ClassVar[dict]    # its other fields

    def to_json(self) -> dict:
        """config.json as HuggingFace writes it."""
        sizes = {theirs: getattr(self, ours) for theirs, ours in self.json_fields.items()}
        return {**self.json_identity, **sizes, **self.json_constants}

    @staticmethod
    def from_json(fields: dict) -> "Config":
        kind = TYPES[fields["model_type"].lower()]
        return kind(**{ours: fields[theirs] for theirs, ours in kind.json_fields.items()})

    def checkpoint_name(self, parameter: str) -> str:
        return f"model.{parameter}"


class LLaDA(Config):
    model_type = "llada"
    json_identity = {"architectures": ["LLaDAModelLM"], "model_type": "llada"}
    json_fields = {
        "d_model": "d_model", "n_heads": "n_heads", "n_kv_heads": "n_kv_heads", "n_layers": "n_layers",
        "mlp_hidden_size": "mlp_hidden_size", "vocab_size": "vocab_size", "embedding_size": "vocab_size",
        "max_sequence_length": "max_sequence_length", "rope_theta": "rope_theta", "rms_norm_eps": "rms_norm_eps",
    }
    json_constants = {
        "rope": True, "rope_full_precision": True, "weight_tying": False, "block_type": "llama",
        "block_group_size": 1, "layer_norm_type": "rms", "layer_norm_with_affine": True,
        "attention_layer_norm": False, "bias_for_layer_norm": False, "include_bias": False,
        "include_qkv_bias": False, "input_emb_norm": False, "scale_logits": False, "alibi": False,
        "activation_type": "silu", "attention_dropout": 0.0, "embedding_dropout": 0.0,
        "residual_dropout": 0.0, "mask_token_id": data.MASK, "eos_token_id": data.EOS,
        "pad_token_id": data.EOS, "use_cache": False,
    }


@dataclass
class Dream(Config):
    n_kv_heads: int = 2
    mlp_hidden_size: int = 512  # makes up for the smaller keys and values
    rms_norm_eps: float = 1e-6

    model_type = "dream"
    qkv_bias = True
    shifted = True  # Dream was made from an autoregressive model
    json_identity = {"architectures": ["DreamModel"], "model_type": "Dream"}
    json_fields = {
        "hidden_size": "d_model", "num_attention_heads": "n_heads", "num_key_value_heads": "n_kv_heads",
        "num_hidden_layers": "n_layers", "intermediate_size": "mlp_hidden_size", "vocab_size": "vocab_size",
        "max_position_embeddings": "max_sequence_length", "rope_theta": "rope_theta", "rms_norm_eps": "rms_norm_eps",
    }
    json_constants = {
        "hidden_act": "silu", "attention_dropout": 0.0,
        "rope_scaling": None, "use_mrope": False, "use_sliding_window": False, "sliding_window": None,
        "tie_word_embeddings": False, "torch_dtype": "bfloat16", "mask_token_id": data.MASK,
        "bos_token_id": data.BOS, "eos_token_id": data.EOS, "pad_token_id": data.EOS, "use_cache": False,
    }
    names = {
        "wte": "embed_tokens", "blocks": "layers", "ln_f": "norm", "attn_norm": "input_layernorm",
        "ff_norm": "post_attention_layernorm", "q_proj": "self_attn.q_proj", "k_proj": "self_attn.k_proj",
        "v_proj": "self_attn.v_proj", "attn_out": "self_attn.o_proj", "ff_proj": "mlp.gate_proj",
        "up_proj": "mlp.up_proj", "ff_out": "mlp.down_proj",
    }

    def checkpoint_name(self, parameter: str) -> str:
        if parameter == "transformer.ff_out.weight":
            return "lm_head.weight"
        return ".".join(["model", *(self.names.get(part, part) for part in parameter.split(".")[1:])])


TYPES = {kind.model_type: kind for kind in (LLaDA, Dream)}


class RMSNorm(nn.Module):
    def __init__(self, width: int, eps: float):
        super().__init__()
        self.weight, self.eps = nn.Parameter(torch.ones(width)), eps

    def forward(self, x):
        h = x.float()
        return (h * torch.rsqrt(h.pow(2).mean(-1, keepdim=True) + self.eps)).to(x.dtype) * self.weight.to(x.dtype)


def rotate(x, cos, sin):
    """Rotary embedding, half-split: dimension j turns with j + head_dim/2. x [T,H,D], cos and sin [T,1,D/2]."""
    a, b = x.float().chunk(2, -1)
    return torch.cat((a * cos - b * sin, b * cos + a * sin), -1).to(x.dtype)


class Block(nn.Module):
    """One layer, over all tokens of the batch laid end to end [T, d_model].

    Only attention sees rows, so before and after it run on one fixed shape whatever the row length
    and are compiled once.
    """

    def __init__(self, c: Config):
        super().__init__()
        self.head_dim, self.queries_per_kv = c.d_model // c.n_heads, c.n_heads // c.n_kv_heads
        kv = c.n_kv_heads * self.head_dim
        for name, inputs, outputs in (
            ("q_proj", c.d_model, c.d_model), ("k_proj", c.d_model, kv), ("v_proj", c.d_model, kv),
            ("attn_out", c.d_model, c.d_model), ("ff_proj", c.d_model, c.mlp_hidden_size),
            ("up_proj", c.d_model, c.mlp_hidden_size), ("ff_out", c.mlp_hidden_size, c.d_model),
        ):
            setattr(self, name, nn.Linear(inputs, outputs, bias=c.qkv_bias and name in ("q_proj", "k_proj", "v_proj")))
        self.attn_norm, self.ff_norm = RMSNorm(c.d_model, c.rms_norm_eps), RMSNorm(c.d_model, c.rms_norm_eps)

    def before(self, x, cos, sin):
        """Queries, keys and values [T, n_heads, head_dim]; query heads that share a key head each get a copy."""
        h = self.attn_norm(x)
        q, k, v = (p(h).view(len(x), -1, self.head_dim) for p in (self.q_proj, self.k_proj, self.v_proj))
        q, k = rotate(q, cos, sin), rotate(k, cos, sin)
        if self.queries_per_kv > 1:
            k, v = (t.repeat_interleave(self.queries_per_kv, 1) for t in (k, v))
        return q, k, v

    def after(self, x, attended):
        x = x + self.attn_out(attended)
        h = self.ff_norm(x)
        return x + self.ff_out(F.silu(self.ff_proj(h)) * self.up_proj(h))


class Transformer(nn.Module):
    def __init__(self, c: Config):
        super().__init__()
        self.wte = nn.Embedding(c.vocab_size, c.d_model)
        self.blocks = nn.ModuleList(Block(c) for _ in range(c.n_layers))
        self.ln_f = RMSNorm(c.d_model, c.rms_norm_eps)
        self.ff_out = nn.Linear(c.d_model, c.vocab_size, bias=False)


class Model(nn.Module):
    def __init__(self, c: Config):
        super().__init__()
        self.config = c
        self.transformer = Transformer(c)
        for name, p in self.named_parameters():
            if p.dim() == 2:  # the residual branches start small, as in GPT-2
                branch = "attn_out" in name or "blocks" in name and "ff_out" in name
                nn.init.normal_(p, std=0.02 / math.sqrt(2 * c.n_layers) if branch else 0.02)
            elif name.endswith("bias"):
                nn.init.zeros_(p)
        head_dim = c.d_model // c.n_heads
        frequency = c.rope_theta ** (-torch.arange(0, head_dim, 2).float() / head_dim)
        angle = torch.outer(torch.arange(c.max_sequence_length).float(), frequency)[:, None]
        self.register_buffer("cos", angle.cos(), persistent=False)
        self.register_buffer("sin", angle.sin(), persistent=False)

    def forward(self, ids, last: int, attend=None):
        """Logits [B, last, vocabulary] that predict the last tokens of every row of ids [B, N].

        attend(layer, q, k, v) replaces dense attention; q, k, v and its result are [B, heads, N, head_dim].
        """
        rows, length = ids.shape
        x = self.transformer.wte(ids).flatten(0, 1)
        cos, sin = (t[:length].repeat(rows, 1, 1) for t in (self.cos, self.sin))
        for i, block in enumerate(self.transformer.blocks):
            q, k, v = (t.view(rows, length, *t.shape[1:]).transpose(1, 2) for t in block.before(x, cos, sin))
            a = F.scaled_dot_product_attention(q, k, v) if attend is None else attend(i, q, k, v)
            x = block.after(x, a.transpose(1, 2).reshape(x.shape))
        h = x.view(rows, length, -1)
        if self.config.shifted:
            h = torch.cat((h[:, :1], h[:, :-1]), 1)  # the first token has no row before it
        h = self.transformer.ln_f(h[:, length - last:])
        return self.transformer.ff_out(h)


def checkpoint(model: Model) -> dict[str, torch.Tensor]:
    """The weights as bfloat16 under their HuggingFace names."""
    name = model.config.checkpoint_name
    return {name(n): p.detach().to(torch.bfloat16).contiguous().cpu() for n, p in model.named_parameters()}


def restore(weights: dict[str, torch.Tensor], c: Config) -> Model:
    """The model of a checkpoint, in float32."""
    model = Model(c)
    model.load_state_dict({n: weights[c.checkpoint_name(n)].float() for n, _ in model.named_parameters()})
    return model.eval()
