"""What a router is held against, on the same outcomes: one worker, chance, votes, retries, the oracle."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import final

import numpy as np
from jaxtyping import Bool, Float, Int, Shaped
from scipy.stats import hypergeom

from refork.errors import BadInput
from refork.stats import Interval, mean_interval
from refork.stats.results import Array
from refork.types import Json
from refork_methods.decide import (
    Calibration,
    Regret,
    area_under_frontier,
    brier,
    calibration_error,
    fit_calibration,
    frontier,
    regret,
)
from refork_methods.decide.calibrate import Reliability, reliability
from refork_methods.route.table import OutcomeTable
from refork_methods.route.verdict import Verdict, against_best_single


@final
@dataclass(frozen=True, slots=True)
class Option:
    """A way to act, measured on a table: reward (interval over tasks), and per query its cost and seconds.

    ``cost`` and ``latency`` are None where they are unknown for any call that the option makes; ``unknown``
    is the share of its calls whose price is not known. ``attainable`` is False for what needs hindsight.
    """

    name: str
    quality: Interval
    cost: float | None
    latency: float | None
    unknown: float
    calls: float
    attainable: bool = True

    def to_json(self) -> Json:
        """Plain fields."""
        return asdict(self)


def complete_means(table: OutcomeTable) -> Float[np.ndarray, "queries workers"]:
    """Mean rewards. Raises BadInput where a query lacks a worker: then nothing is compared on equal terms."""
    means, counts = table.means()
    if (counts == 0).any():
        q, w = np.argwhere(counts == 0)[0]
        raise BadInput(
            f"query {table.queries[q]!r} has no outcome of worker {table.workers[w]!r}",
            hint="select the queries that every worker has",
        )
    return means


def over_tasks(table: OutcomeTable, values: Shaped[Array, "queries"]) -> Float[np.ndarray, "tasks"]:
    """The mean of each task's queries: turns of one task are not independent."""
    rows = table.groups()
    return np.asarray(np.bincount(rows, values) / np.bincount(rows))


def by_shares(
    table: OutcomeTable,
    shares: Float[np.ndarray, "queries workers"],
    name: str,
    *,
    attainable: bool = True,
) -> Option:
    """A router that sends query q to worker w with the chance ``shares[q, w]``, one call each.

    Raises: BadInput for shares that are no probabilities of that shape, or as :func:`complete_means`.
    """
    p = checked_shares(table, shares)
    quality = (p * complete_means(table)).sum(axis=1)
    cost, unknown = _spent(table, table.cost, p)
    latency, _ = _spent(table, table.latency, p)
    return Option(name, _interval(table, quality), cost, latency, unknown, 1.0, attainable)


def checked_shares(
    table: OutcomeTable, shares: Shaped[Array, "queries workers"]
) -> Float[np.ndarray, "queries workers"]:
    """Shares as probabilities. Raises BadInput where they are none, or of another shape than the table."""
    p = np.asarray(shares, dtype=np.float64)
    if p.shape != (len(table.queries), len(table.workers)):
        raise BadInput(f"shares {p.shape} for {len(table.queries)} queries and {len(table.workers)} workers")
    if not np.isfinite(p).all() or (p < 0).any() or not np.allclose(p.sum(axis=1), 1):
        raise BadInput("shares must be 0 or more and sum to 1 for every query")
    return p


def _interval(table: OutcomeTable, quality: Float[np.ndarray, "queries"]) -> Interval:
    means = over_tasks(table, quality)
    if means.size < 2:
        raise BadInput("one task gives no interval", hint="collect at least two")
    return mean_interval(means)


def _spent(
    table: OutcomeTable, column: Float[np.ndarray, "rows"], p: Float[np.ndarray, "queries workers"]
) -> tuple[float | None, float]:
    """Mean of a column under shares, None as soon as an unknown one may occur; and how often that is."""
    means = table.mean_of(column)
    gaps = float((p * np.isnan(means)).sum(axis=1).mean())
    # 0 times NaN is NaN: a worker that is never chosen must not make the cost unknown.
    total = float((p * np.nan_to_num(means)).sum(axis=1).mean())
    return (None if gaps > 0 else total), gaps


def one_worker(table: OutcomeTable, worker: str) -> Option:
    """Always the same worker."""
    shares = np.zeros((len(table.queries), len(table.workers)))
    shares[:, _index(table, worker)] = 1
    return by_shares(table, shares, worker)


def best_single(table: OutcomeTable) -> str:
    """The worker of the highest mean reward, the first of equals. Choose it on queries not tested on."""
    return table.workers[int(over_workers(table).argmax())]


def over_workers(table: OutcomeTable) -> Float[np.ndarray, "workers"]:
    """Every worker's mean reward, each task counting once."""
    means = complete_means(table)
    return np.array([over_tasks(table, means[:, w]).mean() for w in range(means.shape[1])])


