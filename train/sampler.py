"""LLaDA's sampler at temperature 0, and PulseCol attention, written for clarity."""

import math

import torch
import torch.nn.functional as F

import data


def quotas(masked: int, steps: int) -> list[int]:
    """How many tokens each step of a block commits; the remainder goes to the first steps."""
    base, extra = divmod(masked, steps)
    return [base + (i < extra) for i in range(steps)]


@torch.no_grad()
def generate(model, prompt, gen_length: int, block_length: int, steps: int, sparse=None):
    """Semi-autoregressive low-confidence remasking. prompt [B,P] -> generated ids [B,gen_length].

    Blocks are filled from left to right. Every step predicts all masked positions and commits the
    most confident ones of the current block, the earlier position first on a tie. sparse replaces
    dense attention.
    """
    if gen_length % block_length or steps % (gen_length // block_length):
        raise ValueError(f"gen_length {gen_length}, block_length {block_length}, steps {steps}: blocks and steps must divide evenly")
    x = torch.cat([prompt, prompt.new_full((len(prompt), gen_length), data.MASK)], 1)
    window = x[:, prompt.shape[1]:]
    blocks, step = gen_length // block_length, 0
    for begin in range(0, gen_length, block_length):
        for quota in quotas(block_length, steps // blocks):
            step += 1
            if sparse:
                sparse.begin(step)
            logits = model(x, gen_length, sparse).double()
            logits[..., data.MASK] = -math.inf  # the mask is no answer
            confidence, token = logits.softmax(-1).max(-1)
            confidence[window != data.MASK] = -math.inf
            confidence[:, begin + block_length:] = -math.inf
            chosen = confidence.sort(dim=1, descending=True, stable=True).indices[:, :quota]
            window.scatter_(1, chosen, token.gather(1, chosen))
    return window


def refresh_steps(steps: int, eta: float, refreshes: int) -> set[int]:
    """1-based steps at which PulseCol refreshes: refreshes of them, even over the first eta of all steps."""
    last = max(1, math.floor(eta * steps + 1e-9))
    if refreshes == 1:
        return {1}
    return {1 + r * (last - 1) // (refreshes - 1) for r in range(refreshes)}


class PulseCol:
    """Column-sparse attention whose columns are chosen anew at the refresh steps (arXiv 2605.20813).

    Queries are cut into groups. A refresh step computes dense attention and keeps, for every head
    and group, the (1 - sparsity) share of keys with the most attention; other steps use only those.
    """

    def __init__(self, steps: int, sparsity: float, group: int = 32, eta: float = 0.3, refreshes: int = 8):
        self.sparsity, self.group, self.kept = sparsity, group, {}
        self.refresh = refresh_steps(steps, eta, refreshes)

    def begin(self, step: int):
        self.now = step

    def __call__(self, layer: int, q, k, v):
        n = q.shape[2]
        if self.now not in self.refresh:
            return F.scaled_dot_product_attention(q, k, v, attn_mask=self.kept[layer])
        p = (q @ k.transpose(-1, -2) / math.sqrt(q.shape[-1])).softmax(-1)
        out = p @ v
        scores = F.pad(p, (0, 0, 0, -n % self.group)).unflatten(2, (-1, self.group)).sum(3)
        columns = scores.topk(max(1, math.floor((1 - self.sparsity) * n + 1e-9)), -1).indices
        kept = torch.zeros_like(scores, dtype=torch.bool).scatter_(-1, columns, True)
        self.kept[layer] = kept.repeat_interleave(self.group, 2)[:, :, :n]
        return out
