"""A router beside its baselines: quality, cost and latency, regret, calibration, loss of a worker."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import final

import numpy as np
from jaxtyping import Float, Shaped

from refork.decide import (
    Calibration,
    Regret,
    area_under_frontier,
    brier,
    calibration_error,
    fit_calibration,
    frontier,
    regret,
)
from refork.decide.calibrate import Reliability, reliability
from refork.errors import BadInput
from refork.stats.results import Array
from refork.types import Json
from refork_methods.route.baselines import (
    Option,
    best_single,
    by_shares,
    checked_shares,
    complete_means,
    equal_calls,
    one_worker,
    oracle,
    over_tasks,
    random_worker,
    split_oracle,
    task_rows,
)
from refork_methods.route.table import OutcomeTable


@final
@dataclass(frozen=True, slots=True)
class Calibrated:
    """How stated chances of success held: Brier score, expected calibration error, reliability by bins."""

    brier: float
    error: float
    bins: tuple[Reliability, ...]
    cases: int


@final
@dataclass(frozen=True, slots=True)
class Removal:
    """A router after ``worker`` opted out: its reward before and after, and what could be had without it."""

    worker: str
    share: float
    before: float
    after: float
    best_single: float
    oracle: float

    @property
    def loss(self) -> float:
        """Reward lost by the removal."""
        return self.before - self.after


@final
@dataclass(frozen=True, slots=True)
class RouterReport:
    """One router on one table: its option, regret, chances, and removals."""

    name: str
    option: Option
    regret: Regret
    calibration: Calibrated | None
    removals: tuple[Removal, ...]


@final
@dataclass(frozen=True, slots=True)
class FrontierReport:
    """All options, which of them nothing beats, and the area under the best mixtures of them.

    ``on_frontier`` is about reward and cost, ``with_seconds`` about reward, cost and latency; None where one
    of these is unknown, and for what needs hindsight. ``area`` is the mean over budgets in
    ``budgets`` of the best mean reward a mixture buys: of the workers alone, and with each router among them;
    None where costs are unknown or all equal. ``split_oracle`` is the oracle without its bias.
    """

    options: tuple[Option, ...]
    on_frontier: tuple[bool | None, ...]
    with_seconds: tuple[bool | None, ...]
    budgets: tuple[float, float] | None
    area: Mapping[str, float | None]
    routers: tuple[RouterReport, ...]
    best_single: str
    split_oracle: float | None
    queries: int
    tasks: int

    def to_json(self) -> Json:
        """Plain fields."""
        body = asdict(self)
        for name in ("on_frontier", "with_seconds"):
            for row, shown in zip(body["options"], body.pop(name), strict=True):
                row[name] = shown
        for row, found in zip(body["routers"], self.routers, strict=True):
            for removal, one in zip(row["removals"], found.removals, strict=True):
                removal["loss"] = one.loss
        return body


def served(
    shares: Shaped[Array, "queries workers"], gone: Sequence[int] = ()
) -> Float[np.ndarray, "queries workers"]:
    """What is served: all weight on the likeliest worker of each query, those at ``gone`` left out.

    Raises: BadInput where every worker is gone.
    """
    p = np.array(shares, dtype=np.float64)
    if len(set(gone)) >= p.shape[1]:
        raise BadInput("no worker is left")
    p[:, list(gone)] = -np.inf
    return np.asarray(np.eye(p.shape[1])[p.argmax(axis=1)])


def success_chance(shares: Shaped[Array, "queries workers"], table: OutcomeTable) -> Calibration:
    """The chance that the chosen worker succeeds, given its probability; fitted on queries not tested on.

    A router's probability says which worker is best, not how often it succeeds: this map learns that.
    Raises: BadInput as :func:`refork.decide.fit_calibration`, or for rewards other than right and wrong.
    """
    probability, right = _chosen_rows(shares, table)
    return fit_calibration(probability, right)


def _chosen_rows(
    shares: Shaped[Array, "queries workers"], table: OutcomeTable
) -> tuple[Float[np.ndarray, "cases"], Float[np.ndarray, "cases"]]:
    """Probability of the chosen worker and 0 or 1, for every outcome of it."""
    p = checked_shares(table, shares)
    rows = table.worker == p.argmax(axis=1)[table.query]
    rewards = table.reward[rows]
    if not np.isin(rewards, (table.low, table.high)).all():
        raise BadInput("chances of success need rewards that are right or wrong")
    return p.max(axis=1)[table.query[rows]], (rewards == table.high).astype(np.float64)


def frontier_report(
    table: OutcomeTable,
    routers: Mapping[str, Shaped[Array, "queries workers"]] | None = None,
    *,
    chances: Mapping[str, Calibration] | None = None,
    calls: Sequence[int] = (3,),
    single: str | None = None,
    budgets: tuple[float, float] | None = None,
) -> FrontierReport:
    """Routers beside every worker, chance, oracle, and votes and retries of the best worker, on one table.

    ``routers`` are probabilities [queries, workers] in the order of the table; what is measured is argmax, as
    served. ``chances`` turn a router's probability into a chance of success (see :func:`success_chance`,
    fitted on other queries). ``single`` is the best worker chosen elsewhere; None picks it here, in its
    favour.

    Raises: BadInput for a table that lacks outcomes (every query needs every worker), routers that do not fit
    it, or names given twice.
    """
    means = complete_means(table)
    best = single if single is not None else best_single(table)
    chosen = dict(routers or {})
    workers = [one_worker(table, name) for name in table.workers]
    mine = [by_shares(table, served(checked_shares(table, p)), name) for name, p in chosen.items()]
    options = [*workers, *mine, random_worker(table), *equal_calls(table, best, calls), oracle(table)]
    names = [option.name for option in options]
    if len(set(names)) != len(names):
        raise BadInput(f"two options have one name: {sorted(n for n in names if names.count(n) > 1)[0]!r}")
    area, span = _areas(workers, mine, budgets)
    reports = [
        RouterReport(
            name,
            option,
            regret(means, p.argmax(axis=1), groups=task_rows(table)),
            _calibrated(p, table, (chances or {}).get(name)),
            tuple(removals(table, p)),
        )
        for (name, p), option in zip(chosen.items(), mine, strict=True)
    ]
    tasks = over_tasks(table, np.zeros(len(table.queries))).size
    return FrontierReport(
        tuple(options),
        _on_frontier(options),
        _on_frontier(options, seconds=True),
        span,
        area,
        tuple(reports),
        best,
        split_oracle(table),
        len(table.queries),
        int(tasks),
    )


def _on_frontier(options: Sequence[Option], *, seconds: bool = False) -> tuple[bool | None, ...]:
    known = [o for o in options if o.attainable and o.cost is not None]
    if seconds:
        known = [o for o in known if o.latency is not None]
    if not known:
        return (None,) * len(options)
    spent = [np.array([o.cost for o in known]), *([np.array([o.latency for o in known])] if seconds else [])]
    mask = frontier(np.array([o.quality.estimate for o in known]), *spent)
    shown = {o.name: bool(m) for o, m in zip(known, mask, strict=True)}
    return tuple(shown.get(option.name) for option in options)


def _areas(
    workers: Sequence[Option], routers: Sequence[Option], budgets: tuple[float, float] | None
) -> tuple[dict[str, float | None], tuple[float, float] | None]:
    """Areas of the workers alone and with each router, over the budgets between the cheapest and dearest."""
    costs = [o.cost for o in workers]
    known = [cost for cost in costs if cost is not None]
    span = budgets
    if span is None and len(known) == len(costs) and min(known) < max(known):
        span = (min(known), max(known))

    def area(options: Sequence[Option]) -> float | None:
        priced = [(o.quality.estimate, o.cost) for o in options if o.cost is not None]
        if span is None or len(priced) < len(options):
            return None
        quality, cost = np.array(priced).T
        return area_under_frontier(quality, cost, *span)

    found = {"workers alone": area(workers)}
    return found | {router.name: area([*workers, router]) for router in routers}, span


def _calibrated(
    shares: Shaped[Array, "queries workers"], table: OutcomeTable, chance: Calibration | None
) -> Calibrated | None:
    if chance is None:
        return None
    probability, right = _chosen_rows(shares, table)
    stated = chance(probability)
    bins = tuple(reliability(stated, right))
    return Calibrated(brier(stated, right), calibration_error(stated, right), bins, int(right.size))


def removals(table: OutcomeTable, shares: Shaped[Array, "queries workers"]) -> list[Removal]:
    """What happens to a router when one worker opts out: it serves its next likeliest, unfitted anew.

    Raises: BadInput as :func:`frontier_report`.
    """
    means = complete_means(table)
    p = checked_shares(table, shares)
    whole = served(p)

    def worth(values: Float[np.ndarray, "queries"]) -> float:
        return float(over_tasks(table, values).mean())

    found = []
    for w, name in enumerate(table.workers):
        rest = np.delete(means, w, axis=1)
        found.append(
            Removal(
                name,
                float(whole[:, w].mean()),
                worth((whole * means).sum(axis=1)),
                worth((served(p, [w]) * means).sum(axis=1)),
                max(worth(rest[:, i]) for i in range(rest.shape[1])),
                worth(rest.max(axis=1)),
            )
        )
    return found
