"""Times denoising steps of LLaDA and Dream in PyTorch on this machine's GPU: one JSON line for each length,
attention backend and number of rows of logits.

    python3 bench/e2e.py [--shape llada-8b] [--length 4096,16384,65536] [--backend fa2,cudnn] [--rows 128,all]
    python3 bench/e2e.py --cache [--length 4096,16384,65536] [--batch 1] [--kind prefill,commit,block]
    python3 bench/e2e.py --check testdata/llada --check internal/tinymodel/dream

A step is a forward pass over one sequence of random tokens: bf16, eager, random weights of the published
configurations in models/. The official code computes the logits of all rows (--rows all); a sampler reads those of the
tokens it may fill. With --cache steps keep keys and values (cached.py), without sampling as the others.

--check holds the model to the logits that the Go models are tested against, and says how far off its own are in bf16:
`go test -tags cuda -v -run ReferenceLogits ./cudaop` says that of the operators here. It holds steps with a cache to
forwards over all tokens.
"""

import argparse
import datetime
import json
import pathlib
import statistics
import sys
import time

import torch
import torch.nn.functional as F
from torch.nn.attention import sdpa_kernel

import cached
from cached import SDPA

ROOT = pathlib.Path(__file__).resolve().parent.parent
SHAPES = {"llada-8b": ROOT / "models/llada/llada-8b.json", "dream-7b": ROOT / "models/dream/dream-7b.json"}

# The checkpoints' names of a block's tensors.
LLADA = {
    "embed": "model.transformer.wte", "norm": "model.transformer.ln_f", "head": "model.transformer.ff_out",
    "block": "model.transformer.blocks.{}.", "norm1": "attn_norm", "q": "q_proj", "k": "k_proj", "v": "v_proj", "out": "attn_out",
    "norm2": "ff_norm", "gate": "ff_proj", "up": "up_proj", "down": "ff_out",
}
DREAM = {
    "embed": "model.embed_tokens", "norm": "model.norm", "head": "lm_head",
    "block": "model.layers.{}.", "norm1": "input_layernorm", "q": "self_attn.q_proj", "k": "self_attn.k_proj",
    "v": "self_attn.v_proj", "out": "self_attn.o_proj", "norm2": "post_attention_layernorm", "gate": "mlp.gate_proj",
    "up": "mlp.up_proj", "down": "mlp.down_proj",
}


