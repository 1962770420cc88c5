"""LLaDA in PyTorch: a bidirectional transformer whose parameter names are those of the HuggingFace
checkpoints (GSAI-ML/LLaDA-8B-*), so a state dict is a checkpoint.
"""

import math
from dataclasses import asdict, dataclass

import torch
import torch.nn.functional as F
from torch import nn

import data


@dataclass
class Config:
    d_model: int = 256
    n_heads: int = 4
    n_kv_heads: int = 4
    n_layers: int = 6
    mlp_hidden_size: int = 384
    vocab_size: int = data.VOCABULARY
    embedding_size: int = data.VOCABULARY
    max_sequence_length: int = 2112
    rope_theta: float = 10000.0
    rms_norm_eps: float = 1e-5

    def to_json(self) -> dict:
        """config.json as HuggingFace's LLaDA writes it."""
        return {
            "architectures": ["LLaDAModelLM"], "model_type": "llada", **asdict(self),
            "rope": True, "rope_full_precision": True, "weight_tying": False, "block_type": "llama",
            "block_group_size": 1, "layer_norm_type": "rms", "layer_norm_with_affine": True,
            "attention_layer_norm": False, "bias_for_layer_norm": False, "include_bias": False,
            "include_qkv_bias": False, "input_emb_norm": False, "scale_logits": False, "alibi": False,
            "activation_type": "silu", "attention_dropout": 0.0, "embedding_dropout": 0.0,
            "residual_dropout": 0.0, "mask_token_id": data.MASK, "eos_token_id": data.EOS,
            "pad_token_id": data.EOS, "use_cache": False,
        }


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
        self.heads = c.n_heads
        for name, inputs, outputs in (
            ("q_proj", c.d_model, c.d_model), ("k_proj", c.d_model, c.d_model), ("v_proj", c.d_model, c.d_model),
            ("attn_out", c.d_model, c.d_model), ("ff_proj", c.d_model, c.mlp_hidden_size),
            ("up_proj", c.d_model, c.mlp_hidden_size), ("ff_out", c.mlp_hidden_size, c.d_model),
        ):
            setattr(self, name, nn.Linear(inputs, outputs, bias=False))
        self.attn_norm, self.ff_norm = RMSNorm(c.d_model, c.rms_norm_eps), RMSNorm(c.d_model, c.rms_norm_eps)

    def before(self, x, cos, sin):
        h = self.attn_norm(x)
        q, k, v = (p(h).view(len(x), self.heads, -1) for p in (self.q_proj, self.k_proj, self.v_proj))
        return rotate(q, cos, sin), rotate(k, cos, sin), v

    def after(self, x, attended):
        x = x + self.attn_out(attended)
        h = self.ff_norm(x)
        return x + self.ff_out(F.silu(self.ff_proj(h)) * self.up_proj(h))


class Transformer(nn.Module):
    def __init__(self, c: Config):
        super().__init__()
        self.wte = nn.Embedding(c.embedding_size, c.d_model)
        self.blocks = nn.ModuleList(Block(c) for _ in range(c.n_layers))
        self.ln_f = RMSNorm(c.d_model, c.rms_norm_eps)
        self.ff_out = nn.Linear(c.d_model, c.embedding_size, bias=False)


class Model(nn.Module):
    def __init__(self, c: Config):
        super().__init__()
        self.config = c
        self.transformer = Transformer(c)
        for name, p in self.named_parameters():
            if p.dim() == 2:  # the residual branches start small, as in GPT-2
                branch = "attn_out" in name or "blocks" in name and "ff_out" in name
                nn.init.normal_(p, std=0.02 / math.sqrt(2 * c.n_layers) if branch else 0.02)
        head_dim = c.d_model // c.n_heads
        frequency = c.rope_theta ** (-torch.arange(0, head_dim, 2).float() / head_dim)
        angle = torch.outer(torch.arange(c.max_sequence_length).float(), frequency)[:, None]
        self.register_buffer("cos", angle.cos(), persistent=False)
        self.register_buffer("sin", angle.sin(), persistent=False)

    def forward(self, ids, last: int, attend=None):
        """Logits [B, last, vocabulary] of the last positions of every row of ids [B, N].

        attend(layer, q, k, v) replaces dense attention; q, k, v and its result are [B, heads, N, head_dim].
        """
        rows, length = ids.shape
        x = self.transformer.wte(ids).flatten(0, 1)
        cos, sin = (t[:length].repeat(rows, 1, 1) for t in (self.cos, self.sin))
        for i, block in enumerate(self.transformer.blocks):
            q, k, v = (t.view(rows, length, *t.shape[1:]).transpose(1, 2) for t in block.before(x, cos, sin))
            a = F.scaled_dot_product_attention(q, k, v) if attend is None else attend(i, q, k, v)
            x = block.after(x, a.transpose(1, 2).reshape(x.shape))
        h = self.transformer.ln_f(x.view(rows, length, -1)[:, length - last:])
        return self.transformer.ff_out(h)


def checkpoint(model: Model) -> dict[str, torch.Tensor]:
    """The weights as bfloat16 under their HuggingFace names."""
    return {f"model.{n}": p.detach().to(torch.bfloat16).contiguous().cpu() for n, p in model.named_parameters()}


def restore(weights: dict[str, torch.Tensor], c: Config) -> Model:
    """The model of a checkpoint, in float32."""
    model = Model(c)
    model.load_state_dict({n.removeprefix("model."): w.float() for n, w in weights.items()})
    return model.eval()
