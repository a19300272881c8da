"""What a prediction earns: nine tenths the five-dimension rubric, one tenth a rule that can be executed.

Source: arXiv 2606.24597 for the mixture, the five dimensions and the map of their mean to [0, 1]. What the
rule checks, and that the rubric stands alone where no rule does, are our reconstruction.
"""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from dataclasses import astuple, dataclass, fields
from typing import Any, Protocol, final, runtime_checkable

from refork.errors import BadInput
from refork.types import Json
from refork_methods.simulate.prompt import Target, bare, matches


@dataclass(frozen=True, slots=True, kw_only=True)
class Rubric:
    """Five grades, integers 1 (worst) to 5, of a prediction beside what was really observed.

    ``format``: its form; ``factuality``: its content; ``consistency``: with the turns before; ``realism``:
    how much it reads like the real thing; ``quality``: as a whole.
    """

    format: int
    factuality: int
    consistency: int
    realism: int
    quality: int

    def __post_init__(self) -> None:
        for name, value in zip(DIMENSIONS, astuple(self), strict=True):
            if isinstance(value, bool) or not isinstance(value, int) or not 1 <= value <= 5:
                raise BadInput(f"{name} is {value!r}; it must be a whole number from 1 to 5", where="rubric")

    @property
    def mean(self) -> float:
        """The mean grade."""
        grades: tuple[int, ...] = astuple(self)
        return sum(grades) / len(grades)

    @property
    def score(self) -> float:
        """The mean grade mapped to [0, 1]: (mean - 1) / 4."""
        return (self.mean - 1) / 4

    def grades(self) -> dict[str, int]:
        """The grades by name."""
        return dict(zip(DIMENSIONS, astuple(self), strict=True))


DIMENSIONS = tuple(item.name for item in fields(Rubric))


@runtime_checkable
class Rater(Protocol):
    """Grades many predictions at once."""

    @property
    def name(self) -> str:
        """Who grades, for the record."""
        ...

    @property
    def identity(self) -> Json:
        """What its grades depend on, as plain JSON."""
        ...

    def rate(self, items: Sequence[tuple[Target, str]]) -> list[Rubric | None]:
        """The grades of what was said about each target; None where it could not be graded."""
        ...


@runtime_checkable
class Rule(Protocol):
    """An executable check of a prediction."""

    def __call__(self, prediction: str, target: Target) -> float | None:
        """1.0 or 0.0; None where nothing can be checked."""
        ...


def _json(text: str) -> tuple[bool, Any]:
    try:
        return True, json.loads(text)
    except (ValueError, RecursionError):
        return False, None


def same_shape(one: Any, other: Any) -> bool:
    """Whether two JSON values have the same keys and kinds; of lists every item is held against the first."""
    if isinstance(other, dict):
        return (
            isinstance(one, dict)
            and one.keys() == other.keys()
            and all(same_shape(one[key], other[key]) for key in other)
        )
    if isinstance(other, list):
        return isinstance(one, list) and (not other or all(same_shape(item, other[0]) for item in one))
    # Before numbers: in Python true is one of them.
    if isinstance(other, bool) or other is None:
        return type(one) is type(other)
    if isinstance(other, (int, float)):
        return isinstance(one, (int, float)) and not isinstance(one, bool)
    return type(one) is type(other)


def default_rule(prediction: str, target: Target) -> float | None:
    """To the letter where the answer can be known; of other JSON answers the keys and kinds; else None."""
    if target.turn.exact:
        return float(matches(prediction, target.truth))
    structured, truth = _json(target.truth)
    if structured and isinstance(truth, (dict, list)):
        valid, said = _json(prediction)
        return float(valid and same_shape(said, truth))
    return None


@dataclass(frozen=True, slots=True)
class Earned:
    """A reward with its parts: None where a part was not given, and no reward without the rubric's."""

    reward: float | None
    rubric: float | None = None
    rule: float | None = None
    extracted: bool = True


@final
class HybridReward:
    """``w`` x rubric + (1 - ``w``) x rule; the rubric alone where no rule applies.

    A prediction that is None (nothing could be extracted) earns 0 and is not shown to the judge. Where the
    judge gives nothing there is no reward, which is not 0. ``rule`` None: no rule at all.
    """

    def __init__(self, rubric: Rater, rule: Rule | None = default_rule, w: float = 0.9) -> None:
        if not 0 <= w <= 1 or not math.isfinite(w):
            raise BadInput(f"the rubric's share is {w}; it must be in [0, 1]", where="reward")
        self.rubric, self.rule, self.w = rubric, rule, w

    @property
    def identity(self) -> Json:
        """What rewards depend on."""
        name = None if self.rule is None else getattr(self.rule, "__name__", type(self.rule).__name__)
        # A rule that was made from data says from which; a function is known by its name.
        rule = getattr(self.rule, "identity", name)
        return {"rubric": self.rubric.identity, "rule": rule, "w": self.w}

    def __call__(self, prediction: str | None, target: Target) -> float | None:
        """The reward of one prediction."""
        return self.earned([(prediction, target)])[0].reward

    def earned(
        self, items: Sequence[tuple[str | None, Target]], outputs: Sequence[str] | None = None
    ) -> list[Earned]:
        """Rewards with their parts, all predictions judged in one call.

        ``outputs`` is all that was said for each: with a rule, words beside the reasoning and the one tag
        fail it (ours; extraction alone only ignores them).
        """
        shown = [(i, target, text) for i, (text, target) in enumerate(items) if text is not None]
        rated = self.rubric.rate([(target, text) for _, target, text in shown]) if shown else []
        found = [Earned(0.0, extracted=False)] * len(items)
        for (i, target, text), rubric in zip(shown, rated, strict=True):
            checked = None if self.rule is None else self.rule(text, target)
            if self.rule is not None and outputs is not None and not bare(outputs[i]):
                checked = 0.0
            score = None if rubric is None else rubric.score
            if score is None:
                found[i] = Earned(None, None, checked)
            elif checked is None:
                found[i] = Earned(score, score)
            else:
                found[i] = Earned(self.w * score + (1 - self.w) * checked, score, checked)
        return found