class Model:
    """A LLaDA or Dream. weight(name, shape) returns the tensor of that name."""

    def __init__(self, config, weight):
        dream = config["model_type"] == "Dream"
        names = DREAM if dream else LLADA
        if dream:
            self.heads, kv = config["num_attention_heads"], config["num_key_value_heads"]
            hidden, inner, layers = config["hidden_size"], config["intermediate_size"], config["num_hidden_layers"]
            self.vocab, tied = config["vocab_size"], config["tie_word_embeddings"]
        else:
            self.heads, kv = config["n_heads"], config.get("n_kv_heads") or config["n_heads"]
            hidden, inner, layers = config["d_model"], config["mlp_hidden_size"], config["n_layers"]
            self.vocab, tied = config["embedding_size"], config["weight_tying"]
        self.dim = hidden // self.heads
        self.eps, self.theta = config["rms_norm_eps"], config["rope_theta"]
        self.rope_type = None if dream else torch.float32  # Dream rotates in the type of its activations
        self.embed = weight(names["embed"] + ".weight", (self.vocab, hidden))
        self.norm = weight(names["norm"] + ".weight", (hidden,))
        self.head = self.embed if tied else weight(names["head"] + ".weight", (self.vocab, hidden))
        width = {"q": hidden, "k": kv * self.dim, "v": kv * self.dim}
        self.blocks = []
        for i in range(layers):
            at = names["block"].format(i)
            b = {n: weight(at + names[n] + ".weight", (hidden,)) for n in ("norm1", "norm2")}
            for n, shape in {"q": (hidden, hidden), "k": (width["k"], hidden), "v": (width["v"], hidden), "out": (hidden, hidden),
                             "gate": (inner, hidden), "up": (inner, hidden), "down": (hidden, inner)}.items():
                bias = weight(at + names[n] + ".bias", (width[n],)) if dream and n in width else None
                b[n] = (weight(at + names[n] + ".weight", shape), bias)
            self.blocks.append(b)

    def rms_norm(self, x, w):
        y = x.float()
        y = y * torch.rsqrt(y.pow(2).mean(-1, keepdim=True) + self.eps)
        return y.to(x.dtype) * w

    def rope(self, x, cos, sin):
        y = x.to(self.rope_type or x.dtype)
        a, b = y.chunk(2, -1)
        return (y * cos + torch.cat((-b, a), -1) * sin).to(x.dtype)

    def angles(self, tokens):
        """The cosines and sines of rotations, [tokens, dim]."""
        device = self.embed.device
        angle = torch.arange(tokens, device=device, dtype=torch.float32)[:, None] / self.theta ** (
            torch.arange(0, self.dim, 2, device=device, dtype=torch.float32) / self.dim)
        angle = torch.cat((angle, angle), -1)
        return (t.to(self.rope_type or self.embed.dtype) for t in (angle.cos(), angle.sin()))

    def attention(self, x, b, cos, sin):
        q, k, v = (F.linear(x, *b[n]).unflatten(-1, (-1, self.dim)).transpose(1, 2) for n in "qkv")  # [batch, heads, n, dim]
        q, k = self.rope(q, cos, sin), self.rope(k, cos, sin)
        if k.shape[1] < self.heads:  # query heads share key heads
            k, v = (t.repeat_interleave(self.heads // t.shape[1], 1) for t in (k, v))
        y = F.scaled_dot_product_attention(q, k, v)
        return F.linear(y.transpose(1, 2).flatten(2), *b["out"])

    @torch.inference_mode()
    def logits(self, ids, rows=None, layers=None):
        """The logits [batch, rows, vocab] of the last rows tokens, or of all; after the first layers, or all."""
        x = F.embedding(ids, self.embed)
        cos, sin = self.angles(ids.shape[1])
        for b in self.blocks[:layers]:
            x = x + self.attention(self.rms_norm(x, b["norm1"]), b, cos, sin)
            h = self.rms_norm(x, b["norm2"])
            x = x + F.linear(F.silu(F.linear(h, *b["gate"])) * F.linear(h, *b["up"]), *b["down"])
        if rows:
            x = x[:, -rows:]
        return F.linear(self.rms_norm(x, self.norm), self.head)


def random_model(shape):
    """The shape with normally distributed weights; norms are 1."""
    def weight(name, size):
        t = torch.empty(size, dtype=torch.bfloat16, device="cuda")
        return t.fill_(1) if len(size) == 1 and name.endswith(".weight") else t.normal_(0, 0.02)
    return Model(json.loads(SHAPES[shape].read_text()), weight)


def read_safetensors(path):
    """The tensors of a file, by name."""
    data = bytearray(pathlib.Path(path).read_bytes())
    size = int.from_bytes(data[:8], "little")
    types = {"F32": torch.float32, "I32": torch.int32, "BF16": torch.bfloat16}
    tensors = {}
    for name, t in json.loads(data[8:8 + size]).items():
        if name != "__metadata__":
            begin, end = (8 + size + at for at in t["data_offsets"])
            tensors[name] = torch.frombuffer(data[begin:end], dtype=types[t["dtype"]]).reshape(t["shape"])
    return tensors


def relative(got, want):
    return ((got.double() - want.double()).norm() / want.double().norm()).item()


def check(directory):
    """Compares logits with those that the published code gave in float32; false if they are not the same. Of a model
    without such it compares bf16 with its own float32."""
    config = json.loads((directory / "config.json").read_text())
    weights = read_safetensors(directory / "model.safetensors")

    def model(dtype, device):
        def weight(name, size):
            t = weights[name]
            assert t.shape == size, f"{name}: {tuple(t.shape)}, want {size}"
            return t.to(device, dtype)
        return Model(config, weight)

    exact = model(torch.float32, "cpu")
    ok, cases = True, {}
    if (directory / "expected.safetensors").exists():
        expected = read_safetensors(directory / "expected.safetensors")
        for name in [n[:-len(".ids")] for n in expected if n.startswith("logits.") and n.endswith(".ids")]:
            ids, want = expected[name + ".ids"].long(), expected[name + ".out"]
            error = relative(exact.logits(ids), want)
            ok &= error < 1e-4
            print(f"{directory} {name}: float32, relative error {error:.1e}, want below 1e-4")
            ok &= relative(exact.logits(ids, 5), want[:, -5:]) < 1e-4
            cases[name] = ids, want
    else:
        ids = (torch.arange(512) * 37 % exact.vocab)[None]  # as in cudaop/model_test.go
        cases["logits.1x512"] = ids, exact.logits(ids)
    shift = int(config["model_type"] == "Dream")
    for name, (ids, _) in cases.items():
        for attention in cached.ANYWHERE:
            c = cached.Cached(model(torch.float32, "cpu"))
            c.parts[attention] = 1 if ids.shape[1] % 4 else 4
            error = cached.check(c, lambda ids, layers: exact.logits(ids, layers=layers), ids, attention, shift=shift)
            ok &= error < 1e-4
            print(f"{directory} {name}: float32, with a cache, {attention}, relative error {error:.1e}, want below 1e-4")
    if not torch.cuda.is_available():
        return ok
    for name, (ids, want) in cases.items():
        for backend in ("math", "fa2", "cudnn"):  # bf16 errors of the backends are those of bf16, not of another model
            try:
                with sdpa_kernel([SDPA[backend]]):
                    error = relative(model(torch.bfloat16, "cuda").logits(ids.cuda()).cpu(), want)
            except RuntimeError as problem:
                print(f"{directory} {name}: {backend} does not take this size: {problem}")
                continue
            ok &= error < 5e-2
            print(f"{directory} {name}: bfloat16, {backend}, relative error {error:.2e}, want below 5e-2")
        for attention in cached.ATTENTIONS:
            c = cached.Cached(model(torch.bfloat16, "cuda"))
            c.parts[attention] = 1 if ids.shape[1] % 4 else 4
            try:
                error = cached.check(c, lambda ids, layers: exact.logits(ids, layers=layers), ids, attention, shift=shift)
            except (RuntimeError, ValueError) as problem:
                print(f"{directory} {name}: with a cache, {attention} does not take this size: {problem}")
                continue
            ok &= error < 5e-2
            print(f"{directory} {name}: bfloat16, with a cache, {attention}, relative error {error:.2e}, want below 5e-2")
    return ok


def milliseconds(f, samples, seconds):
    """The times of f: as many as samples, fewer if that takes longer than seconds, but one."""
    times, end = [], time.monotonic() + seconds
    while not times or (len(times) < samples and time.monotonic() < end):
        start, stop = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        start.record()
        f()
        stop.record()
        stop.synchronize()
        times.append(start.elapsed_time(stop))
    return times


def report(args, times, **what):
    """Prints a record."""
    print(json.dumps({
        "code": "pytorch", "shape": args.shape, **what, "sparsity": 0, "precision": "bfloat16", "mode": "dense", "samples": len(times),
        "ms": round(statistics.median(times), 3), "ms_range": [round(min(times), 3), round(max(times), 3)],
        "held_bytes": torch.cuda.max_memory_allocated(), "torch": torch.__version__, "gpu": torch.cuda.get_device_name(),
        "date": datetime.datetime.now(datetime.timezone.utc).date().isoformat(), "command": " ".join(["python3"] + sys.argv),
    }), flush=True)


def measure(args):
    model = random_model(args.shape)
    for n in map(int, args.length.split(",")):
        ids = torch.randint(model.vocab, (1, n), device="cuda")
        for backend in (args.backend or "fa2,cudnn").split(","):
            for rows in args.rows.split(","):
                count = n if rows == "all" else int(rows)
                with sdpa_kernel([SDPA[backend]]):
                    torch.cuda.reset_peak_memory_stats()
                    for _ in range(2):  # loads libraries, allocates
                        model.logits(ids, count, 2)
                    times = milliseconds(lambda: model.logits(ids, count), args.samples, args.seconds)
                report(args, times, n=n, batch=1, rows=count, attention=backend)
                torch.cuda.empty_cache()


def measure_cached(args):
    shift = int(args.shape == "dream-7b")
    c = cached.Cached(random_model(args.shape), cached.compiler(args.autotune))
    products = {"products": "autotuned"} if args.autotune else {}
    attentions = args.backend and args.backend.split(",")
    for n in map(int, args.length.split(",")):
        for what, f in cached.steps(c, n, args.batch, args.block_length, shift, args.kind.split(","), attentions, milliseconds):
            times = milliseconds(f, args.samples, args.seconds)
            report(args, times, n=n, batch=args.batch, cache="dual", block_length=args.block_length, **what, **products)


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--shape", choices=SHAPES, default="llada-8b")
    p.add_argument("--length", default="4096,16384,65536")
    p.add_argument("--backend", help="kernels of attention; default: fa2,cudnn; with --cache those that win, of " + ",".join(cached.ATTENTIONS))
    p.add_argument("--rows", default="128,all", help="without --cache, rows of logits: numbers, or all")
    p.add_argument("--samples", type=int, default=5)
    p.add_argument("--seconds", type=float, default=20, help="most time for the samples of one line, of which there is at least one")
    p.add_argument("--cache", action="store_true", help="steps with a dual cache, as fast as PyTorch runs them")
    p.add_argument("--batch", type=int, default=1, help="with --cache: sequences")
    p.add_argument("--block-length", type=int, default=32, help="with --cache: tokens of a block")
    p.add_argument("--kind", default=",".join(cached.KINDS), help="with --cache: kinds of steps; default: all")
    p.add_argument("--autotune", action="store_true", help="with --cache: try the compiler's products, too; it takes minutes")
    p.add_argument("--check", type=pathlib.Path, metavar="DIR", action="append",
                   help="compare logits with those of a directory of testdata/, or of internal/tinymodel/ with its own, with a cache too; "
                        "may be repeated, and needs no GPU")
    args = p.parse_args()
    if args.check:
        sys.exit(0 if all([check(d) for d in args.check]) else 1)
    (measure_cached if args.cache else measure)(args)


if __name__ == "__main__":
    main()
