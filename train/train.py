"""Trains the small models that are embedded in pulsecol.

    python train/train.py --model-type llada --minutes 8.7
    python train/train.py --model-type llada --minutes 5.3 --course second --init internal/tinymodel/llada
    python train/train.py --model-type dream --minutes 5.4 --course third --init internal/tinymodel/dream

The first command teaches retrieval, lists and arithmetic in up to 2,112 tokens; the second goes on with all tasks, in
up to 4,224; the third is for tracking, which the second leaves unlearned. Every course is for both model types.

Needs PyTorch, numpy, tokenizers and safetensors, and a GPU if it is to end soon; the same command
runs on a CPU. Writes model.safetensors (bfloat16), config.json, generation_config.json,
tokenizer.json and tokenizer_config.json to --out (internal/tinymodel/llada or .../dream), and what
was run with its loss curve to train/results.json, where evaluate.py adds the accuracy.

The objective is LLaDA's for both types: a share t ~ U(0,1) of the response is masked, and the
cross-entropy at the masked tokens is weighted by 1/t. Dream differs only in the output row that
predicts a token, which is the one before it. In half of the rows everything left of a random cut
stays clean, which is what LLaDA's semi-autoregressive sampler shows the model. In the third course the
cut is in the answer, and a share of rows has nothing but masks right of it: of an answer that follows
from its own beginning, as a chain of names does, that leaves one step to learn.

Every optimizer step sees a batch of short rows and a batch of long ones of the same number of
tokens. Matrices of the blocks are trained with Muon, everything else with AdamW; the learning rate
warms up, holds, and then falls to zero along a cosine over the time that the making of the data and the
compilation leave of the given minutes. Arithmetic starts with mostly one-step problems, tracking in the
third course with chains of one or two names in short texts.
"""

import argparse
import dataclasses
import json
import math
import pathlib
import sys
import time

import torch
import torch.nn.functional as F
from safetensors.torch import load_file, save_file
from tokenizers import Tokenizer

import data
import evaluate
import heldout
import results
import tasks
from model import TYPES, Block, Model, checkpoint, restore

TOKENS = 2112 * 32  # in a batch; a multiple of every row length below, so that rows fill it exactly
TASKS = ["arithmetic", "lists", "retrieval", "multiquery", "tracking"]
POOL = {"arithmetic1": 600_000, "arithmetic2": 1_500_000, "lists": 1_000_000, "filler": 200_000,
        "needles": 3000 * len(tasks.KEYS), "assignments": 1000 * len(tasks.KEYS)}


@dataclasses.dataclass
class Course:
    """What the batches of a run hold, and how fast it learns from them."""

    short: dict[int, float]  # row length of short batches: how often it is drawn
    long: dict[int, float]  # of long ones
    mixes: dict[int, dict[str, float]]  # share of each task in the rows of a batch of up to so many tokens
    rate: float  # factor of the learning rates
    pool: dict[str, int]  # how many texts of every kind
    hold: float = 0  # share of the time before the learning rates fall
    growth: float = 0  # share of the time over which rows grow from 256 tokens, and chains from two names
    cut_in_answer: bool = False  # in place of the window
    all_masked: float = 0  # share of the rows with a cut that have only masks right of it