def random_worker(table: OutcomeTable) -> Option:
    """Every query to a worker drawn with equal chances."""
    size = len(table.workers)
    return by_shares(table, np.full((len(table.queries), size), 1 / size), "random")


def oracle(table: OutcomeTable) -> Option:
    """Every query to the worker that earned most *on this very table*.

    Picking the largest of noisy means overstates what can be had: :func:`split_oracle` does not.
    """
    best = complete_means(table).argmax(axis=1)
    return by_shares(table, np.eye(len(table.workers))[best], "oracle", attainable=False)


def split_oracle(table: OutcomeTable) -> float | None:
    """Mean reward of workers picked by one half of the repeats and paid by the other, both ways.

    Not above the true oracle in expectation. None where a query and worker has fewer than two repeats.
    """
    if table.counts().min() < 2:
        return None
    halves = [_half(table, side) for side in (0, 1)]
    rows = np.arange(len(table.queries))
    gains = [halves[1 - i][rows, halves[i].argmax(axis=1)] for i in (0, 1)]
    return float(over_tasks(table, (gains[0] + gains[1]) / 2).mean())


def _half(table: OutcomeTable, side: int) -> Float[np.ndarray, "queries workers"]:
    """Means over every other row of each query and worker, in the order of repeats."""
    order = np.lexsort((table.repeat, table.worker, table.query))
    q, w = table.query[order], table.worker[order]
    # Sorted by query and worker, a row's place in its cell is its distance from the cell's first row.
    first = np.concatenate([[True], (q[1:] != q[:-1]) | (w[1:] != w[:-1])])
    starts = np.maximum.accumulate(np.where(first, np.arange(q.size), 0))
    kept = order[(np.arange(q.size) - starts) % 2 == side]
    weight = np.ones(len(table)) if table.weight is None else table.weight
    total, mass = (np.zeros((len(table.queries), len(table.workers))) for _ in range(2))
    np.add.at(total, (table.query[kept], table.worker[kept]), weight[kept] * table.reward[kept])
    np.add.at(mass, (table.query[kept], table.worker[kept]), weight[kept])
    return total / mass


