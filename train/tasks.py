"""The texts the small models learn from: tasks whose answers a person can check.

Everything here is plain text made from a random.Random; no tokens, no tensors.

- retrieval: sentences of filler with "magic numbers" hidden among them; the question names one.
- multiquery: the same texts; the question names two to four (RULER's niah_multiquery).
- tracking: filler with chains of assignments hidden in it, "The number of anvil is 52213." and "The
  number of beetle is that of anvil."; the question gives a number and asks for all names that have it
  (RULER's vt). Chains of other numbers are in the way.
- lists: reverse, sort, double or filter a list of numbers below 100.
- arithmetic: one- or two-step word problems with the steps written out, ending in "#### result"
  (the answer format of GSM8K).
"""

import random

KEYS = """acorn almond anvil basket beacon beetle bishop blanket bonnet bramble brook buckle
button cactus camel candle carrot castle cello cherry chisel clover comet compass coral cradle
crayon cricket crow daisy dolphin donkey dragon drum eagle ember falcon feather fiddle flute
fossil fox gander garlic geyser ginger glove goblet goose granite hammer harbor harp hazel
hedge heron ivy jacket jasmine jewel kettle kite ladder lantern lemon lichen lily lizard
magnet mango maple marble meadow melon mirror mitten monkey moss needle nettle nutmeg oak
olive onion orbit orchid otter oyster paddle panther parrot pebble pepper pigeon pine plum
poppy prism puffin quill rabbit radish raven ribbon saddle salmon satchel shovel spruce
stirrup sundial swan thimble thistle tiger trumpet tulip turnip turtle violet walnut whistle
willow wizard zebra""".split()

NAMES = "Ada Ben Cleo Dina Emil Fay Gus Hugo Ines Jon Kira Leo Mona Nils Olga Pip Rosa Sven Tara Yuri".split()
ITEMS = "apples books bottles boxes cards coins marbles pencils shells stamps".split()

ADJECTIVES = """bright broken careful cold dusty faded gentle heavy hidden hollow
little lonely narrow pale patient quiet rusty silent slow small steep sudden tall tired
warm wide wooden""".split()
NOUNS = """baker barge bell boat bridge cat clock cloud crowd dog door farmer ferry garden gate
ghost guard horse house judge key lamp letter map market mill miller nurse painter piano pilot
river road roof sailor school shadow ship singer storm table teacher tower train tree wagon
wall wind window""".split()
PLACES = """attic barn bay cellar church corner field forest garden harbor hill island kitchen
lake library market museum orchard park pier river school square station street tower valley
village yard""".split()
VERBS = """appeared changed disappeared fell leaned moved rested returned shone slept stood
stopped stayed turned waited walked""".split()
FILLER = [
    "The {adjective} {noun} {verb} near the {place}.",
    "A {adjective} {noun} {verb} beside the {noun2}.",
    "Nobody in the {place} saw the {adjective} {noun}.",
    "Every {noun} in the {place} was {adjective} that day.",
    "{name} walked to the {place} with a {adjective} {noun}.",
    "{name} told {name2} about the {noun} and the {noun2}.",
    "When the {noun} {verb}, the {place} became {adjective}.",
    "The road from the {place} to the {place2} is {adjective}.",
    "{name} likes the {adjective} {noun} more than the {noun2}.",
    "It rained over the {place} until the {noun} {verb}.",
    "There is a {noun} behind the {place}, and it is {adjective}.",
    "{name} left the {place} early, but {name2} stayed.",
    "The {noun} and the {noun2} {verb} at the same time.",
    "Page {number} of the book shows a {adjective} {noun}.",
    "It takes {number} minutes to walk to the {place}.",
    "{name} counted {number} steps from the {noun} to the {place}.",
    "The {noun} was built in the year {year}.",
]

OPERATIONS = {
    "reverse": lambda x: x[::-1],
    "sort": sorted,
    "double each number in": lambda x: [2 * v for v in x],
    "keep the even numbers in": lambda x: [v for v in x if v % 2 == 0],
    "keep the odd numbers in": lambda x: [v for v in x if v % 2 == 1],
}

