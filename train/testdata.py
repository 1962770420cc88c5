"""Writes what the Go package internal/tinymodel holds besides the models themselves, from held-out questions.

    python train/testdata.py --model internal/tinymodel/llada
    python train/testdata.py --model internal/tinymodel/dream

The questions depend on the tokenizer alone, which is the same for both models.

- question.txt, answer.txt: the default question of `pulsecol generate`, the first retrieval
  question of 768 tokens. Nothing is chosen by whether the model answers it.
- testdata/eval.jsonl: some prompts with answers for every task.
- testdata/expected.json, expected_dream.json: what the model computes for three prompts, and for the
  default question with dense attention and with PulseCol, in float32 on the CPU.
"""

import argparse
import json
import pathlib

import torch

import data
import heldout
import sampler
from evaluate import load

QUESTION_TOKENS = 768
EVAL = [  # task, prompt tokens (None: a single question of any length), prompts
    ("retrieval", 256, 10), ("retrieval", 512, 10), ("retrieval", 1024, 10),
    ("lists", None, 30), ("arithmetic1", None, 15), ("arithmetic2", None, 15),
    ("lists", 300, 10), ("lists", 600, 10), ("lists", 1000, 10),
    ("arithmetic", 300, 10), ("arithmetic", 600, 10), ("arithmetic", 1000, 10),
    ("multiquery", 512, 10), ("multiquery", 1024, 5), ("tracking", 512, 10), ("tracking", 1024, 5), ("tracking", 4000, 2),
]
TOP = 5
EXPECTED = {"llada": "expected.json", "dream": "expected_dream.json"}
PULSECOL = {"sparsity": 0.8, "group": 32, "eta": 0.3, "refreshes": 8}


@torch.no_grad()
def expected(model, tokenizer, task: str, prompt: list[int], settings: dict) -> dict:
    """Ids, the best logits of the first forward pass for every masked position, and the answer."""
    length = sampler.response_length(settings)
    masked = torch.tensor([prompt + [data.MASK] * length])
    best = model(masked, length)[0].topk(TOP)
    return {
        "task": task, "prompt": tokenizer.decode(prompt), "prompt_ids": prompt,
        "top_ids": best.indices.tolist(), "top_logits": [[round(x, 5) for x in row] for row in best.values.tolist()],
        **generated(model, tokenizer, prompt, settings),
    }


def generated(model, tokenizer, prompt: list[int], settings: dict, sparse=None) -> dict:
    ids = sampler.generate(model, torch.tensor([prompt]), settings, sparse)[0].tolist()
    return {"output_ids": ids, "text": tokenizer.decode([t for t in ids if t != data.EOS])}


def main():
    parser = argparse.ArgumentParser(description="Writes the data of internal/tinymodel. See the top of this file.")
    parser.add_argument("--model", type=pathlib.Path, default=pathlib.Path("internal/tinymodel/llada"))
    parser.add_argument("--out", type=pathlib.Path, default=pathlib.Path("internal/tinymodel"))
    args = parser.parse_args()
    model, tokenizer, settings = load(args.model, "cpu")
    pool = heldout.pool(tokenizer)
    folder = args.out / "testdata"
    folder.mkdir(parents=True, exist_ok=True)

    question = heldout.Questions(pool, "retrieval", 1, QUESTION_TOKENS)
    (args.out / "question.txt").write_text(tokenizer.decode(question.prompts[0]))
    (args.out / "answer.txt").write_text(question.answers[0].strip())

    with (folder / "eval.jsonl").open("w") as out:
        for task, length, count in EVAL:
            q = heldout.Questions(pool, task, count, length)
            name = q.task + ("-few-shot" if length and task not in data.IN_TEXT else "")
            for prompt, answer in zip(q.prompts, q.answers):
                out.write(json.dumps({"task": name, "tokens": len(prompt), "prompt": tokenizer.decode(prompt), "answer": answer.strip()}) + "\n")

    cases = []
    for task, length in (("retrieval", 256), ("lists", None), ("arithmetic2", None)):
        q = heldout.Questions(pool, task, 1, length)
        cases.append(expected(model, tokenizer, q.task, q.prompts[0], settings))
    prompt = question.prompts[0]
    sparse = sampler.PulseCol(settings["steps"], **PULSECOL)
    (folder / EXPECTED[model.config.model_type]).write_text(json.dumps({
        "settings": settings, "mask_id": data.MASK, "cases": cases,
        "question": {"prompt_ids": prompt, **generated(model, tokenizer, prompt, settings)},
        "question_pulsecol": {**PULSECOL, **generated(model, tokenizer, prompt, settings, sparse)},
    }, indent=1) + "\n")


if __name__ == "__main__":
    main()
