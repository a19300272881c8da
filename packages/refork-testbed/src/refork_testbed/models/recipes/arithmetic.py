"""``arithmetic``: sums and differences with a written-out chain of thought that sometimes slips.

For ``5 - 8 + 7`` a demonstration says::

    +5 p50 m00
    -8 p50 m80
    +7 p21 m80
    p 21-80=40
    answer 4

After each term stand the sum of what is added (``p``) and of what is taken away (``m``), written from the
lowest digit and padded, so that a carry moves in the direction of writing. Then the smaller sum is taken from
the larger, whose letter comes first. With probability SLIP a line gets one wrong digit and the chain goes on
from there: an error that a reader can find, that later tokens depend on, and that training can remove.
"""

from __future__ import annotations

import numpy as np

from refork.policies.base import Sampling
from refork.worlds.dice import digest, split_of
from refork_methods.train.sft import SftSettings
from refork_testbed.models.recipe import Conversation, Recipe, Shape

PROBLEMS = 40_000
SLIP = 0.05
TERMS, DIGITS = 5, 1
QUESTION = "State the final answer to the following arithmetic problem:"

#: A term with its sign, "+" or "-".
Term = tuple[str, int]


def reverse(number: int, width: int) -> str:
    """The digits of a number from the lowest, padded with zeros."""
    return f"{number:0{width}d}"[::-1]


def slipped(number: int, rng: np.random.Generator) -> int:
    """The number with one of its digits replaced by another."""
    place = 10 ** int(rng.integers(len(str(number))))
    digit = number // place % 10
    other = (digit + int(rng.integers(1, 10))) % 10
    return int(number + (other - digit) * place)


def problem(rng: np.random.Generator) -> list[Term]:
    """2 to TERMS terms of equally many digits (1 to DIGITS), as reasoning-gym's ``chain_sum`` draws them."""
    count, digits = int(rng.integers(2, TERMS + 1)), int(rng.integers(1, DIGITS + 1))
    low, high = (0 if digits == 1 else 10 ** (digits - 1)), 10**digits
    signs = ["+", *rng.choice(["+", "-"], size=count - 1).tolist()]
    return list(zip(signs, rng.integers(low, high, size=count).tolist(), strict=True))


def chain(terms: list[Term], rng: np.random.Generator, slip: float = SLIP) -> str:
    """The demonstrated chain of thought and answer; every line slips with probability ``slip``."""
    width = max(len(str(size)) for _, size in terms) + 1
    total = {"+": 0, "-": 0}
    lines = []
    for sign, size in terms:
        # After a slip a sum may outgrow its digits, of which every line writes equally many.
        total[sign] = (total[sign] + size) % 10**width
        if rng.random() < slip:
            total[sign] = slipped(total[sign], rng)
        lines.append(f"{sign}{size} p{reverse(total['+'], width)} m{reverse(total['-'], width)}")
    large, small = max(total.values()), min(total.values())
    left = large - small
    if rng.random() < slip:
        left = slipped(left, rng)
    negative = total["-"] > total["+"]
    last = f"{'m' if negative else 'p'} {'-'.join(reverse(n, width) for n in (large, small))}"
    return "\n".join([*lines, f"{last}={reverse(left, width)}", f"answer {'-' if negative else ''}{left}"])


def conversations() -> list[Conversation]:
    """Problems with their demonstrations; questions that the world holds out are left out."""
    rng = np.random.default_rng(20)
    found: list[Conversation] = []
    while len(found) < PROBLEMS:
        terms = problem(rng)
        (_, first), *rest = terms
        expression = " ".join([str(first), *(f"{sign} {size}" for sign, size in rest)])
        question = f"{QUESTION} {expression} ="
        if split_of(digest("chain_sum", question)) == "train":
            said = chain(terms, rng)
            found.append([{"role": "user", "content": question}, {"role": "assistant", "content": said}])
    return found


RECIPE = Recipe(
    name="arithmetic",
    summary="adds and subtracts chains of numbers, step by step, with slips",
    data=f"{PROBLEMS} random problems of up to {TERMS} numbers of {DIGITS} digit, none of them held out, "
    f"with a chain of thought whose lines slip with probability {SLIP}",
    words=lambda: [*QUESTION.split(), "answer", "+", "-"],
    conversations=conversations,
    shape=Shape(layers=3, width=96, heads=2, hidden=256, context=256),
    training=SftSettings(steps=800, rows=48, learning_rate=3e-3, warmup=50),
    world=f"reasoning-gym:chain_sum?after=answer&max_terms={TERMS}&max_digits={DIGITS}",
    sampling=Sampling(max_tokens=96),
)
