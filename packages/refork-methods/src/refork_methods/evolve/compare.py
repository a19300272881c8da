"""Judges side by side on the same stored verdicts: how lenient, how right, how even-handed, how different."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from itertools import combinations
from typing import final

import numpy as np

from refork.errors import BadInput
from refork.stats import Difference, Interval, holm, paired_difference, wilson
from refork_methods.evolve.swap import (
    OnAnchor,
    Repeats,
    Verdict,
    check_verdicts,
    constant_answers,
    on_anchor,
    stringency_of,
    verdicts_of,
)


@final
@dataclass(frozen=True, slots=True)
class JudgeRow:
    """One judge: items judged, share accepted, how it does on the anchor, and machine over human acceptance.

    ``acceptance`` is None where its votes tie on every item, ``anchor`` where it judged no anchor item,
    ``stringency`` where it cannot be computed. ``idle``: it has no more of its anchor items right than one
    verdict for all of them has; None where it has no such items of both classes.
    """

    judge: str
    items: int
    acceptance: Interval | None
    anchor: OnAnchor | None
    stringency: Interval | None
    idle: bool | None


@final
@dataclass(frozen=True, slots=True)
class PairRow:
    """Two judges on items that both judged: share on which they disagree, and accuracy, other minus one.

    ``p`` is of the paired test that agrees with the difference's interval, on shared anchor items, corrected
    by Holm over all pairs; None where they share fewer than two.
    """

    one: str
    other: str
    shared: int
    disagree: Interval | None
    difference: Difference | None
    p: float | None


@final
@dataclass(frozen=True, slots=True)
class Comparison:
    """All judges by name, and every pair of them."""

    judges: tuple[JudgeRow, ...]
    pairs: tuple[PairRow, ...]


def compare_judges(
    verdicts: Iterable[Verdict],
    anchor: Mapping[str, int] | None = None,
    *,
    repeats: Repeats = "refuse",
    level: float = 0.95,
    seed: int = 0,
) -> Comparison:
    """Every judge among the verdicts, on all that it judged, and every pair, on what both did.

    A judge that saw other items differs in acceptance for that reason too: pairs are on
    shared items alone.

    Raises:
        BadInput: no verdicts, verdicts other than 0 and 1, or anchor labels other than 0 and 1.
        Mismatch: a judge contradicts itself on an item, under ``refuse``.
    """
    stored, truth = list(verdicts), dict(anchor or {})
    check_verdicts(stored)
    if not stored:
        raise BadInput("there are no verdicts")
    wrong = next((item for item, label in truth.items() if label not in (0, 1)), None)
    if wrong is not None:
        raise BadInput(f"the anchor label is {truth[wrong]!r}, not 0 or 1", where=f"item {wrong!r}")
    judges = sorted({verdict.judge for verdict in stored})
    says = {judge: verdicts_of(stored, judge, repeats) for judge in judges}
    rows = tuple(_row(stored, judge, says[judge], truth, seed, level) for judge in judges)
    pairs = [_pair(one, other, says, truth, level) for one, other in combinations(judges, 2)]
    tested = [pair for pair in pairs if pair.p is not None]
    if not tested:
        return Comparison(rows, tuple(pairs))
    adjusted = iter(holm(np.array([pair.p for pair in tested])).p.tolist())
    return Comparison(
        rows, tuple(pair if pair.p is None else replace(pair, p=next(adjusted)) for pair in pairs)
    )


def _row(
    stored: list[Verdict], judge: str, says: dict[str, int], truth: dict[str, int], seed: int, level: float
) -> JudgeRow:
    items = sorted(says)
    answers = np.array([says[item] for item in items], dtype=np.int8)
    known = [item for item in items if item in truth]
    right, idle = None, None
    if known:
        labels = np.array([truth[item] for item in known], dtype=np.int8)
        # With one class one of the two error rates has no items.
        if labels.min() != labels.max():
            right = on_anchor(judge, np.array([says[item] for item in known], dtype=np.int8), labels, level)
            idle = right.right <= int((constant_answers(labels) == labels).sum())
    ratio = stringency_of(stored, items, [judge], answers[:, None], seed, level)[judge]
    accepted = wilson(int(answers.sum()), len(items), level) if items else None
    return JudgeRow(judge, len(items), accepted, right, ratio, idle)


def _pair(
    one: str, other: str, says: dict[str, dict[str, int]], truth: dict[str, int], level: float
) -> PairRow:
    shared = sorted(says[one].keys() & says[other].keys())
    apart = sum(says[one][item] != says[other][item] for item in shared)
    known = [item for item in shared if item in truth]
    difference = None
    if len(known) >= 2:
        right = [
            np.array([int(says[judge][item] == truth[item]) for item in known], dtype=np.int8)
            for judge in (one, other)
        ]
        difference = paired_difference(right[0], right[1], level)
    disagree = wilson(apart, len(shared), level) if shared else None
    return PairRow(one, other, len(shared), disagree, difference, difference.p if difference else None)
