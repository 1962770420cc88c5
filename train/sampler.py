"""LLaDA's and Dream's samplers at temperature 0, and PulseCol attention, written for clarity."""

import math

import torch
import torch.nn.functional as F

import data


def quotas(masked: int, steps: int) -> list[int]:
    """How many tokens each step of a block commits; the remainder goes to the first steps."""
    base, extra = divmod(masked, steps)
    return [base + (i < extra) for i in range(steps)]


def generate(model, prompt, settings: dict, sparse=None):
    """Runs the sampler of the model's type. prompt [B,P] -> generated ids [B, response_length(settings)].

    settings are those of generation_config.json. sparse replaces dense attention.
    """
    return SAMPLERS[model.config.model_type](model, prompt, sparse=sparse, **settings)


def response_length(settings: dict) -> int:
    return settings["gen_length"] if "gen_length" in settings else settings["max_new_tokens"]


@torch.no_grad()
def generate_llada(model, prompt, gen_length: int, block_length: int, steps: int, sparse=None):
    """Semi-autoregressive low-confidence remasking. prompt [B,P] -> generated ids [B,gen_length].

    Blocks are filled from left to right. Every step predicts all masked positions and commits the
    most confident ones of the current block, the earlier position first on a tie.
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
            accepted = confidence.sort(dim=1, descending=True, stable=True).indices[:, :quota]
            window.scatter_(1, accepted, token.gather(1, accepted))
    return window


@torch.no_grad()
def generate_dream(model, prompt, max_new_tokens: int, steps: int, alg: str, eps: float, sparse=None):
    """Dream's diffusion_generate: the whole response at once, the most confident tokens first.

    Between the times t and s a step commits the share 1 - s/t of the masks. alg says how sure a
    token is: "maskgit_plus" by its probability, "entropy" by that of the whole distribution.
    Confidences are float32, as the number of tokens to commit is: both decide ties and truncation.
    """
    x = torch.cat([prompt, prompt.new_full((len(prompt), max_new_tokens), data.MASK)], 1)
    window = x[:, prompt.shape[1]:]
    times = torch.linspace(1, eps, steps + 1)
    for i in range(steps):
        if sparse:
            sparse.begin(i + 1)
        p = model(x, max_new_tokens, sparse).double().softmax(-1).float()
        confidence, token = p.max(-1)
        if alg == "entropy":
            confidence = (p * (p + 1e-10).log()).sum(-1)
        elif alg != "maskgit_plus":
            raise ValueError(f"alg {alg!r}: want 'maskgit_plus' or 'entropy'")
        masked = window == data.MASK
        confidence = confidence.masked_fill(~masked, -math.inf)
        mean = masked.sum().float().cpu() / len(x)
        count = int(mean if i == steps - 1 else mean * (1 - times[i + 1] / times[i]))
        accepted = confidence.sort(dim=1, descending=True, stable=True).indices[:, :count]
        window.scatter_(1, accepted, torch.where(masked, token, window).gather(1, accepted))
    return window


SAMPLERS = {"llada": generate_llada, "dream": generate_dream}


def refresh_steps(steps: int, eta: float, refreshes: int) -> set[int]:
    """1-based steps at which PulseCol refreshes: refreshes of them, even over the first eta of all steps."""
    last = max(1, math.floor(eta * steps + 1e-9))
    if refreshes == 1:
        return {1}
    return {1 + r * (last - 1) // (refreshes - 1) for r in range(refreshes)}


class PulseCol:
    """Column-sparse attention whose columns are selected anew at the refresh steps (arXiv 2605.20813).

    Queries are cut into groups. A refresh step computes dense attention and keeps, for every head
    and group, the (1 - sparsity) share of keys with the most attention; other steps use only those.
    """

    def __init__(self, steps: int, sparsity: float, group: int = 32, eta: float = 0.3, refreshes: int = 8):
        self.sparsity, self.group, self.kept = sparsity, group, {}
        self.refresh = refresh_steps(steps, eta, refreshes)

    def begin(self, step: int):
        self.now = step

    def __call__(self, layer: int, q, k, v):
        n, groups = q.shape[2], -(-q.shape[2] // self.group)
        if self.now not in self.refresh:
            columns = self.kept[layer].flatten(2)[..., None].expand(-1, -1, -1, q.shape[-1])
            k, v = (t.gather(2, columns).unflatten(2, (groups, -1)).flatten(1, 2) for t in (k, v))
            heads, q = q.shape[1], F.pad(q, (0, 0, 0, -n % self.group)).unflatten(2, (groups, -1)).flatten(1, 2)
            return F.scaled_dot_product_attention(q, k, v).unflatten(1, (heads, groups)).flatten(2, 3)[:, :, :n]
        p = (q @ k.transpose(-1, -2) / math.sqrt(q.shape[-1])).softmax(-1)
        out = p @ v
        scores = F.pad(p, (0, 0, 0, -n % self.group)).unflatten(2, (-1, self.group)).sum(3)
        self.kept[layer] = scores.topk(max(1, math.floor((1 - self.sparsity) * n + 1e-9)), -1).indices
        return out