SINGLE_LENGTHS = {64: 1.0, 96: 1.5, 128: 2.0}
SINGLE = {"arithmetic": 0.7, "lists": 0.3}
COURSES = {
    # With all tasks from the start, 8.7 minutes were too short to learn retrieval. So it comes before the tasks that need it.
    "first": Course(
        SINGLE_LENGTHS, {192: 1.0, 256: 1.0, 384: 1.0, 512: 1.5, 768: 1.5, 1056: 2.0, 1408: 1.0, 2112: 2.0},
        {128: SINGLE,
         1056: {"arithmetic": 0.3, "lists": 0.2, "retrieval": 0.5},
         4224: {"retrieval": 1.0}},
        rate=1, pool=POOL),
    "second": Course(
        SINGLE_LENGTHS, {192: 1.0, 256: 1.0, 384: 1.0, 512: 1.5, 768: 1.5, 1056: 2.0, 1408: 1.0, 2112: 1.5, 3072: 1.0, 4224: 1.5},
        {128: SINGLE,
         1056: {"arithmetic": 0.2, "lists": 0.15, "retrieval": 0.25, "multiquery": 0.15, "tracking": 0.25},
         4224: {"retrieval": 0.4, "multiquery": 0.25, "tracking": 0.35}},
        rate=1 / 3, pool=POOL),
    "third": Course(
        {64: 0.5, 96: 0.5, 128: 0.5, 176: 3.0, 256: 3.0, 384: 1.5},
        {192: 1.0, 256: 1.5, 384: 1.5, 512: 1.5, 768: 1.5, 1056: 2.0, 1408: 1.0, 2112: 1.5, 3072: 1.0, 4224: 1.5},
        {128: SINGLE,
         384: {"arithmetic": 0.1, "lists": 0.05, "multiquery": 0.1, "tracking": 0.75},
         1056: {"arithmetic": 0.15, "lists": 0.1, "retrieval": 0.1, "multiquery": 0.15, "tracking": 0.5},
         4224: {"retrieval": 0.2, "multiquery": 0.25, "tracking": 0.55}},
        rate=0.6, pool={**POOL, "arithmetic1": 200_000, "arithmetic2": 400_000, "lists": 300_000},
        hold=0.5, growth=0.35, cut_in_answer=True, all_masked=0.25),
}
ROOMY = 512  # in shorter rows some draws of hidden sentences find no room, so more are drawn than kept
LONG_WEIGHT = 0.5  # long batches have few rows, so their gradient is noisier
MUON_RATE, ADAM_RATE, WARMUP_STEPS, WEIGHT_DECAY = 0.006, 1.5e-3, 200, 0.01
TOKEN_IDS = {"bos_token_id": data.BOS, "eos_token_id": data.EOS, "pad_token_id": data.EOS}
GENERATION = {  # generation_config.json
    "llada": {"gen_length": 32, "block_length": 8, "steps": 32, "temperature": 0.0, **TOKEN_IDS},
    "dream": {"max_new_tokens": 32, "steps": 32, "alg": "maskgit_plus", "eps": 1e-3, "temperature": 0.0, **TOKEN_IDS},
}
SETTINGS = {kind: {name: value for name, value in g.items() if name in evaluate.SAMPLER_SETTINGS[kind]} for kind, g in GENERATION.items()}


class Muon(torch.optim.Optimizer):
    """Momentum whose update is orthogonalized (Jordan et al., 2024), for matrices.

    Matrices of one shape are orthogonalized together, so that a model of many small ones is fast.
    """

    def __init__(self, parameters, lr: float, momentum: float = 0.95, weight_decay: float = 0.0):
        super().__init__(parameters, dict(lr=lr, momentum=momentum, weight_decay=weight_decay))

    @torch.no_grad()
    def step(self):
        for group in self.param_groups:
            shapes = {}
            for p in group["params"]:
                shapes.setdefault(p.shape, []).append(p)
            for (rows, columns), ps in shapes.items():
                grads = torch.stack([p.grad for p in ps])
                state = self.state[ps[0]]
                average = state.setdefault("momentum", torch.zeros_like(grads))
                average.lerp_(grads, 1 - group["momentum"])
                update = orthogonalize(grads.lerp(average, group["momentum"]))  # Nesterov
                update *= max(1, rows / columns) ** 0.5
                torch._foreach_mul_(ps, 1 - group["lr"] * group["weight_decay"])
                torch._foreach_add_(ps, list(update.unbind()), alpha=-group["lr"])


def orthogonalize(g):
    """The nearest (semi-)orthogonal matrices to g [B,m,n], by five Newton-Schulz iterations."""
    x = g.bfloat16() if g.is_cuda else g
    x = x / (x.norm(dim=(-2, -1), keepdim=True) + 1e-7)
    wide = x.shape[-2] <= x.shape[-1]
    if not wide:
        x = x.mT
    for _ in range(5):
        a = x @ x.mT
        x = 3.4445 * x + (-4.7750 * a + 2.0315 * a @ a) @ x
    return (x if wide else x.mT).to(g.dtype)


def corrupt(batch: data.Batch, course: Course, g: torch.Generator):
    """Masks part of every response. Returns the ids with masks and the loss weight of every position."""
    rows, length = batch.ids.shape
    device = batch.ids.device

    def uniform(*shape):
        return torch.rand(shape, generator=g, device=device)
    position = torch.arange(length, device=device)
    response = position >= batch.prompt[:, None]
    part = response & (batch.ids != data.EOS) if course.cut_in_answer else response
    has_cut = uniform(rows, 1) < 0.5
    cut = torch.where(has_cut, uniform(rows, 1), 0.0)  # clean share of the part
    t = 0.02 + 0.98 * uniform(rows, 1)
    if course.all_masked:
        t = torch.where(has_cut & (uniform(rows, 1) < course.all_masked), 1.0, t)
    masked = (position >= batch.prompt[:, None] + cut * part.sum(1, keepdim=True)) & (uniform(rows, length) < t)
    weight = masked * batch.fits[:, None] / (t * data.LONGEST)
    return torch.where(masked, data.MASK, batch.ids), weight


def pick(weights: dict, r: torch.Generator) -> int:
    i = torch.multinomial(torch.tensor(list(weights.values())), 1, generator=r).item()
    return list(weights)[i]


