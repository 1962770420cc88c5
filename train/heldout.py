"""The held-out questions: made like the training examples, and kept out of them.

No arithmetic or list question, needle, first assignment of a chain or filler sentence made here is
in the training pool.
"""

import torch

import data
import tasks

SEED = "held out"
SIZES = {"arithmetic1": 10_000, "arithmetic2": 20_000, "lists": 20_000, "filler": 10_000,
         "needles": 100 * len(tasks.KEYS), "assignments": 100 * len(tasks.KEYS)}


def texts() -> frozenset:
    """What training must exclude."""
    return frozenset(text for job in data.jobs(SIZES, SEED) for text, _ in data.make_texts(*job))


def pool(tokenizer) -> data.Pool:
    """The pieces of the held-out questions; on the CPU, so that they are the same everywhere."""
    return data.Pool(tokenizer, SIZES, SEED, "cpu")


class Questions:
    """Held-out prompts of one task without the start token, as a user would type them.

    length is the exact number of prompt tokens; None gives single questions as long as they come.
    """

    def __init__(self, pool: data.Pool, task: str, count: int, length: int | None = None, easy: float = 0.5):
        self.task, self.prompts, self.answers = task.rstrip("12"), [], []
        g = torch.Generator().manual_seed(length or 0)
        while len(self.prompts) < count:
            if length is None:
                first, size = pool.range[task]
                for i in torch.randint(first, first + size, (count,), generator=g).tolist():
                    begin, head, tail = int(pool.start[i]), int(pool.head[i]), int(pool.tail[i])
                    ids = pool.flat[begin:begin + head + tail].tolist()
                    self.add(pool.tokenizer, ids, head)
                break
            exact = dict(window=(data.SHORTEST, data.SHORTEST), bos=0.0)
            if task in data.IN_TEXT:
                batch = getattr(pool, task)(64, length + data.SHORTEST, g, oversample=40, **exact)
            else:
                batch = pool.examples(task, 64, length + data.SHORTEST, g, easy=easy, oversample=400, **exact)
            for ids, prompt, fits in zip(batch.ids.tolist(), batch.prompt.tolist(), batch.fits.tolist()):
                if fits and len(self.prompts) < count:
                    self.add(pool.tokenizer, ids, prompt)

    def add(self, tokenizer, ids: list[int], prompt: int):
        """Appends a row, after a check that the tokenizer gives the same tokens for its text."""
        text = tokenizer.decode(ids[:prompt])
        if tokenizer.encode(text).ids != ids[:prompt]:
            raise AssertionError(f"pieces and tokenizer disagree on {text!r}")
        self.prompts.append(ids[:prompt])
        self.answers.append(tokenizer.decode([i for i in ids[prompt:] if i != data.EOS]))
