"""Routers over real classifiers of real handwritten digits: one that loses to a worker, and one that wins.

A query is an image of scikit-learn's digits (UCI, 1,797 scans), its 64 pixels are the state, a worker is
right or wrong. Four classifiers of one training set differ in how good they are, not in what they are good
at: no router gains there. Eight classifiers that each learned three of the ten digits need one.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np
from sklearn.datasets import load_digits
from sklearn.linear_model import LogisticRegression
from sklearn.naive_bayes import GaussianNB
from sklearn.neighbors import KNeighborsClassifier
from sklearn.tree import DecisionTreeClassifier

from refork.types import Json
from refork_methods.route.frontier import frontier_report, over_workers
from refork_methods.route.stage1 import Stage1, Stage1Settings, fit_stage1
from refork_methods.route.table import OutcomeTable

#: Images that the classifiers learn from, and those of the outcome table; all others are sealed.
LEARNED, ASKED = 100, 600
#: Most of the table is held out, so that few queries are left to fit 64 pixels with.
HELD = 0.75


@cache
def digits() -> tuple[np.ndarray, np.ndarray]:
    """Pixels in [0, 1] and labels."""
    data = load_digits()
    return data.data / 16, data.target


def tables(seed: int, specialists: bool) -> tuple[OutcomeTable, OutcomeTable]:
    """What a pool earned on the images asked, and on the sealed ones; the seed deals the images."""
    pixels, labels = digits()
    order = np.random.default_rng(seed).permutation(len(labels))
    learned, rest = order[:LEARNED], order[LEARNED:]
    pool: dict[str, Any] = {}
    if specialists:
        for first in range(8):
            own = learned[np.isin(labels[learned], [(first + i) % 10 for i in range(3)])]
            pool[f"digits from {first}"] = GaussianNB(var_smoothing=1e-2).fit(pixels[own], labels[own])
    else:
        for model in (
            LogisticRegression(max_iter=2000), KNeighborsClassifier(3), GaussianNB(),
            DecisionTreeClassifier(random_state=0),
        ):  # fmt: skip
            pool[type(model).__name__] = model.fit(pixels[learned], labels[learned])
    right = np.stack([model.predict(pixels) == labels for model in pool.values()], axis=1)[rest, :, None]
    made = [
        OutcomeTable.from_arrays(
            right[part].astype(float), list(pool), [str(i) for i in rest[part]], features=pixels[rest[part]]
        )
        for part in (slice(0, ASKED), slice(ASKED, None))
    ]
    return made[0], made[1]


@dataclass(frozen=True, slots=True)
class Row:
    """A router of one seed: its verdict on held-out images, and mean rewards on the sealed ones."""

    seed: int
    pool: str
    outcome: str
    frontier: str
    sentence: str
    router: float
    single: float
    constant: bool


def row(seed: int, pool: str, plan: Stage1Settings) -> Row:
    """Fit, take both verdicts, and look at the sealed images."""
    table, sealed = tables(seed, pool == "eight specialists")
    made: Stage1 = fit_stage1(table, settings=plan)
    assert made.verdict is not None
    assert sealed.features is not None
    report = frontier_report(sealed, {"head": made.head.probabilities(sealed.features)}, single=made.single)
    (found,) = report.routers
    alone = over_workers(sealed)[sealed.workers.index(made.single)]
    return Row(
        seed, pool, made.verdict.outcome, found.verdict.outcome, made.verdict.sentence,
        found.option.quality.estimate, float(alone), made.constant,
    )  # fmt: skip


def rows(seeds: Sequence[int]) -> list[Row]:
    """Both pools, with the ridge that was once the default (nothing chosen) and with the one by folds."""
    fixed, chosen = Stage1Settings(held_out=HELD, ridge=1e-4), Stage1Settings(held_out=HELD)
    return [
        row(seed, pool, plan)
        for seed in seeds
        for pool, plan in (
            ("four classifiers", fixed), ("four, by folds", chosen),
            ("eight specialists", chosen),
        )
    ]  # fmt: skip


def figures(found: Sequence[Row]) -> Json:
    """What the benchmark tells: who lost and was warned of, who won and was said to, what folds save.

    Warned of is a router that the sealed images say loses, and that the fewer held-out ones, whose interval
    is wider, say loses or is not told apart from the worker.
    """
    of = {name: [one for one in found if one.pool == name] for name in {one.pool for one in found}}
    lost = [one for one in of["four classifiers"] if one.router < one.single]
    warned = [one for one in lost if one.outcome != "wins" and one.frontier == "loses"]
    return {
        "losing_router_warned": int(bool(lost) and len(warned) == len(lost)),
        "real_losing_routers": len(lost),
        "real_losing_warned_at_fit": sum(one.outcome == "loses" for one in lost),
        "real_losing_router": _mean(one.router for one in lost),
        "real_losing_single": _mean(one.single for one in lost),
        "real_folds_router": _mean(one.router for one in of["four, by folds"]),
        "real_folds_single": _mean(one.single for one in of["four, by folds"]),
        "real_folds_constant": sum(one.constant for one in of["four, by folds"]),
        "real_eight_router": _mean(one.router for one in of["eight specialists"]),
        "real_eight_single": _mean(one.single for one in of["eight specialists"]),
        "real_eight_said_to_win": sum(
            (one.outcome, one.frontier) == ("wins", "wins") for one in of["eight specialists"]
        ),
    }


def _mean(values: Any) -> float:
    return round(float(np.mean(list(values))), 4)


def report_real(found: Sequence[Row]) -> str:
    """All rows as a table."""
    lines = [
        "seed   pool                held out          frontier          router   single   (sealed images)"
    ]
    for one in found:
        lines.append(
            f"{one.seed:4}   {one.pool:18}  {one.outcome:16}  {one.frontier:16}"
            + f"  {one.router:6.3f}   {one.single:6.3f}"
            + ("   names it always" if one.constant else "")
        )
    return "\n".join([*lines, found[0].sentence])