def make_batch(pool: data.Pool, length: int, course: Course, progress: float, g: torch.Generator) -> tuple[data.Batch, torch.Tensor]:
    """A batch of rows of one length, and the index in TASKS of every row's task."""
    rows = TOKENS // length
    mix = next(mix for most, mix in course.mixes.items() if length <= most)
    parts, task_of_row, left = [], [], rows  # all made on the device: a copy to it would wait for the step before
    for i, (task, share) in enumerate(mix.items()):
        n = left if i == len(mix) - 1 else round(rows * share)
        left -= n
        if task in data.IN_TEXT:
            growing = {"names": (1, 2 + int(grown(course, progress) * (data.MOST_NAMES - 2)))} if task == "tracking" and course.growth else {}
            parts.append(getattr(pool, task)(n, length, g, oversample=4 if length < ROOMY else 1, **growing))
        else:
            parts.append(pool.examples(task, n, length, g, easy=max(0.3, 0.9 - 2 * progress)))
        task_of_row.append(torch.full((n,), TASKS.index(task), device=pool.device))
    batch = data.Batch(*(torch.cat([getattr(p, f) for p in parts]) for f in ("ids", "prompt", "fits")))
    return batch, torch.cat(task_of_row)


def grown(course: Course, progress: float) -> float:
    """How much of the growth of texts and chains is done."""
    return min(1, progress / course.growth) if course.growth else 1


def check_questions(tokenizer) -> list[tuple[str, heldout.Questions]]:
    """Held-out questions that show during a training how far it is."""
    pool = heldout.pool(tokenizer)
    return [(f"{task}@{length}", heldout.Questions(pool, task, 64, length)) for task, length in (
        ("tracking", 224), ("tracking", 480), ("tracking", 1024), ("multiquery", 1024), ("retrieval", 1024), ("arithmetic", 300), ("lists", 300))]