GAIN = ["{n} finds {a} more.", "{n} buys {a} more.", "{m} gives {n} {a} more.", "Then {n} gets {a} more from {m}."]
LOSS = ["{n} loses {a} of them.", "{n} sells {a} of them.", "{n} gives {a} of them to {m}.", "Then {m} takes {a} of them."]
TIMES = ["Then {n} has {a} times as many.", "Soon {n} has {a} times as many."]
LARGEST = 100  # no number in an arithmetic problem is larger


def filler(r: random.Random) -> str:
    """A sentence that says nothing about what is hidden."""
    noun, noun2 = r.sample(NOUNS, 2)
    place, place2 = r.sample(PLACES, 2)
    name, name2 = r.sample(NAMES, 2)
    return r.choice(FILLER).format(
        noun=noun, noun2=noun2, place=place, place2=place2, name=name, name2=name2,
        adjective=r.choice(ADJECTIVES), verb=r.choice(VERBS),
        number=r.randint(2, 400), year=r.randint(1500, 1999),
    )


def needle(key: str, value: int) -> str:
    """The hidden sentence; also the answer to retrieval_question(key)."""
    return f"The magic number for {key} is {value}."


def retrieval_question(key: str) -> str:
    return f"What is the magic number for {key}?"


def multiquery_question(keys: list[str]) -> str:
    return f"What are the magic numbers for {', '.join(keys[:-1])} and {keys[-1]}?"


def multiquery_answer(values: list[int]) -> str:
    """The numbers in the order of the keys in the question."""
    return ", ".join(map(str, values)) + "."


def assignment(name: str, value: int) -> str:
    """The hidden sentence that begins a chain."""
    return f"The number of {name} is {value}."


def link(name: str, other: str) -> str:
    """The hidden sentence that gives name the number of other, which the text names first."""
    return f"The number of {name} is that of {other}."


def tracking_question(value: int) -> str:
    return f"Which names have the number {value}?"


def tracking_answer(names: list[str]) -> str:
    """The names of a chain, from its beginning."""
    return ", ".join(names) + "."


def magic_number(r: random.Random) -> int:
    return r.randint(10000, 99999)


def lists(r: random.Random) -> tuple[str, str]:
    """A question about a list of three to eight numbers, and its answer."""
    name = r.choice(list(OPERATIONS))
    top = 49 if name.startswith("double") else 99
    x = [r.randint(0, top) for _ in range(r.randint(3, 8))]
    y = OPERATIONS[name](x)
    return f"Please {name} the list {' '.join(map(str, x))}.", (" ".join(map(str, y)) or "none") + "."


def arithmetic(r: random.Random, steps: int) -> tuple[str, str]:
    """A word problem of the given number of steps, and its worked answer."""
    n, m = r.sample(NAMES, 2)
    item = r.choice(ITEMS)
    x = r.randint(2, 50)
    told, worked = [f"{n} has {x} {item}."], []
    for _ in range(steps):
        sign = r.choice([s for s, possible in (("+", x <= LARGEST - 2), ("-", x >= 3), ("*", x <= LARGEST // 2)) if possible])
        if sign == "+":
            a, templates = r.randint(2, min(50, LARGEST - x)), GAIN
            y = x + a
        elif sign == "-":
            a, templates = r.randint(2, min(50, x - 1)), LOSS
            y = x - a
        else:
            a, templates = r.randint(2, min(5, LARGEST // x)), TIMES
            y = x * a
        told.append(r.choice(templates).format(n=n, m=m, a=a))
        worked.append(f"{x} {sign} {a} = {y}.")
        x = y
    return f"{' '.join(told)} How many {item} does {n} have now?", f"{' '.join(worked)} #### {x}"


def correct(task: str, output: str, answer: str) -> bool:
    """Whether a generated text answers the question.

    Answers must match to the letter, except in arithmetic, which is judged, as GSM8K is, by the
    number after "####".
    """
    if task == "arithmetic":
        return "####" in output and output.split("####")[-1].strip() == answer.split("####")[-1].strip()
    return output.strip() == answer.strip()
