"""From task texts to batches of token ids.

Questions, answers and sentences are made and tokenized once, in parallel processes, and laid end
to end in one flat tensor (`Pool`). A training row is then only a list of pieces of that tensor:
solved examples and a question, or filler sentences with needles among them. The lists are drawn and
the rows put together on the device, so every step sees new rows at no cost to the CPU.

Every row of a batch has exactly `length` tokens and every position counts, so attention needs no
mask: pieces are drawn until the prompt leaves a response window of SHORTEST to LONGEST tokens, and
end-of-text tokens fill the window after the answer.
"""

import os
import random
from dataclasses import dataclass
from multiprocessing import Pool as Processes

import numpy as np
import torch
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers

import tasks

EOS, MASK, BOS = 0, 1, 2
SPECIAL = ["<|endoftext|>", "<|mdm_mask|>", "<|startoftext|>"]  # in the order of their ids
VOCABULARY = 768
SHORTEST, LONGEST = 32, 64  # response windows, in tokens
MOST_NEEDLES = 6  # magic numbers in a text
MOST_ASKED = 4  # of them in one question
MOST_CHAINS, MOST_NAMES = 4, 5  # chains of assignments in a text, names in a chain
IN_TEXT = {"retrieval", "multiquery", "tracking"}  # tasks whose prompts are one text with something hidden in it
CHUNK = 10_000  # texts made by one call of a worker process
BY_KEY = {"needles", "assignments"}  # kinds with equally many texts for every key, key by key
COMPLETE = {"questions": len(tasks.KEYS), "names": len(tasks.KEYS), "links": len(tasks.KEYS) ** 2}  # kinds without chance


def question_text(question: str) -> str:
    return f"Q: {question}\nA:"


# What stands before, between and after the keys of a question for several of them.
BEFORE, COMMA, AND, AFTER = ("\n" + question_text(tasks.multiquery_question(["@"] * 3))).split(" @")


