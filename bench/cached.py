"""Steps of LLaDA and Dream with a dual cache of keys and values, as fast as PyTorch runs them. bench/e2e.py --cache times
them, and its --check compares them with forwards over all tokens.

Keys are rotated when they are written and never again. Keys and values of all tokens have their place before the first
step. Queries, keys and values are one product, gate and up another. Query heads that share a key head are rows of one head,
so a step reads each key once; without a mask the result is the same. The last block computes only the rows whose logits are
read. Everything between the attentions is compiled, and a step is one CUDA graph unless it has many rows.
"""

import statistics
import sys

import torch
import torch.nn.functional as F
from torch.nn.attention import SDPBackend, sdpa_kernel

SDPA = {"fa2": SDPBackend.FLASH_ATTENTION, "cudnn": SDPBackend.CUDNN_ATTENTION, "efficient": SDPBackend.EFFICIENT_ATTENTION,
        "math": SDPBackend.MATH}
SPLIT = ("split-fa2", "split-cudnn", "matmul")  # the keys of a head in parts, whose number is tried
ATTENTIONS = (*SDPA, *SPLIT)
KINDS = {"prefill": ("fa2", "cudnn"), "commit": ("fa2", "split-fa2", "split-cudnn"), "block": ("fa2", "split-fa2", "split-cudnn")}
GRAPHED = 4096  # most rows of steps that the host's launches would slow down
ANYWHERE = ("math", "matmul")  # on CPUs too


def join(block, *names):
    """The weights of several products, and their biases, as those of one."""
    weights, biases = zip(*(block.pop(n) for n in names))
    return torch.cat(weights), None if biases[0] is None else torch.cat(biases)


def combine(parts, totals):
    """The attention of all keys from that of parts of them, [heads, parts, rows, dim], and the logarithms of their sums."""
    share = torch.softmax(totals, 1)[..., None]
    return (parts * share).sum(1).to(parts.dtype)


def products(q, k, v):
    """Attention of queries [heads, 1, rows, dim] to keys [heads, parts, keys, dim]."""
    scores = (q @ k.transpose(-1, -2)).float() * q.shape[-1] ** -0.5
    p = torch.exp(scores - scores.amax((1, 3), keepdim=True))
    return ((p.to(v.dtype) @ v).float().sum(1) / p.sum((1, 3))[..., None]).to(v.dtype)


