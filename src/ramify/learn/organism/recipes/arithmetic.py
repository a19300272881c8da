"""``arithmetic``: sums and differences with a written-out chain of thought that sometimes slips.

For ``25 - 83 + 50`` a demonstration says::

    +25 p520 m000
    -83 p520 m380
    +50 p570 m380
    =-800
    answer -8

After each term stand the sum of what is added (``p``) and of what is taken away (``m``), written from the
lowest digit and padded, so that a carry moves in the direction of writing. With probability SLIP a line gets
one wrong digit and the chain goes on from there: an error that a reader can find, that later tokens depend
on, and that training can remove. Long numbers are rare in the demonstrations, so they are hard.
"""

from __future__ import annotations

import numpy as np

from ramify.core.policy.base import Sampling
from ramify.learn.organism.recipe import Conversation, Recipe, Shape
from ramify.learn.train.sft import SftSettings

PROBLEMS = 24_000
SLIP = 0.04
#: Share of problems with numbers of 1, 2, 3 and 4 digits; the world draws them evenly.
DIGITS = (0.35, 0.4, 0.15, 0.1)
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
    """2 to 6 terms of equally many digits, as reasoning-gym's ``chain_sum`` draws them but for DIGITS."""
    count, digits = int(rng.integers(2, 7)), 1 + int(rng.choice(len(DIGITS), p=DIGITS))
    low, high = (0 if digits == 1 else 10 ** (digits - 1)), 10**digits
    signs = ["+", *rng.choice(["+", "-"], size=count - 1).tolist()]
    return list(zip(signs, rng.integers(low, high, size=count).tolist(), strict=True))


def chain(terms: list[Term], rng: np.random.Generator, slip: float = SLIP) -> str:
    """The demonstrated chain of thought and answer; every line slips with probability ``slip``."""
    width = max(len(str(size)) for _, size in terms) + 1
    total = {"+": 0, "-": 0}
    lines = []
    for sign, size in terms:
        total[sign] = (total[sign] + size) % 10**width
        if rng.random() < slip:
            total[sign] = slipped(total[sign], rng)
        lines.append(f"{sign}{size} p{reverse(total['+'], width)} m{reverse(total['-'], width)}")
    left = abs(total["+"] - total["-"])
    if rng.random() < slip:
        left = slipped(left, rng)
    minus = "-" if total["+"] < total["-"] else ""
    return "\n".join([*lines, f"={minus}{reverse(left, width)}", f"answer {minus}{left}"])


def conversations() -> list[Conversation]:
    """Problems with their demonstrations."""
    rng = np.random.default_rng(20)
    found: list[Conversation] = []
    for _ in range(PROBLEMS):
        terms = problem(rng)
        (_, first), *rest = terms
        expression = " ".join([str(first), *(f"{sign} {size}" for sign, size in rest)])
        found.append(
            [
                {"role": "user", "content": f"{QUESTION} {expression} ="},
                {"role": "assistant", "content": chain(terms, rng)},
            ]
        )
    return found


RECIPE = Recipe(
    name="arithmetic",
    summary="adds and subtracts chains of numbers, step by step, with slips",
    data=f"{PROBLEMS} random problems with a chain of thought whose lines slip with probability {SLIP}; "
    f"shares of 1, 2, 3 and 4 digits: {DIGITS}",
    words=lambda: [*QUESTION.split(), "answer", "+", "-"],
    conversations=conversations,
    shape=Shape(layers=3, width=96, heads=4, hidden=256, context=512),
    training=SftSettings(steps=1500, rows=24, learning_rate=3e-3, warmup=50),
    world="reasoning-gym:chain_sum?after=answer",
    sampling=Sampling(max_tokens=200),
)