def majority(table: OutcomeTable, worker: str, k: int) -> Option:
    """``k`` calls of one worker and the majority of them, exact over all ways to draw k of the repeats.

    The table knows who was right, not what was said: right answers are taken as one vote, wrong ones as
    another, a tie as half. Where wrong answers differ the true majority is at least as good.

    Raises: BadInput for rewards other than the two ends of their range, fewer than k repeats, or repeats of
    unequal weight.
    """
    right, tried = _successes(table, worker, k).T
    # Right ones among k drawn without replacement are hypergeometric; of an even k a tie counts half.
    wins = hypergeom.sf(k // 2, tried, right, k)
    if k % 2 == 0:
        wins += hypergeom.pmf(k // 2, tried, right, k) / 2
    quality = table.low + (table.high - table.low) * wins
    return _repeated(table, worker, k, quality, f"majority@{k} of {worker}", attainable=True)


def _successes(table: OutcomeTable, worker: str, k: int) -> Int[np.ndarray, "queries two"]:
    rows = table.worker == _index(table, worker)
    _refuse_weights(table, rows, worker)
    if not np.isin(table.reward[rows], (table.low, table.high)).all():
        raise BadInput("a majority needs rewards that are right or wrong", hint="use best-of-k")
    size = len(table.queries)
    tried = np.bincount(table.query[rows], minlength=size)
    _enough(tried, worker, k)
    right = np.bincount(table.query[rows], (table.reward[rows] == table.high).astype(float), minlength=size)
    return np.stack([right.astype(np.int64), tried], axis=1)


def best_of(table: OutcomeTable, worker: str, k: int) -> Option:
    """``k`` calls of one worker and the best of them: what a perfect verifier would get, without bias.

    Raises: BadInput for fewer than k repeats, or repeats of unequal weight.
    Source: for rewards 0 and 1 it is pass@k, arXiv:2107.03374.
    """
    rows = table.worker == _index(table, worker)
    _refuse_weights(table, rows, worker)
    quality = np.empty(len(table.queries))
    for q in range(len(table.queries)):
        x = np.sort(table.reward[rows & (table.query == q)])
        _enough(np.array([x.size]), worker, k)
        # The i-th smallest is the best of the draws that take it and k - 1 of the i below it.
        ways = np.array([math.comb(i, k - 1) for i in range(x.size)]) / math.comb(x.size, k)
        quality[q] = x @ ways
    return _repeated(table, worker, k, quality, f"best-of-{k} of {worker}", attainable=False)


def _weighted(table: OutcomeTable, rows: Bool[np.ndarray, "rows"]) -> bool:
    """Whether repeats of one query have different weights."""
    if table.weight is None:
        return False
    least, most = np.full(len(table.queries), np.inf), np.zeros(len(table.queries))
    np.minimum.at(least, table.query[rows], table.weight[rows])
    np.maximum.at(most, table.query[rows], table.weight[rows])
    return bool((most > least).any())


def _refuse_weights(table: OutcomeTable, rows: Bool[np.ndarray, "rows"], worker: str) -> None:
    if _weighted(table, rows):
        raise BadInput(
            f"repeats of {worker!r} have unequal weights: which k would be drawn is not known",
            hint="give the repeats of a query one weight",
        )


def _enough(tried: Int[np.ndarray, "queries"], worker: str, k: int) -> None:
    if k < 1 or tried.min() < k:
        raise BadInput(
            f"{k} calls of {worker!r} cannot be judged from {tried.min()} repeats",
            hint="collect more repeats",
        )


def _repeated(
    table: OutcomeTable,
    worker: str,
    k: int,
    quality: Float[np.ndarray, "queries"],
    name: str,
    *,
    attainable: bool,
) -> Option:
    """``k`` calls of one worker: k times its cost; its seconds once (the calls can run side by side)."""
    one = one_worker(table, worker)
    cost = None if one.cost is None else k * one.cost
    return Option(name, _interval(table, quality), cost, one.latency, one.unknown, float(k), attainable)


def _index(table: OutcomeTable, worker: str) -> int:
    if worker not in table.workers:
        raise BadInput(f"there is no worker {worker!r} in the table", hint=", ".join(table.workers))
    return table.workers.index(worker)


def equal_calls(table: OutcomeTable, worker: str, calls: Sequence[int]) -> list[Option]:
    """Votes and retries of one worker at given numbers of calls; those beyond its repeats are left out.

    There are none where its repeats have unequal weights.
    """
    rows = table.worker == _index(table, worker)
    if _weighted(table, rows):
        return []
    least = int(np.bincount(table.query[rows], minlength=len(table.queries)).min())
    binary = bool(np.isin(table.reward[rows], (table.low, table.high)).all())
    found: list[Option] = []
    for k in calls:
        if 1 < k <= least:
            found += [majority(table, worker, k)] if binary else []
            found.append(best_of(table, worker, k))
    return found


# A router beside its baselines: quality, cost and latency, regret, calibration, loss of a worker.


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
    """One router on one table: its option, regret, verdict beside the best worker, chances, and removals."""

    name: str
    option: Option
    regret: Regret
    verdict: Verdict
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
            row["verdict"] = found.verdict.to_json()
            for removal, one in zip(row["removals"], found.removals, strict=True):
                removal["loss"] = one.loss
        return body


def served(
    shares: Shaped[Array, "queries workers"], gone: Sequence[int] = ()
) -> Float[np.ndarray, "queries workers"]:
    """What is served: all weight on the likeliest worker of each query, those at ``gone`` left out.

    Raises: BadInput where every worker is gone.
    """
    # A copy, for what is gone is written over.
    p = np.array(shares, dtype=np.float64)
    if len(set(gone)) >= p.shape[1]:
        raise BadInput("no worker is left")
    p[:, list(gone)] = -np.inf
    return np.asarray(np.eye(p.shape[1])[p.argmax(axis=1)])


def success_chance(shares: Shaped[Array, "queries workers"], table: OutcomeTable) -> Calibration:
    """The chance that the chosen worker succeeds, given its probability; fitted on queries not tested on.

    A router's probability says which worker is best, not how often it succeeds: this map learns that.
    Raises: BadInput as :func:`fit_calibration`, or for rewards other than right and wrong.
    """
    probability, right = _chosen_rows(shares, table)
    return fit_calibration(probability, right)


def _chosen_rows(
    shares: Shaped[Array, "queries workers"], table: OutcomeTable
) -> tuple[Float[np.ndarray, "cases"], Float[np.ndarray, "cases"]]:
    """Probability of the chosen worker and 0 or 1, for every outcome of it."""
    p = checked_shares(table, shares)
    # Every repeat is a case of its own: a chance of success is about one call.
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
) -> FrontierReport:
    """Routers beside every worker, chance, oracle, and votes and retries of the best worker, on one table.

    ``routers`` are probabilities [queries, workers] in the order of the table; what is measured is argmax, as
    served. ``chances`` turn a router's probability into a chance of success (see :func:`success_chance`,
    fitted on other queries). ``single`` is the best worker chosen elsewhere; None picks it here: for votes
    and retries in its favour, for a router's verdict by the other tasks.

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
    area, span = _areas(workers, mine)
    reports = [
        RouterReport(
            name,
            option,
            regret(means, p.argmax(axis=1), groups=table.groups()),
            against_best_single(
                means,
                p.argmax(axis=1),
                table.workers,
                table.groups(),
                single=None if single is None else table.workers.index(single),
            ),
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
    workers: Sequence[Option], routers: Sequence[Option]
) -> tuple[dict[str, float | None], tuple[float, float] | None]:
    """Areas of the workers alone and with each router, over the budgets between the cheapest and dearest."""
    costs = [o.cost for o in workers]
    known = [cost for cost in costs if cost is not None]
    span = None
    if len(known) == len(costs) and min(known) < max(known):
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