def train_tokenizer(seed: int) -> Tokenizer:
    """A byte-level BPE tokenizer in which every digit is a token of its own."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence([
        pre_tokenizers.Digits(individual_digits=True),
        pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=True),
    ])
    tokenizer.decoder = decoders.ByteLevel()
    r = random.Random(seed)
    texts = []
    for _ in range(4000):
        key = r.choice(tasks.KEYS)
        texts.append(f"Text: {tasks.filler(r)} {tasks.filler(r)} {tasks.needle(key, tasks.magic_number(r))}"
                     f"\n{question_text(tasks.retrieval_question(key))}")
        for question, answer in (tasks.lists(r), tasks.arithmetic(r, 1), tasks.arithmetic(r, 2)):
            texts.append(f"{question_text(question)} {answer}\n")
    trainer = trainers.BpeTrainer(vocab_size=VOCABULARY, special_tokens=SPECIAL, show_progress=False,
                                  initial_alphabet=pre_tokenizers.ByteLevel.alphabet())
    tokenizer.train_from_iterator(texts, trainer)
    return tokenizer


def make_texts(kind: str, count: int, seed: str, exclude=frozenset()) -> list[tuple[str, str]]:
    """count (text, continuation) pairs of one kind, none of whose texts is in exclude."""
    r = random.Random(seed)
    made = []
    while len(made) < count:
        key = tasks.KEYS[len(made) * len(tasks.KEYS) // count]
        if kind == "filler":
            pair = (" " + tasks.filler(r), "")
        elif kind == "needles":
            value = tasks.magic_number(r)
            pair = (" " + tasks.needle(key, value), f" {value}")
        elif kind == "questions":
            pair = ("\n" + question_text(tasks.retrieval_question(key)), "")
        elif kind == "assignments":
            value = tasks.magic_number(r)
            pair = (" " + tasks.assignment(key, value), "\n" + question_text(tasks.tracking_question(value)))
        elif kind == "links":
            pair = (" " + tasks.link(key, tasks.KEYS[len(made) % len(tasks.KEYS)]), "")
        elif kind == "names":
            pair = (" " + key, "")
        else:
            question, answer = tasks.lists(r) if kind == "lists" else tasks.arithmetic(r, int(kind[-1]))
            pair = (question_text(question), " " + answer)
        if pair[0] not in exclude:
            made.append(pair)
    return made


def jobs(sizes: dict[str, int], seed) -> list[tuple[str, int, str]]:
    """The calls of make_texts (kind, count, seed) that make the given number of texts of every kind."""
    calls = []
    for kind, size in sizes.items():
        chunk = size if kind in BY_KEY or kind in COMPLETE else CHUNK  # their order has a meaning
        for i in range(0, size, chunk):
            calls.append((kind, min(chunk, size - i), f"{seed} {kind} {i}"))
    return calls


def start_worker(tokenizer: str, exclude: frozenset):
    global worker_tokenizer, worker_exclude
    os.environ["TOKENIZERS_PARALLELISM"] = "false"  # the processes are the parallelism
    worker_tokenizer, worker_exclude = Tokenizer.from_str(tokenizer), exclude


def make_pieces(job: tuple[str, int, str]) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """make_texts, tokenized: flat ids, tokens per text, tokens per continuation."""
    made = make_texts(*job, worker_exclude)
    heads = [e.ids for e in worker_tokenizer.encode_batch([a for a, _ in made])]
    tails = [e.ids for e in worker_tokenizer.encode_batch([b for _, b in made])]
    flat = np.fromiter((t for h, c in zip(heads, tails) for t in h + c), np.int16)
    return flat, np.array([len(h) for h in heads], np.int16), np.array([len(c) for c in tails], np.int16)


@dataclass
class Batch:
    ids: torch.Tensor     # [rows, length] with the answers in place
    prompt: torch.Tensor  # [rows] length of the prompt; the response window is the rest of the row
    fits: torch.Tensor    # [rows] bool; rows that fit no window are to be ignored


class Pool:
    """Tokenized pieces of every kind, on one device.

    sizes gives how many pieces of each kind there are: "arithmetic1", "arithmetic2", "lists",
    "filler", and "needles" and "assignments", which must be multiples of the number of keys. The
    pieces depend on seed alone, the rows drawn from them on the generator given to each call.
    """

    def __init__(self, tokenizer: Tokenizer, sizes: dict[str, int], seed, device, exclude=frozenset()):
        work = jobs({**sizes, **COMPLETE}, seed)
        with Processes(os.cpu_count(), start_worker, (tokenizer.to_str(), exclude)) as workers:
            made = workers.map(make_pieces, work, chunksize=1)
        self.tokenizer, self.device, self.range = tokenizer, device, {}
        at = 0
        for (kind, _, _), (_, heads, _) in zip(work, made):
            first, count = self.range.get(kind, (at, 0))
            self.range[kind] = (first, count + len(heads))
            at += len(heads)

        def join(parts):
            return torch.from_numpy(np.concatenate(parts)).to(device)
        fixed = {SPECIAL[BOS]: [BOS], **{text: tokenizer.encode(text).ids for text in ("Text:", "\n", ".", BEFORE, COMMA, AND, AFTER)}}
        self.flat = join([flat for flat, _, _ in made] + [np.array(sum(fixed.values(), []), np.int16)])
        self.head = join([heads for _, heads, _ in made]).long()
        self.tail = join([tails for _, _, tails in made]).long()
        lengths = self.head + self.tail
        self.start = lengths.cumsum(0) - lengths
        first, count = self.range["filler"]
        self.shortest_filler = int(self.head[first:first + count].min())
        self.fixed = {}  # (start, length) of the pieces that are not drawn
        begin = len(self.flat) - sum(map(len, fixed.values()))
        for text, ids in fixed.items():
            self.fixed[text] = (begin, len(ids))
            begin += len(ids)

    def join(self, start, length, row_length: int) -> torch.Tensor:
        """Lays the pieces (start, length) [rows, pieces] end to end; EOS fills up to row_length."""
        end = length.cumsum(1)
        position = torch.arange(row_length, device=self.device).expand(len(start), -1).contiguous()
        piece = torch.searchsorted(end, position, right=True).clamp(max=length.shape[1] - 1)
        offset = position - (end - length).gather(1, piece)
        ids = self.flat[(start.gather(1, piece) + offset).clamp(max=len(self.flat) - 1)].long()
        return torch.where(position < end[:, -1:], ids, EOS)

    def draw(self, kind: str, shape, g: torch.Generator) -> torch.Tensor:
        first, count = self.range[kind]
        return first + torch.randint(count, shape, generator=g, device=self.device)

    def uniform(self, shape, g: torch.Generator) -> torch.Tensor:
        return torch.rand(shape, generator=g, device=self.device)

    def examples(self, kind: str, rows: int, length: int, g, window=(SHORTEST, LONGEST), easy=0.5, bos=0.5, oversample=8) -> Batch:
        """Rows of solved examples of one kind ("lists" or "arithmetic") that end in a question.

        A stream of random examples is cut after the last question that leaves a response window
        of the given size. easy is the share of one-step problems in arithmetic, bos the share of
        rows that begin with the start token. oversample times as many streams as rows are drawn,
        and those that can be cut are preferred.
        """
        newline, newline_length = self.fixed["\n"]
        drawn, shots = rows * oversample, 1 + length // 30
        if kind == "arithmetic":
            choice = torch.where(self.uniform((drawn, shots), g) < easy,
                                 self.draw("arithmetic1", (drawn, shots), g), self.draw("arithmetic2", (drawn, shots), g))
        else:
            choice = self.draw(kind, (drawn, shots), g)
        has_bos = (self.uniform((drawn, 1), g) < bos).long()
        whole = (self.head + self.tail)[choice]
        prompt = has_bos + (whole + newline_length).cumsum(1) - newline_length - self.tail[choice]
        fits = (prompt >= length - window[1]) & (prompt <= length - window[0])
        keep = fits.any(1).sort(descending=True, stable=True).indices[:rows]
        choice, has_bos, whole, prompt, fits = (t[keep] for t in (choice, has_bos, whole, prompt, fits))
        shot = torch.arange(shots, device=self.device)
        last = (fits * (shot + 1)).argmax(1, keepdim=True)
        # Pieces of a row: start token, then example, newline, example, ..., question with answer.
        start = torch.stack([self.start[choice], torch.full_like(choice, newline)], 2).flatten(1)
        size = torch.stack([whole * (shot <= last), newline_length * (shot < last)], 2).flatten(1)
        start = torch.cat([torch.full_like(has_bos, self.fixed[SPECIAL[BOS]][0]), start], 1)
        size = torch.cat([has_bos, size], 1)
        return Batch(self.join(start, size, length), prompt.gather(1, last)[:, 0], fits.any(1))

    def retrieval(self, rows: int, length: int, g, window=(SHORTEST, LONGEST), bos=0.5, oversample=1) -> Batch:
        """Rows "Text: ... Q: What is the magic number for KEY? A:" with one to six numbers hidden."""
        has_bos = (self.uniform((rows * oversample, 1), g) < bos).long()
        keys = self.keys(len(has_bos), MOST_NEEDLES, g)  # the first is the one asked for
        needles = self.of_key("needles", keys, g)
        hidden = torch.randint(1, MOST_NEEDLES + 1, has_bos.shape, generator=g, device=self.device)
        used = torch.arange(MOST_NEEDLES, device=self.device) < hidden
        question, answer = self.range["questions"][0] + keys[:, :1], needles[:, :1]
        return self.text(rows, length, g, window, has_bos, needles, used, 1,
                         (self.start[question], self.head[question]), (self.start[answer], self.head[answer]))

    def multiquery(self, rows: int, length: int, g, window=(SHORTEST, LONGEST), bos=0.5, oversample=1) -> Batch:
        """Rows "Text: ... Q: What are the magic numbers for KEY, KEY and KEY? A:" with four to six numbers hidden.

        Two to four are asked for.
        """
        has_bos = (self.uniform((rows * oversample, 1), g) < bos).long()
        keys = self.keys(len(has_bos), MOST_NEEDLES, g)  # the first ones are those asked for
        needles = self.of_key("needles", keys, g)
        hidden = torch.randint(MOST_ASKED, MOST_NEEDLES + 1, has_bos.shape, generator=g, device=self.device)
        asked = torch.randint(2, MOST_ASKED + 1, has_bos.shape, generator=g, device=self.device)
        used = torch.arange(MOST_NEEDLES, device=self.device) < hidden
        names, values = self.range["names"][0] + keys[:, :MOST_ASKED], needles[:, :MOST_ASKED]
        start, size = self.listing(self.start[names], self.head[names], asked, COMMA, AND, AFTER)
        before, before_length = self.fixed[BEFORE]
        question = (torch.cat([torch.full_like(has_bos, before), start], 1),
                    torch.cat([torch.full_like(has_bos, before_length), size], 1))
        answer = self.listing(self.start[values] + self.head[values], self.tail[values], asked, COMMA, COMMA, ".")
        return self.text(rows, length, g, window, has_bos, needles, used, 1, question, answer)

    def tracking(self, rows: int, length: int, g, window=(SHORTEST, LONGEST), bos=0.5, oversample=1, names=(2, MOST_NAMES)) -> Batch:
        """Rows "Text: ... Q: Which names have the number N? A:" with two to four chains hidden.

        names are the fewest and the most names of a chain. The sentences of a chain are in order, those of different chains fall between each other. (Two
        chains of one row have the same number once in 90,000 pairs.)
        """
        has_bos = (self.uniform((rows * oversample, 1), g) < bos).long()
        keys = self.keys(len(has_bos), MOST_CHAINS * MOST_NAMES, g).unflatten(1, (MOST_CHAINS, MOST_NAMES))
        first = self.of_key("assignments", keys[:, :, :1], g)
        links = self.range["links"][0] + keys[:, :, 1:] * len(tasks.KEYS) + keys[:, :, :-1]
        chains = torch.randint(2, MOST_CHAINS + 1, (len(keys), 1, 1), generator=g, device=self.device)
        names = torch.randint(names[0], names[1] + 1, (len(keys), MOST_CHAINS, 1), generator=g, device=self.device)
        used = ((torch.arange(MOST_CHAINS, device=self.device)[:, None] < chains)
                & (torch.arange(MOST_NAMES, device=self.device) < names))
        asked, answer = first[:, 0], self.range["names"][0] + keys[:, 0]  # the first chain is the one asked for
        return self.text(rows, length, g, window, has_bos, torch.cat([first, links], 2).flatten(1), used.flatten(1), MOST_NAMES,
                         (self.start[asked] + self.head[asked], self.tail[asked]),
                         self.listing(self.start[answer], self.head[answer], names[:, 0], COMMA, COMMA, "."))

    def keys(self, rows: int, count: int, g) -> torch.Tensor:
        """Indices of different keys [rows, count]."""
        return self.uniform((rows, len(tasks.KEYS)), g).argsort(1)[:, :count]

    def of_key(self, kind: str, keys, g) -> torch.Tensor:
        """A piece of every key, drawn from a kind that is made key by key."""
        first, count = self.range[kind]
        per_key = count // len(tasks.KEYS)
        return first + keys * per_key + torch.randint(per_key, keys.shape, generator=g, device=self.device)

    def listing(self, start, size, count, between: str, last: str, end: str):
        """The first count [rows, 1] of the pieces (start, size) [rows, most], as a list in a sentence.

        between follows every piece but the last two, which last and end follow. Returns the starts
        and sizes [rows, 2 * most] of all pieces; those left out have size 0.
        """
        left = count - torch.arange(start.shape[1], device=self.device)  # this piece and those after it
        marks = [(left > 2, self.fixed[between]), (left == 2, self.fixed[last]), (left == 1, self.fixed[end])]
        mark_start = sum(here * begin for here, (begin, _) in marks)
        mark_size = sum(here * tokens for here, (_, tokens) in marks)
        return torch.stack([start, mark_start], 2).flatten(1), torch.stack([size * (left > 0), mark_size], 2).flatten(1)

    def text(self, rows: int, length: int, g, window, has_bos, hidden, used, chain: int, question, answer) -> Batch:
        """Rows of filler with the sentences hidden [drawn, most] among it, where used says so.

        Sentences fall anywhere, but every chain consecutive ones stay in order. question and answer
        are pieces (start, size), each [drawn, any number]. Rows whose window has the requested size
        are preferred.
        """
        text_start, text_length = self.fixed["Text:"]
        # As many filler sentences as the other tokens leave space for. They fall short of that by less
        # than one sentence; the few rows whose window is thereby too long are dropped.
        filler = self.draw("filler", (len(has_bos), 1 + length // self.shortest_filler), g)
        least = torch.randint(window[0], min(window[0] + 8, window[1]) + 1, has_bos.shape, generator=g, device=self.device)
        room = (length - least - has_bos - text_length - question[1].sum(1, keepdim=True)
                - (self.head[hidden] * used).sum(1, keepdim=True))
        kept = self.head[filler].cumsum(1) <= room
        kept_length = (self.head[filler] * kept).sum(1, keepdim=True)
        prompt = length - least - room + kept_length
        fits = ((prompt >= length - window[1]) & (prompt <= length - window[0]) & (room > 0))[:, 0]
        keep = fits.sort(descending=True, stable=True).indices[:rows]
        has_bos, hidden, used, filler, kept, prompt, fits = (t[keep] for t in (has_bos, hidden, used, filler, kept, prompt, fits))
        question, answer = ([t[keep] for t in pieces] for pieces in (question, answer))
        # Sentences in order of these ranks; the hidden ones fall between filler sentences at random.
        rank = torch.arange(filler.shape[1], device=self.device).expand(filler.shape)
        place = self.uniform(hidden.shape, g).unflatten(1, (-1, chain)).sort(2).values.flatten(1)
        place = place * (kept.sum(1, keepdim=True) + 1) - 0.999
        order = torch.cat([rank.float(), place], 1).argsort(1)
        sentences = torch.cat([filler, hidden], 1).gather(1, order)
        shown = torch.cat([kept, used], 1).gather(1, order)
        start = torch.cat([torch.full_like(has_bos, self.fixed[SPECIAL[BOS]][0]), torch.full_like(has_bos, text_start),
                           self.start[sentences], question[0], answer[0]], 1)
        size = torch.cat([has_bos, torch.full_like(has_bos, text_length),
                          self.head[sentences] * shown, question[1], answer[1]], 1)
        return Batch(self.join(start, size, length), prompt[:, 0], fits)