def main():
    parser = argparse.ArgumentParser(description="Trains a small model. See the top of this file.")
    parser.add_argument("--model-type", choices=TYPES, default="llada")
    parser.add_argument("--minutes", type=float, default=8.7, help="for everything: data, compilation and training")
    parser.add_argument("--out", type=pathlib.Path, help="folder to write to; default: internal/tinymodel/ and the model type")
    parser.add_argument("--course", choices=COURSES, default="first")
    parser.add_argument("--init", type=pathlib.Path, help="folder of a model to go on from")
    parser.add_argument("--rate", type=float, help="factor of the learning rates; default: that of the course")
    parser.add_argument("--all-masked", type=float, help="share of the rows with a cut that have only masks right of it; default: that of the course")
    parser.add_argument("--check", type=float, default=0, metavar="SECONDS", help="print the accuracy on held-out questions so often")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--results", type=pathlib.Path, default=results.FILE)
    args = parser.parse_args()
    args.out = args.out or pathlib.Path("internal/tinymodel") / args.model_type
    args.out.mkdir(parents=True, exist_ok=True)
    device = torch.device(args.device)
    cuda = device.type == "cuda"

    started = time.time()
    replaced = {"rate": args.rate, "all_masked": args.all_masked}
    course = dataclasses.replace(COURSES[args.course], **{k: v for k, v in replaced.items() if v is not None})
    tokenizer = Tokenizer.from_file(str(args.init / "tokenizer.json")) if args.init else data.train_tokenizer(args.seed)
    tokenizer.save(str(args.out / "tokenizer.json"))
    checks = check_questions(tokenizer) if args.check else []
    pool = data.Pool(tokenizer, course.pool, args.seed, device, exclude=heldout.texts())
    print(f"{pool.flat.numel() / 1e6:.0f} million tokens of pieces in {time.time() - started:.0f} s", flush=True)

    torch.manual_seed(args.seed)
    torch.set_float32_matmul_precision("high")
    g = torch.Generator(device).manual_seed(args.seed)
    r = torch.Generator().manual_seed(args.seed)
    config = TYPES[args.model_type]()
    model = restore(load_file(args.init / "model.safetensors"), config).train() if args.init else Model(config)
    model = model.to(device)
    eager = Block.before, Block.after
    if cuda:
        Block.before, Block.after = (torch.compile(part, dynamic=False) for part in eager)
    matrices = [p for n, p in model.named_parameters() if p.dim() == 2 and "blocks" in n]
    others = [p for n, p in model.named_parameters() if p.dim() != 2 or "blocks" not in n]
    optimizers = [Muon(matrices, lr=MUON_RATE, weight_decay=WEIGHT_DECAY),
                  torch.optim.AdamW(others, lr=ADAM_RATE, betas=(0.9, 0.95), weight_decay=0.0)]
    rates = [MUON_RATE * course.rate, ADAM_RATE * course.rate]

    def backward(length, progress, weight):
        """Adds the gradients of a batch. Returns the sum of the losses and the number of rows of every task."""
        batch, task = make_batch(pool, length, course, progress, g)
        ids, token_weight = corrupt(batch, course, g)
        with torch.autocast(device.type, torch.bfloat16, enabled=cuda):
            logits = model(ids, data.LONGEST)
        loss = F.cross_entropy(logits.flatten(0, 1).float(), batch.ids[:, -data.LONGEST:].flatten(), reduction="none")
        loss = (loss.view(len(ids), -1) * token_weight[:, -data.LONGEST:]).sum(1)
        (weight * loss.mean()).backward()
        return torch.zeros(len(TASKS), 2, device=device).index_add_(0, task, torch.stack([loss.detach(), batch.fits.float()], 1))

    def train_step(progress):
        longest = 256 * (max(course.long) / 256) ** grown(course, progress)
        return (backward(pick(course.short, r), progress, 1)
                + backward(pick({n: often for n, often in course.long.items() if n <= longest}, r), progress, LONG_WEIGHT))

    def check(seconds):
        """Prints how many held-out questions are answered right, and some wrong answers."""
        compiled = Block.before, Block.after  # for batches of one size
        Block.before, Block.after = eager
        found = {}
        for name, questions in checks:
            texts = evaluate.answers(model, tokenizer, questions.prompts, SETTINGS[args.model_type])
            pairs = list(zip(texts, questions.answers))
            wrong = [(a, b) for a, b in pairs if not tasks.correct(questions.task, a, b)]
            found[name] = round(1 - len(wrong) / len(pairs), 3)
            if questions.task == "tracking":
                print(*(f"  {name}: {a!r} for {b!r}" for a, b in wrong[:2]), sep="\n")
        Block.before, Block.after = compiled
        print(json.dumps({"seconds": round(seconds, 1), **found}), flush=True)

    train_step(0.0)  # compiles
    model.zero_grad()
    begun, step, curve, recent = time.time(), 0, [], []
    end = started + 60 * args.minutes
    print(f"compiled; {end - begun:.0f} s left to train", flush=True)
    checked = begun
    while (progress := (time.time() - begun) / (end - begun)) < 1:
        falling = max(0, progress - course.hold) / (1 - course.hold)
        scale = min(1, (step + 1) / WARMUP_STEPS) * 0.5 * (1 + math.cos(math.pi * falling))
        for optimizer, rate in zip(optimizers, rates):
            for group in optimizer.param_groups:
                group["lr"] = rate * scale
        recent.append(train_step(progress))
        for optimizer in optimizers:
            optimizer.step()
        model.zero_grad()
        step += 1
        if step % 100 == 0:
            loss, rows = torch.stack(recent).sum(0).unbind(1)
            recent = []
            curve.append({"step": step, "seconds": round(time.time() - begun, 1),
                          **{task: round(x / n, 5) for task, x, n in zip(TASKS, loss.tolist(), rows.tolist()) if n}})
            if step % 500 == 0:
                print(json.dumps(curve[-1]), flush=True)
        if args.check and time.time() - checked > args.check:
            check(time.time() - begun)
            checked = time.time()
    seconds = time.time() - begun
    if args.check:
        check(seconds)

    save_file(checkpoint(model), args.out / "model.safetensors", metadata={"format": "pt"})
    for name, value in {
        "config.json": config.to_json(),
        "generation_config.json": GENERATION[args.model_type],
        "tokenizer_config.json": {
            "tokenizer_class": "PreTrainedTokenizerFast", "bos_token": data.SPECIAL[data.BOS],
            "eos_token": data.SPECIAL[data.EOS], "pad_token": data.SPECIAL[data.EOS], "mask_token": data.SPECIAL[data.MASK],
            "clean_up_tokenization_spaces": False, "model_max_length": config.max_sequence_length},
    }.items():
        (args.out / name).write_text(json.dumps(value, indent=1) + "\n")
    results.record(args.results, args.model_type, f"{args.course} course", {
        "command": " ".join(["python", *sys.argv]), "date": time.strftime("%Y-%m-%d", time.gmtime()),
        "device": torch.cuda.get_device_name() if cuda else device.type, "pytorch": torch.__version__,
        "seed": args.seed, "parameters": sum(p.numel() for p in model.parameters()), "steps": step,
        "seconds": round(seconds, 1), "tokens": 2 * TOKENS * step, "loss": curve})
    print(f"{step} steps in {seconds:.0f} s, {2 * TOKENS * step / seconds / 1e6:.1f} million tokens/s")


if __name__ == "__main__":
    main()
