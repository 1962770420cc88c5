"""Measures a small model on held-out questions, with dense attention and with PulseCol.

    python train/evaluate.py --model internal/tinymodel/llada

Computes in float32 from the bfloat16 weights, with the sampler settings of generation_config.json,
and adds what it finds to train/results.json as it goes. Prompts have no start token, as a user types them,
except where the results say so.
"""

import argparse
import json
import math
import pathlib
import time

import torch
from safetensors.torch import load_file
from tokenizers import Tokenizer

import data
import heldout
import results
import sampler
import tasks
from model import Config, Model, restore

LENGTHS = {  # of the prompts, in tokens
    "lists": [300, 600, 1000], "arithmetic": [300, 600, 1000],
    **dict.fromkeys(("retrieval", "multiquery", "tracking"), [256, 512, 1024, 2048, 4000]),
}
SPARSITIES = [0.8, 0.9]
SAMPLER_SETTINGS = {"llada": ("gen_length", "block_length", "steps"), "dream": ("max_new_tokens", "steps", "alg", "eps")}
OTHER_SETTINGS = {  # in place of those of generation_config.json
    "llada": [{"block_length": 32}, {"block_length": 16}, {"gen_length": 64, "block_length": 16, "steps": 64}, {"steps": 16}],
    "dream": [{"alg": "entropy"}, {"max_new_tokens": 64, "steps": 64}, {"steps": 16}],
}
OTHER_LENGTHS = [512, 600]  # measured with those settings too
TOKENS = 2 ** 16  # in one forward pass


def load(folder: pathlib.Path, device) -> tuple[Model, Tokenizer, dict]:
    """The model in float32, its tokenizer and the settings of its sampler."""
    config = Config.from_json(json.loads((folder / "config.json").read_text()))
    model = restore(load_file(folder / "model.safetensors"), config).to(device)
    generation = json.loads((folder / "generation_config.json").read_text())
    settings = {name: generation[name] for name in SAMPLER_SETTINGS[config.model_type]}
    return model, Tokenizer.from_file(str(folder / "tokenizer.json")), settings


def answers(model, tokenizer, prompts: list[list[int]], settings: dict, sparsity: float | None = None) -> list[str]:
    """The generated texts. Prompts of one length are run together, so no padding is needed."""
    device = next(model.parameters()).device
    by_length, out = {}, [""] * len(prompts)
    for i, p in enumerate(prompts):
        by_length.setdefault(len(p), []).append(i)
    for length, members in by_length.items():
        rows = max(1, TOKENS // (length + sampler.response_length(settings)))
        for i in range(0, len(members), rows):
            part = members[i:i + rows]
            sparse = None if sparsity is None else sampler.PulseCol(settings["steps"], sparsity)
            ids = sampler.generate(model, torch.tensor([prompts[j] for j in part], device=device), settings, sparse)
            for j, row in zip(part, ids.tolist()):
                out[j] = tokenizer.decode([t for t in row if t != data.EOS])
    return out


def accuracy(model, questions: heldout.Questions, tokenizer, settings, sparsity=None, start_token=False) -> dict:
    prompts = [[data.BOS] + p for p in questions.prompts] if start_token else questions.prompts
    texts = answers(model, tokenizer, prompts, settings, sparsity)
    right = [tasks.correct(questions.task, a, b) for a, b in zip(texts, questions.answers)]
    p, n = sum(right) / len(right), len(right)
    return {"samples": n, "accuracy": round(p, 4), "standard_error": round(math.sqrt(p * (1 - p) / n), 4)}


def main():
    parser = argparse.ArgumentParser(description="Measures a small model. See the top of this file.")
    parser.add_argument("--model", type=pathlib.Path, default=pathlib.Path("internal/tinymodel/llada"))
    parser.add_argument("--results", type=pathlib.Path, default=results.FILE)
    parser.add_argument("--samples", type=int, default=200, help="questions for every task and length; single short questions are twice as many")
    args = parser.parse_args()
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    torch.set_float32_matmul_precision("high")
    model, tokenizer, settings = load(args.model, device)
    model_type = model.config.model_type
    pool = heldout.pool(tokenizer)

    cells = sorted((n, task) for task, lengths in LENGTHS.items() for n in lengths)  # the slow ones last
    sets = [(task, n, heldout.Questions(pool, task, args.samples, n)) for n, task in cells]
    sets += [(task, None, heldout.Questions(pool, task, 2 * args.samples)) for task in ("lists", "arithmetic1", "arithmetic2")]
    found, others = [], []

    def record(into, task, length, **given):
        into.append({"task": task, "prompt_tokens": length, **given})
        print(json.dumps(into[-1]), f"{time.time() - begun:.0f} s", flush=True)
        results.record(args.results, model_type, "evaluation", {
            "date": time.strftime("%Y-%m-%d", time.gmtime()), "device": torch.cuda.get_device_name() if device.type == "cuda" else device.type,
            "pytorch": torch.__version__, "settings": settings, "temperature": 0,
            "pulsecol": {"group": 32, "eta": 0.3, "refreshes": 8}, "accuracy": found, "other_settings": others})

    methods = {"full": None, **{f"pulsecol {s:.0%}": s for s in SPARSITIES}}
    begun = time.time()
    for task, length, questions in sets:
        for method, sparsity in methods.items():
            record(found, task, length, method=method, **accuracy(model, questions, tokenizer, settings, sparsity))
        if length is None or length in OTHER_LENGTHS:
            record(found, task, length, method="full", start_token=True,
                   **accuracy(model, questions, tokenizer, settings, start_token=True))
    for replaced in OTHER_SETTINGS[model_type]:
        other = {**settings, **replaced}
        for task, length, questions in sets:
            if length in OTHER_LENGTHS:
                for method, sparsity in methods.items():
                    record(others, task, length, **other, method=method, **accuracy(model, questions, tokenizer, other, sparsity))


if __name__ == "__main__":
    main()