class Cached:
    """The model with a cache. It takes the model's weights. compiler compiles a function."""

    def __init__(self, model, compiler=lambda f, dynamic: f):
        self.model = model
        self.layers = [{
            "norm1": b["norm1"], "norm2": b["norm2"], "out": b["out"][0], "down": b["down"][0], "qkv": join(b, "q", "k", "v"),
            "gate_up": join(b, "gate", "up")[0],
        } for b in model.blocks]
        self.kv_heads = (self.layers[0]["qkv"][0].shape[0] // model.dim - model.heads) // 2
        self.shared = model.heads // self.kv_heads  # query heads of a key head
        self.cache, self.parts = None, {}
        self.compiled = [compiler(f, False) for f in (self.project, self.finish, self.head)]
        self.combine, self.products = compiler(combine, True), compiler(products, True)

    def allocate(self, batch, tokens):
        """Makes a cache, in place of the one before."""
        like, dim = self.model.embed, self.model.dim
        self.cache = None
        if like.is_cuda:
            torch.cuda.empty_cache()
        self.cache = [like.new_zeros(2, batch, self.kv_heads, tokens, dim) for _ in self.layers]  # keys and values
        self.cos, self.sin = self.model.angles(tokens)

    def project(self, x, norm, w, bias, cos, sin, cache, rows):
        """Writes keys and values of rows and returns the queries, [batch, key heads, shared * rows, dim]."""
        qkv = F.linear(self.model.rms_norm(x, norm), w, bias).unflatten(-1, (-1, self.model.dim)).transpose(1, 2)
        q, k, v = qkv.split((self.model.heads, self.kv_heads, self.kv_heads), 1)
        cache.index_copy_(3, rows, torch.stack((self.model.rope(k, cos, sin), v)))
        q = self.model.rope(q, cos, sin)
        return q.reshape(len(x), self.kv_heads, self.shared * len(rows), self.model.dim)

    def finish(self, x, y, out, norm, gate_up, down):
        """The block's output for its input x and the attention y."""
        x = x + F.linear(y.unflatten(2, (self.shared, -1)).permute(0, 3, 1, 2, 4).flatten(2), out)
        gate, up = F.linear(self.model.rms_norm(x, norm), gate_up).chunk(2, -1)
        return x + F.linear(F.silu(gate) * up, down)

    def head(self, x):
        return F.linear(self.model.rms_norm(x, self.model.norm), self.model.head)

    @torch.no_grad()
    def step(self, ids, rows, read, attention, layers=None):
        """The logits of rows[read], of tokens ids [batch, rows] at the positions rows; after the first layers, or all."""
        x = F.embedding(ids, self.model.embed)
        cos, sin = self.cos[rows], self.sin[rows]
        last = (layers or len(self.layers)) - 1
        project, finish, head = self.compiled
        for i, b in enumerate(self.layers[:last + 1]):
            q = project(x, b["norm1"], *b["qkv"], cos, sin, self.cache[i], rows)
            if i == last and read != slice(0, len(rows)):
                q = q.unflatten(2, (self.shared, -1))[:, :, :, read].flatten(2, 3)
                x = x[:, read].contiguous()
            y = self.attend(attention, q, *self.cache[i])
            x = finish(x, y, b["out"], b["norm2"], b["gate_up"], b["down"])
        return head(x)

    def attend(self, attention, q, k, v):
        """Attention of queries [batch, heads, rows, dim] to all keys."""
        if attention in SDPA:
            with sdpa_kernel(SDPA[attention]):
                return F.scaled_dot_product_attention(q, k, v)
        shape, parts = q.shape, self.parts.get(attention, 1)
        q = q.flatten(0, 1)[:, None]
        k, v = (t.reshape(-1, parts, t.shape[2] // parts, t.shape[3]) for t in (k, v))
        if attention == "matmul":
            return self.products(q, k, v).reshape(shape)
        q = q.expand(-1, parts, -1, -1)
        if attention == "split-fa2":
            y, totals = torch.ops.aten._scaled_dot_product_flash_attention(q, k, v)[:2]
        else:
            y, totals = torch.ops.aten._scaled_dot_product_cudnn_attention(q.contiguous(), k, v, None, True)[:2]
        return self.combine(y, totals.reshape(y.shape[:3])).reshape(shape)

    def choose_parts(self, attention, q, milliseconds):
        """Takes the fastest number of parts for queries q, over several layers' keys: more than a GPU's cache holds."""
        def attend():
            for keys, values in self.cache[:8]:
                self.attend(attention, q, keys, values)
        times = {}
        for parts in (1, 2, 4, 8, 16, 32, 64):
            if q.shape[2] <= self.cache[0].shape[3] // parts:
                self.parts[attention] = parts
                times[parts] = statistics.median(milliseconds(graphed(attend), 5, 1))
        self.parts[attention] = min(times, key=times.get)


def compiler(autotune):
    """Compiles functions; with autotune it also tries its own products."""
    torch._dynamo.config.recompile_limit = 256  # lengths times numbers of rows
    mode = "max-autotune-no-cudagraphs" if autotune else None
    return lambda f, dynamic: torch.compile(f, dynamic=dynamic, mode=mode)


def graphed(f):
    """f as a CUDA graph."""
    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        for _ in range(3):
            f()
    torch.cuda.current_stream().wait_stream(stream)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        f()
    return graph.replay


def rows_of(kind, n, block, shift):
    """The rows of a step in the middle of n tokens, and which of them have logits. shift is 1 if row i predicts token i+1."""
    start = n // 2 // block * block
    read = slice(start - shift, start - shift + block)
    first = max(0, {"prefill": 0, "commit": start - block - shift, "block": start - shift}[kind])
    end = n if kind == "prefill" else start + block
    return range(first, end), slice(read.start - first, read.stop - first)


def steps(cached, n, batch, block, shift, kinds, attentions, milliseconds):
    """Yields steps over a cache of n tokens: what they are, and a function that runs one."""
    cached.allocate(batch, n)
    for kind in kinds:
        rows, read = rows_of(kind, n, block, shift)
        at = torch.tensor(rows, device="cuda")
        ids = torch.randint(cached.model.vocab, (batch, len(rows)), device="cuda")
        for attention in attentions or KINDS[kind]:
            def run(layers=None):
                return cached.step(ids, at, read, attention, layers)
            try:
                if attention in SPLIT:
                    shape = (batch, cached.kv_heads, cached.shared * len(rows), cached.model.dim)
                    cached.choose_parts(attention, torch.randn(shape, device="cuda").to(cached.model.embed.dtype), milliseconds)
                run(2)  # compiles
                f = graphed(run) if batch * len(rows) <= GRAPHED else run
            except (RuntimeError, ValueError) as problem:
                print(f"{n} tokens, {kind}: {attention} does not take this size: {problem}", file=sys.stderr)
                continue
            torch.cuda.reset_peak_memory_stats()
            what = {"kind": kind, "computed": len(rows), "rows": batch * block, "attention": attention}
            if attention in SPLIT:
                what["parts"] = cached.parts[attention]
            yield what, f


def check(cached, plain, ids, attention, block=5, shift=0):
    """The largest relative error of cached steps: of tokens as the cache has them, in all layers, and of other ones, in
    the first, where keys and values depend on nothing but their own tokens. plain(ids, layers) computes all tokens."""
    n, device = ids.shape[1], cached.model.embed.device
    cached.allocate(len(ids), n)
    errors = []

    def compare(kind, tokens, layers):
        rows, read = rows_of(kind, n, block, shift)
        got = cached.step(tokens[:, rows].to(device), torch.tensor(rows, device=device), read, attention, layers).cpu()
        want = plain(tokens, layers)[:, rows][:, read]
        errors.append(((got.double() - want.double()).norm() / want.double().norm()).item())

    other = (ids + 1) % cached.model.vocab
    for kind in ("prefill", "block", "commit", "block"):
        compare(kind, ids, None)
    for kind in ("block", "commit"):
        changed, (rows, _) = ids.clone(), rows_of(kind, n, block, shift)
        changed[:, rows] = other[:, rows]
        compare(kind, changed, 1)
    compare("prefill", other, None)
    compare("prefill", ids, None)
    rows, read = rows_of("block", n, block, shift)
    cached.step(other[:, rows].to(device), torch.tensor(rows, device=device), read, attention)
    compare("commit", ids, None)  # keys and values of the step before are overwritten, in all layers
    return torch.tensor(errors).max().item()  # NaN if one is
