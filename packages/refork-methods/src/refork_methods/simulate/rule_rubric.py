"""The five grades by comparing texts: deterministic, free, and no model. The shipped fake of a rubric judge.

It knows nothing of meaning: a right answer in other words gets low grades. It is for tests, for worlds whose
answers are to be met to the letter, and to see how much of a judge's grade mere overlap explains.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Sequence
from difflib import SequenceMatcher
from typing import final

from refork.types import Json
from refork_methods.simulate.extract import matches
from refork_methods.simulate.reward import Rubric, same_shape
from refork_methods.simulate.target import Target

_WORD = re.compile(r"\w+|[^\w\s]")
_NAME = re.compile(r"[\w./-]*[\d./_-][\w./-]*|\w{4,}")


def token_f1(one: str, other: str) -> float:
    """F1 of the words and signs of two texts as multisets; 1 where both have none."""
    mine, theirs = Counter(_WORD.findall(one)), Counter(_WORD.findall(other))
    if not mine or not theirs:
        return float(mine == theirs)
    shared = sum((mine & theirs).values())
    return 2 * shared / (mine.total() + theirs.total())


def _grade(share: float) -> int:
    """1 to 5 for a share in [0, 1]; 5 for the whole only."""
    return 5 if share >= 1 else 1 + min(3, int(4 * share))


def _form(prediction: str, truth: str) -> float:
    """How alike two texts are laid out: JSON by keys and kinds, other text by its lines."""
    try:
        wanted = json.loads(truth)
    except (ValueError, RecursionError):
        wanted = None
    if isinstance(wanted, (dict, list)):
        try:
            return 1.0 if same_shape(json.loads(prediction), wanted) else 0.5
        except (ValueError, RecursionError):
            return 0.0
    mine, theirs = len(prediction.rstrip().splitlines()), len(truth.rstrip().splitlines())
    return 1.0 if mine == theirs else min(mine, theirs) / max(mine, theirs)


def _supported(prediction: str, target: Target) -> float:
    """Share of the names and numbers in a prediction that history, action or truth hold as well."""
    named = _NAME.findall(prediction)
    if not named:
        return 1.0
    told = [target.brief.text, target.action, target.truth, *(text for turn in target.seen for text in turn)]
    known = set(_NAME.findall("\n".join(told)))
    return sum(name in known for name in named) / len(named)


def _like(prediction: str, truth: str) -> float:
    """How alike two texts are in length."""
    mine, theirs = len(prediction.strip()), len(truth.strip())
    return 1.0 if mine == theirs else min(mine, theirs) / max(mine, theirs)


def rule_rubric(prediction: str, target: Target) -> Rubric:
    """Five grades by comparison with the truth; all 5 where it is met to the letter.

    ``format``: lines, or JSON's keys and kinds; ``factuality``: F1 of words; ``consistency``: names and
    numbers that occur in history, action or truth; ``realism``: length; ``quality``: matching blocks.
    """
    truth = target.truth
    if matches(prediction, truth):
        return Rubric(format=5, factuality=5, consistency=5, realism=5, quality=5)
    blocks = SequenceMatcher(None, _WORD.findall(prediction), _WORD.findall(truth), autojunk=False).ratio()
    return Rubric(
        format=_grade(_form(prediction, truth)),
        factuality=_grade(token_f1(prediction, truth)),
        consistency=_grade(_supported(prediction, target)),
        realism=_grade(_like(prediction, truth)),
        quality=min(4, _grade(blocks)),
    )


@final
class RuleRubric:
    """:func:`rule_rubric` where a judge is expected."""

    @property
    def name(self) -> str:
        """Says that this is no model."""
        return "rule (text comparison, no model)"

    @property
    def identity(self) -> Json:
        """Name and version of the rules."""
        return {"rule": "text comparison", "version": 1}

    def rate(self, items: Sequence[tuple[Target, str]]) -> list[Rubric | None]:
        """The grades of every prediction."""
        return [rule_rubric(text, target) for target, text in items]
