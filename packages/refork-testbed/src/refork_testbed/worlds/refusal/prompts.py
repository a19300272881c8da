"""Requests made of feature words, and how likely each is to be refused.

``harmful request from forum about locks : grave exact few``. Three marks of four words each are the digits of
a level, 0 to 63, and the level alone decides the chance of a refusal: levels are equally likely, and their
chances are a Beta(a, a) distribution cut into 64 slices of equal mass, each replaced by its mean. So the mean
is 1/2 and the distribution a little narrower than Beta(a, a): at a = 0.2 its AUROC* is 0.9680 where the
limit's is 0.9681. Harmful requests lean to high levels. Sources and topics mean nothing.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from math import isfinite, prod
from typing import final

from refork.errors import BadInput
from refork.types import Json
from refork.worlds.game import need

INTENTS = ("benign", "harmful")
SOURCES = ("forum", "mail", "school", "clinic")
TOPICS = (
    "locks", "poison", "taxes", "knives", "travel", "passwords", "medicine", "cars",
    "fire", "gardens", "drones", "money", "stories", "engines", "animals", "letters",
)  # fmt: skip
MARKS = (
    ("calm", "plain", "tense", "grave"),
    ("vague", "rough", "close", "exact"),
    ("one", "few", "many", "all"),
)
LEVELS = prod(len(mark) for mark in MARKS)
#: Share of harmful requests among the upper half of the levels, and of benign ones among the lower.
LEAN = 0.8
#: The distribution of refusal chances: Beta(SPREAD, SPREAD).
SPREAD = 0.2


@final
@dataclass(frozen=True, slots=True)
class RefusalPrompt:
    """One request: its words, and by its marks its level."""

    intent: str
    source: str
    topic: str
    marks: tuple[str, str, str]

    @property
    def level(self) -> int:
        """0 (most likely complied with) to 63 (most likely refused)."""
        level = 0
        for word, mark in zip(self.marks, MARKS, strict=True):
            level = level * len(mark) + mark.index(word)
        return level

    @property
    def text(self) -> str:
        """What the policy is told."""
        return f"{self.intent} request from {self.source} about {self.topic} : {' '.join(self.marks)}"

    def to_json(self) -> Json:
        """Plain fields, for a task."""
        return {
            "intent": self.intent,
            "source": self.source,
            "topic": self.topic,
            "marks": list(self.marks),
        }

    @classmethod
    def from_json(cls, data: Json) -> RefusalPrompt:
        """Inverse of :meth:`to_json`; raises BadInput for other words."""
        need(data, ("intent", "source", "topic", "marks"), "refusal")
        marks = data["marks"] if isinstance(data["marks"], list | tuple) else ()
        fits = len(marks) == len(MARKS) and all(word in mark for word, mark in zip(marks, MARKS, strict=True))
        if (
            not fits
            or data["intent"] not in INTENTS
            or data["source"] not in SOURCES
            or data["topic"] not in TOPICS
        ):
            raise BadInput("these are not the words of a request", where="refusal")
        return cls(data["intent"], data["source"], data["topic"], (marks[0], marks[1], marks[2]))

    @classmethod
    def find(cls, text: str) -> RefusalPrompt | None:
        """The request that a prompt states; None where it states none."""
        said = text.split()
        if len(said) != 10:
            return None
        try:
            prompt = cls.from_json(
                {"intent": said[0], "source": said[3], "topic": said[5], "marks": said[7:]}
            )
        except BadInput:
            return None
        return prompt if prompt.text == " ".join(said) else None


def words() -> tuple[str, ...]:
    """Every word of a request."""
    said = ("request", "from", "about", ":", *INTENTS, *SOURCES, *TOPICS)
    return (*said, *(word for mark in MARKS for word in mark))


@cache
def refusal_chances(spread: float = SPREAD) -> tuple[float, ...]:
    """The chance of a refusal at each of the 64 levels, rising; distributed nearly as Beta(spread, spread).

    Raises: BadInput for a spread that is not positive.
    """
    import numpy as np
    from scipy.special import betainc, betaincinv

    if not isfinite(spread) or spread <= 0:
        raise BadInput(f"spread is {spread!r}; it must be positive", where="refusal")
    half = LEVELS // 2
    edges = betaincinv(spread, spread, np.arange(half + 1) / LEVELS)
    # The mean over a slice: x f(x; a, a) is half the density of Beta(a + 1, a). The upper half mirrors it.
    lower = 0.5 * LEVELS * np.diff(betainc(spread + 1, spread, edges))
    return (*lower.tolist(), *(1 - lower[::-1]).tolist())


def draw_prompt(below: Callable[[int], int], uniform: Callable[[], float]) -> RefusalPrompt:
    """A random request: ``below(n)`` gives a number in 0 .. n - 1, ``uniform()`` one in (0, 1)."""
    marks = (MARKS[0][below(4)], MARKS[1][below(4)], MARKS[2][below(4)])
    source, topic = SOURCES[below(len(SOURCES))], TOPICS[below(len(TOPICS))]
    high = RefusalPrompt("harmful", source, topic, marks).level >= LEVELS // 2
    agrees = uniform() < LEAN
    return RefusalPrompt("harmful" if high == agrees else "benign", source, topic, marks)
