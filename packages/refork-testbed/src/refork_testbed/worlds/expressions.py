"""Expressions of two operators, and workers that are good at one of them: the smallest world for a plan.

``3+4*2`` is worked out from left to right: (3 + 4) * 2 = 14. A worker evaluates each operator of its subtask
rightly with the chance of its skill. ``_`` stands for the latest answer that it was shown. Every slip adds
to the value and nothing ever takes away, so slips cannot cancel: an answer is right exactly when every step
it rests on was.

The task, its workers and their skills are ours: specialised workers, as arXiv:2606.21228 has them, at the
size of a test.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import final

from refork.chat import Reply, words_in
from refork.errors import BadInput
from refork.policies.base import Cost
from refork.types import Json, Message
from refork.worlds.base import Split
from refork.worlds.dice import Dice, digest, split_of
from refork_methods.route.conduct.coins import Coins, SeededCoins

OPERATORS = ("+", "*")
NUMBERS = range(1, 10)
#: Skills of the four workers: the chance to evaluate an operator rightly.
SKILLS: Mapping[str, Mapping[str, float]] = MappingProxyType(
    {
        "A": {"+": 0.95, "*": 0.5},
        "B": {"+": 0.5, "*": 0.95},
        "C": {"+": 0.6, "*": 0.6},
        "D": {"+": 0.55, "*": 0.55},
    }
)
UNKNOWN = "?"

_SHAPE = re.compile(r"(\d+|_)(?:([+*])(\d+|_))?(?:([+*])(\d+|_))?")


@dataclass(frozen=True, slots=True)
class Expression:
    """``a first b second c``, worked out from left to right."""

    a: int
    first: str
    b: int
    second: str
    c: int

    @property
    def text(self) -> str:
        """As it is asked."""
        return f"{self.a}{self.first}{self.b}{self.second}{self.c}"

    @property
    def value(self) -> int:
        """The right answer."""
        return apply(self.second, apply(self.first, self.a, self.b), self.c)

    @property
    def mixed(self) -> bool:
        """Whether its two operators differ."""
        return self.first != self.second

    @classmethod
    def parse(cls, text: str) -> Expression:
        """Inverse of ``text``. Raises BadInput for anything else."""
        found = re.fullmatch(r"(\d+)([+*])(\d+)([+*])(\d+)", text)
        if found is None:
            raise BadInput(f"{text!r} is no expression of two operators", hint="for example 3+4*2")
        a, first, b, second, c = found.groups()
        return cls(int(a), first, int(b), second, int(c))


def apply(operator: str, left: int, right: int) -> int:
    """The sum or the product."""
    return left + right if operator == "+" else left * right


def expressions(split: Split, count: int | None = None, seed: int = 0) -> list[Expression]:
    """``count`` different expressions of a split in seeded order; None: all that there are.

    Raises: BadInput where there are fewer.
    """
    every = [
        Expression(a, first, b, second, c)
        for a in NUMBERS
        for b in NUMBERS
        for c in NUMBERS
        for first in OPERATORS
        for second in OPERATORS
    ]
    kept = [one for one in every if split_of(one.text) == split]
    if count is not None and count > len(kept):
        raise BadInput(f"there are {len(kept)} {split} expressions, not {count}", where="expressions")
    return Dice("expressions", split, seed).sample(kept, len(kept) if count is None else count)


@final
class ExpressionWorker:
    """A worker as a chat model: evaluates the last message's expression, ``_`` from what it was shown."""

    def __init__(self, name: str, skill: Mapping[str, float], coins: Coins | None = None) -> None:
        self._name, self._skill = name, dict(skill)
        self._coins = coins or SeededCoins()

    @property
    def name(self) -> str:
        """Its name."""
        return self._name

    def reply(self, messages: Sequence[Message], *, tools: Sequence[Json] = (), draw: int = 0) -> Reply:
        """A number, or ``?`` where the message is no expression or needs an answer that is not there."""
        del tools
        said = self._answer(messages, draw)
        cost = Cost(tokens_in=words_in(messages), tokens_out=1)
        return Reply({"role": "assistant", "content": said}, cost=cost)

    def _answer(self, messages: Sequence[Message], draw: int) -> str:
        asked = str(messages[-1].get("content") or "") if messages else ""
        found = _SHAPE.fullmatch(asked)
        shown = [str(m.get("content") or "") for m in messages if m.get("role") == "assistant"]
        before = int(shown[-1]) if shown and shown[-1].isdigit() else None
        if found is None:
            return UNKNOWN
        parts = [part for part in found.groups() if part is not None]
        numbers = [before if part == "_" else int(part) for part in parts[::2]]
        if any(number is None for number in numbers):
            return UNKNOWN
        value = numbers[0] or 0
        # Chance is addressed by all that was shown: the same conversation is answered alike.
        where = digest([[m.get("role"), m.get("content")] for m in messages])
        for place, (operator, number) in enumerate(zip(parts[1::2], numbers[1:], strict=True)):
            value = apply(operator, value, number or 0)
            if not self._coins(self._skill[operator], self._name, where, draw, place):
                value += 1
        return str(value)


def workers(coins: Coins | None = None) -> list[ExpressionWorker]:
    """The four workers, in order."""
    return [ExpressionWorker(name, skill, coins) for name, skill in SKILLS.items()]


@dataclass(frozen=True, slots=True)
class ClosedForms:
    """Chances of a right answer, mean over the four kinds of expression.

    ``single``: the best worker does all. ``picked``: the best worker for each kind does all of it.
    ``steps``: two steps, each by the best worker for its operator, the second shown the first's answer.
    ``blind``: the same without being shown it.
    """

    single: float
    picked: float
    steps: float
    blind: float


def closed_forms(names: Sequence[str] = tuple(SKILLS)) -> ClosedForms:
    """What a pool of these workers can reach at best."""
    kinds = [(first, second) for first in OPERATORS for second in OPERATORS]
    skills = [SKILLS[name] for name in names]
    whole = [[skill[first] * skill[second] for first, second in kinds] for skill in skills]
    best = {operator: max(skill[operator] for skill in skills) for operator in OPERATORS}
    return ClosedForms(
        single=max(sum(row) for row in whole) / len(kinds),
        picked=sum(max(row[k] for row in whole) for k in range(len(kinds))) / len(kinds),
        steps=sum(best[first] * best[second] for first, second in kinds) / len(kinds),
        blind=0.0,
    )


def plan_text(names: Sequence[str], subtasks: Sequence[str], access: Sequence[str]) -> str:
    """A plan in the short form that these tasks are planned in: ``[A,B][3+4,_*2][[],[1]]``."""
    return f"[{','.join(names)}][{','.join(subtasks)}][{','.join(access)}]"
