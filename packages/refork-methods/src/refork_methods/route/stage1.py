"""Stage 1: a selection head from an outcome table, alone or together with its backbone."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal, TypeAlias, final

import numpy as np
import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from refork.decoding.states import layer_number
from refork.errors import BadInput, CannotDo
from refork.plain import to_json
from refork.progress import Progress, silent
from refork.types import IntArray, Json
from refork_methods.decide import Regret, regret
from refork_methods.route.backbone import RouterBackbone, Transcript
from refork_methods.route.head import SelectionHead, softmax
from refork_methods.route.svf import LEAST_OFFSET, SvfAdapter
from refork_methods.route.table import OutcomeTable
from refork_methods.route.verdict import Verdict, against_best_single

# What stage 1 is fitted to: softmax targets of mean rewards, the loss against them, and its exact head.


@final
@dataclass(frozen=True, slots=True, eq=False)
class Targets:
    """Target chances [n, L] (0 where a worker was not tried), which were tried, and the queries' weights [n].

    Weights have mean 1.
    """

    chances: Float[np.ndarray, "n workers"]
    known: Bool[np.ndarray, "n workers"]
    weight: Float[np.ndarray, "n"]

    def take(self, rows: Int[np.ndarray, "some"]) -> Targets:
        """The targets of some queries."""
        return Targets(self.chances[rows], self.known[rows], self.weight[rows])

    def mean(self) -> Float[np.ndarray, "workers"]:
        """The best constant chances where every worker was tried everywhere; else their weighted mean."""
        w = self.weight[:, None] * self.known
        # A worker that was tried nowhere has 0, not NaN.
        return np.asarray((w * self.chances).sum(axis=0) / np.maximum(w.sum(axis=0), 1e-300))


def targets(
    rewards: Float[np.ndarray, "n workers"],
    counts: Int[np.ndarray, "n workers"],
    tau: float,
    *,
    spread: float = 1.0,
) -> Targets:
    """Softmax of mean rewards over ``tau`` (times ``spread``, the rewards' range), over the workers tried.

    A query's weight is the harmonic mean of its tried workers' repeats: its differences are as noisy as that
    many repeats of each would be. Equal repeats give equal weights.

    Raises: BadInput for a tau that is not positive, or a query with fewer than two workers tried.
    Source: arXiv:2606.21228 (targets); it names no tau and no weights: those, and what is done about workers
    that were not tried (targets over the others, compared with the policy given that it is one of them),
    are ours.
    """
    if not (np.isfinite(tau) and tau > 0):
        raise BadInput(f"tau is {tau!r}; it must be positive")
    known = ~np.isnan(rewards)
    tried = known.sum(axis=1)
    if (tried < 2).any():
        raise BadInput(
            f"{int((tried < 2).sum())} queries have outcomes of fewer than two workers",
            where=f"query {int((tried < 2).argmax())}",
        )
    chances = softmax(np.where(known, rewards / (tau * spread), -np.inf))
    repeats = np.where(known, np.maximum(counts, 1), 1).astype(np.float64)
    weight = tried / np.where(known, 1 / repeats, 0.0).sum(axis=1)
    return Targets(chances, known, weight / weight.mean())


def kl(scores: Float[Tensor, "n workers"], wanted: Targets) -> Float[Tensor, ""]:
    """Weighted mean over queries of KL(target || policy given the workers tried), nats. Differentiable."""
    p = torch.as_tensor(wanted.chances).to(scores)
    known = torch.as_tensor(wanted.known, device=scores.device)
    weight = torch.as_tensor(wanted.weight).to(scores)
    logq = torch.log_softmax(scores.masked_fill(~known, -torch.inf), dim=1)
    # 0 times -inf is NaN, in the loss and in its gradient; xlogy below does the same for chances of 0.
    logq = logq.masked_fill(~known, 0.0)
    entropy = torch.special.xlogy(p, p).sum(dim=1)
    loss: Tensor = (weight * (entropy - (p * logq).sum(dim=1))).sum() / weight.sum()
    return loss


def mean_kl(chances: Float[np.ndarray, "n workers"], wanted: Targets) -> float:
    """:func:`kl` of chances instead of scores."""
    # Logs of chances are scores of the same policy: log_softmax takes a constant off each row and no more.
    floor = np.log(np.maximum(chances, 1e-300))
    return float(kl(torch.as_tensor(floor, dtype=torch.float64), wanted))


def fit_weights(
    states: Float[np.ndarray, "n d"], wanted: Targets, ridge: float = 0.0, steps: int = 1000
) -> tuple[Float[np.ndarray, "workers d"], Float[np.ndarray, "workers"]]:
    """Weights [L, d] and bias [L] that minimise the KL plus ``ridge / 2`` times the mean square score.

    Convex: L-BFGS in float64 finds the minimum. The ridge is of scores about their mean, not of weights, so
    that it means the same whatever the states' scale and origin, and leaves the bias alone. Where several
    maps give the same scores, the smallest. ``steps`` bounds the iterations.

    Raises: BadInput for a negative ridge, states that are not finite or all zero, or another number of rows.
    """
    if not (np.isfinite(ridge) and ridge >= 0):
        raise BadInput(f"ridge is {ridge!r}; it must be 0 or more")
    h = np.asarray(states, dtype=np.float64)
    if h.ndim != 2 or len(h) != len(wanted.weight) or not np.isfinite(h).all() or not h.any():
        raise BadInput(f"states {h.shape} are not finite rows, and some, for {len(wanted.weight)} queries")
    # In white states the problem is about as round as it gets: tens of steps, where it took thousands.
    centre = wanted.weight @ h / wanted.weight.sum()
    left, size, right = np.linalg.svd(h - centre, full_matrices=False)
    # As numpy tells a matrix's rank, of the states with their mean: directions below it are rounding, and
    # dividing by them would blow it up.
    kept = size > np.linalg.norm(h) * np.finfo(np.float64).eps * max(h.shape)
    x = torch.as_tensor(left[:, kept] * np.sqrt(len(h)))
    w = torch.zeros((wanted.chances.shape[1], x.shape[1]), dtype=torch.float64, requires_grad=True)
    b = torch.zeros(len(w), dtype=torch.float64, requires_grad=True)
    optimizer = torch.optim.LBFGS(
        [w, b], max_iter=steps, history_size=30, tolerance_grad=1e-8, tolerance_change=1e-12,
        line_search_fn="strong_wolfe",
    )  # fmt: skip

    def closure() -> Tensor:
        optimizer.zero_grad()
        scores = x @ w.T
        loss = kl(scores + b, wanted)
        if ridge > 0 and scores.numel():
            loss = loss + ridge / 2 * scores.square().mean()
        loss.backward()  # type: ignore[no-untyped-call]
        return loss

    optimizer.step(closure)  # type: ignore[no-untyped-call]
    weights = np.asarray((w.detach().numpy() * np.sqrt(len(h)) / size[kept]) @ right[kept])
    return weights, b.detach().numpy() - weights @ centre


# Stage 1: a selection head from an outcome table, by the divergence from softmax targets of mean rewards.

Uneven: TypeAlias = Literal["weigh", "refuse"]
TAUS = (0.05, 0.1, 0.2, 0.5, 1.0)
RIDGES = (1e-4, 1e-3, 1e-2, 0.1, 1.0)
#: Parts of the fitted tasks, each in turn left out where something is chosen.
FOLDS = 5
#: Standard errors by which a head must earn more than one worker in the folds: one-sided 5 %.
SURE = 1.645
#: Iterations of a fit that is only compared with others: in white states the last digits come after these.
_ROUGH = 60


@final
@dataclass(frozen=True, slots=True)
class Stage1Settings:
    """How a head is fitted to a table.

    ``tau`` is the targets' temperature in units of the rewards' range, ``ridge`` is on the mean square score;
    None chooses one of ``taus`` and of ``ridges`` by folds of the fitted queries. Where ``ridge`` is chosen
    and the folds do not show that the head earns more than the best single worker, the head names that
    worker always. ``held_out`` is the share of queries kept for the report, on which nothing is chosen; 0 for
    none. Where queries lack workers or repeats are uneven, ``weigh`` weights
    them by how much was measured, ``refuse`` stops. ``cold`` gives workers without any outcome the mean
    reward to assume for them on every query.
    """

    tau: float | None = 0.2
    taus: tuple[float, ...] = TAUS
    held_out: float = 0.2
    ridge: float | None = None
    ridges: tuple[float, ...] = RIDGES
    uneven: Uneven = "weigh"
    cold: Mapping[str, float] = field(default_factory=dict)
    seed: int = 0

    def __post_init__(self) -> None:
        if self.uneven not in ("weigh", "refuse"):
            raise BadInput(f"uneven is {self.uneven!r}", hint="'weigh' or 'refuse'")
        if not 0 <= self.held_out < 1:
            raise BadInput(f"held_out is {self.held_out}; it must be a share in [0, 1)")
        if not self.taus or not self.ridges:
            raise BadInput("there is no tau or no ridge to choose from")


@final
@dataclass(frozen=True, slots=True)
class Row:
    """One tau, its ridge: divergence on fitted and held-out queries (nats), and of the best constant there.

    ``skill`` is the share of the constant policy's divergence in the folds that the states explain: 1 is all,
    0 none, None where there were no folds. Taus are compared by it: divergences of different taus have
    different targets, and shrink with tau whatever the head knows.
    """

    tau: float
    ridge: float
    fitted: float
    held: float | None
    constant: float | None
    skill: float | None


@final
@dataclass(frozen=True, slots=True)
class Gain:
    """What a head earned more than the best single worker on ``tasks`` that neither was fitted on."""

    mean: float
    error: float
    tasks: int

    @property
    def pays(self) -> bool:
        """Whether it is above 0 by more than chance would have it."""
        return self.mean > SURE * self.error


@final
@dataclass(frozen=True, slots=True)
class Stage1:
    """A fitted head and what is known of it.

    ``rows`` has every tau tried, ``gain`` what the folds say of the head that was fitted (None: not looked
    at); ``constant``: the head names ``single`` always, the best single worker on the fitted queries.
    ``regret`` are mean rewards on held-out queries (of argmax, as served; of the worker that is best there;
    of the best worker of each query by its measured mean, which flatters it) and ``verdict`` is the head's
    difference to ``single`` there; None where too few held-out queries have every worker. ``dropped`` ones
    had outcomes of fewer than two workers.
    """

    head: SelectionHead
    tau: float
    rows: tuple[Row, ...]
    single: str
    constant: bool
    gain: Gain | None
    regret: Regret | None
    verdict: Verdict | None
    fitted: tuple[str, ...]
    held_out: tuple[str, ...]
    dropped: tuple[str, ...]

    @property
    def row(self) -> Row:
        """The row of the chosen tau."""
        return next(row for row in self.rows if row.tau == self.tau)

    def to_json(self) -> Json:
        """Plain figures, without the weights."""
        return {
            "tau": self.tau,
            "rows": [to_json(row) for row in self.rows],
            "single": self.single,
            "constant": self.constant,
            "gain": to_json(self.gain) if self.gain is not None else None,
            "held_out": to_json(self.regret) if self.regret is not None else None,
            "verdict": self.verdict.to_json() if self.verdict is not None else None,
            "queries": {
                "fitted": len(self.fitted), "held_out": len(self.held_out), "dropped": len(self.dropped)
            },
        }  # fmt: skip


@final
@dataclass(frozen=True, slots=True, eq=False)
class Cases:
    """The queries of a table that a fit can use: mean rewards [n, L] (NaN untried), repeats, two sides."""

    names: tuple[str, ...]
    workers: tuple[str, ...]
    rewards: Float[np.ndarray, "n workers"]
    counts: Int[np.ndarray, "n workers"]
    position: Int[np.ndarray, "n"]
    fit: Int[np.ndarray, "fitted"]
    held: Int[np.ndarray, "held"]
    dropped: tuple[str, ...]
    spread: float
    group: Int[np.ndarray, "n"]

    @property
    def measured(self) -> Float[np.ndarray, "n workers"]:
        """Mean rewards without what is only assumed of workers that start cold."""
        return np.where(self.counts > 0, self.rewards, np.nan)

    def worth(self, rows: Int[np.ndarray, "some"], *, assumed: bool) -> Float[np.ndarray, "workers"]:
        """Each worker's mean reward over the tasks of some queries; -inf without one.

        Of the queries that every worker has, where these are half of them or more: a worker that was tried on
        the easy ones only is not the best.
        """
        rewards = (self.rewards if assumed else self.measured)[rows]
        seen = ~np.isnan(rewards)
        whole = seen[:, seen.any(axis=0)].all(axis=1)
        if 2 * whole.sum() >= len(rows):
            rows, rewards, seen = rows[whole], rewards[whole], seen[whole]
        found = np.full(rewards.shape[1], -np.inf)
        for w in np.flatnonzero(seen.any(axis=0)):
            place = np.unique(self.group[rows][seen[:, w]], return_inverse=True)[1]
            found[w] = (np.bincount(place, rewards[seen[:, w], w]) / np.bincount(place)).mean()
        return found

    def best(self, rows: Int[np.ndarray, "some"]) -> int:
        """The best single worker of some queries, the first of equals."""
        return int(self.worth(rows, assumed=False).argmax())

    def folds(self, seed: int) -> list[tuple[Int[np.ndarray, "rest"], Int[np.ndarray, "part"]]]:
        """The fitted queries without a part of them, and that part; none for fewer than two tasks."""
        groups = np.unique(self.group[self.fit])
        if groups.size < 2:
            return []
        part = np.random.default_rng([seed, 7]).permutation(groups.size) % FOLDS
        of = part[np.searchsorted(groups, self.group[self.fit])]
        return [(self.fit[of != k], self.fit[of == k]) for k in np.unique(part)]

    def targets(self, tau: float, rows: Int[np.ndarray, "some"]) -> Targets:
        """Targets of some of them."""
        return targets(self.rewards[rows], self.counts[rows], tau, spread=self.spread)


def cases_of(table: OutcomeTable, settings: Stage1Settings, tests: Collection[str] = ()) -> Cases:
    """Check a table and lay it out for a fit. ``tests`` are queries that must not be among its.

    Queries of one task, and those whose texts are equal, stay on one side of the split.

    Raises: BadInput as ``OutcomeTable.check_fit``, or for a split that leaves a side empty.
    """
    unknown = sorted(set(settings.cold) & {w for w, seen in _tried_workers(table).items() if seen})
    if unknown:
        raise BadInput(
            f"worker {unknown[0]!r} is to start cold but has outcomes", hint="leave it out of cold"
        )
    workers = table.workers + tuple(name for name in settings.cold if name not in table.workers)
    table.check_fit(workers, tests=tests, cold=tuple(settings.cold), uneven=settings.uneven == "weigh")
    rbar, counts = table.means()
    extra = len(workers) - len(table.workers)
    rbar = np.concatenate([rbar, np.full((len(rbar), extra), np.nan)], axis=1)
    counts = np.concatenate([counts, np.zeros((len(counts), extra), dtype=np.int64)], axis=1)
    # Before cold workers are filled in: what is assumed of them is no outcome.
    usable = (~np.isnan(rbar)).sum(axis=1) >= 2
    for name, assumed in settings.cold.items():
        if not table.low <= assumed <= table.high:
            raise BadInput(f"the reward {assumed} assumed of {name!r} is outside {table.low} .. {table.high}")
        rbar[:, workers.index(name)] = assumed
    place = np.flatnonzero(usable)
    if len(place) < 2:
        raise BadInput("fewer than two queries have outcomes of two workers: there is nothing to learn")
    names = tuple(table.queries[i] for i in place)
    group = table.groups()[place]
    fit, held = _split(group, settings)
    dropped = tuple(table.queries[i] for i in np.flatnonzero(~usable))
    return Cases(
        names, workers, rbar[place], counts[place], place, fit, held, dropped, table.high - table.low, group
    )


def fit_stage1(
    table: OutcomeTable,
    states: Float[np.ndarray, "queries d"] | None = None,
    settings: Stage1Settings | None = None,
    *,
    tests: Collection[str] = (),
) -> Stage1:
    """Fit a head to a table, from ``states`` of its queries (one row each) or the table's own features.

    Raises: BadInput as :func:`cases_of`, or where there are neither states nor features.
    Source: arXiv:2606.21228, 3.1.2. The head's minimum is found exactly; choosing tau is ours.
    """
    plan = settings or Stage1Settings()
    h = table.features if states is None else np.asarray(states, dtype=np.float64)
    if h is None:
        raise BadInput(
            "the table has no features", hint="give hidden states, or a backbone and the queries' texts"
        )
    if len(h) != len(table.queries):
        raise BadInput(f"{len(h)} states for {len(table.queries)} queries")
    cases = cases_of(table, plan, tests)
    return _fit(h[cases.position], cases, plan)


def _fit(h: Float[np.ndarray, "n d"], cases: Cases, plan: Stage1Settings) -> Stage1:
    taus = plan.taus if plan.tau is None else (plan.tau,)
    ridges = plan.ridges if plan.ridge is None else (plan.ridge,)
    chosen = len(taus) * len(ridges) > 1 or plan.ridge is None
    folds = cases.folds(plan.seed) if chosen else []
    tried = [[_crossed(h, cases, folds, tau, ridge) for ridge in ridges] for tau in taus]
    rows = [_row(h, cases, min(of, key=lambda one: one.divergence)) for of in tried]
    best = max(range(len(rows)), key=lambda i: (-np.inf if (s := rows[i][0].skill) is None else s, -i))
    row, head = rows[best]
    gain: Gain | None = None
    if plan.ridge is None:
        crossed = next(one for one in tried[best] if one.ridge == row.ridge)
        gain = _gain(cases, [part for _, part in folds], crossed.picks)
    # One that names a single worker anyway should name the best: the mean of the targets can favour another.
    alike = np.unique(head.choose(h[cases.fit])).size == 1
    constant = plan.ridge is None and (alike or gain is None or not gain.pays)
    if constant:
        head = constant_head(cases, h.shape[1], row.tau)
    return Stage1(
        head, row.tau, tuple(one for one, _ in rows), cases.workers[cases.best(cases.fit)], constant, gain,
        served(head, h, cases), judged(head, h, cases),
        tuple(cases.names[i] for i in cases.fit), tuple(cases.names[i] for i in cases.held), cases.dropped,
    )  # fmt: skip


def constant_head(cases: Cases, width: int, tau: float) -> SelectionHead:
    """The head that reads nothing: its chances are the target of the workers' mean rewards.

    Not the mean of the targets, which can favour a worker that wins often and by little.
    """
    bias = cases.worth(cases.fit, assumed=True) / (tau * cases.spread)
    return SelectionHead(np.zeros((len(bias), width)), cases.workers, bias=bias - bias.mean())


@final
@dataclass(frozen=True, slots=True, eq=False)
class _Crossed:
    """A tau and ridge in the folds: divergence where not fitted, the constant's, and who was picked."""

    tau: float
    ridge: float
    divergence: float
    constant: float
    picks: tuple[tuple[Int[np.ndarray, "part"], int], ...]


def _crossed(
    h: Float[np.ndarray, "n d"],
    cases: Cases,
    folds: Sequence[tuple[Int[np.ndarray, "rest"], Int[np.ndarray, "part"]]],
    tau: float,
    ridge: float,
) -> _Crossed:
    lost, constant, weight, picks = 0.0, 0.0, 0.0, []
    for rest, part in folds:
        wanted, other = cases.targets(tau, rest), cases.targets(tau, part)
        head = _head(h[rest], wanted, ridge, cases.workers, steps=_ROUGH)
        lost += len(part) * mean_kl(head.probabilities(h[part]), other)
        constant += len(part) * mean_kl(np.tile(wanted.mean(), (len(part), 1)), other)
        weight += len(part)
        picks.append((head.choose(h[part]), cases.best(rest)))
    return _Crossed(tau, ridge, lost / max(weight, 1.0), constant / max(weight, 1.0), tuple(picks))


def _head(
    h: Float[np.ndarray, "n d"], wanted: Targets, ridge: float, workers: tuple[str, ...], steps: int = 1000
) -> SelectionHead:
    weights, bias = fit_weights(h, wanted, ridge, steps)
    return SelectionHead(weights, workers, bias=bias)


def _row(h: Float[np.ndarray, "n d"], cases: Cases, one: _Crossed) -> tuple[Row, SelectionHead]:
    wanted = cases.targets(one.tau, cases.fit)
    head = _head(h[cases.fit], wanted, one.ridge, cases.workers)
    fitted = mean_kl(head.probabilities(h[cases.fit]), wanted)
    skill = 1 - one.divergence / one.constant if one.constant > 0 else None
    if not cases.held.size:
        return Row(one.tau, one.ridge, fitted, None, None, skill), head
    other = cases.targets(one.tau, cases.held)
    held = mean_kl(head.probabilities(h[cases.held]), other)
    constant = mean_kl(np.tile(wanted.mean(), (len(cases.held), 1)), other)
    return Row(one.tau, one.ridge, fitted, held, constant, skill), head


def _gain(
    cases: Cases,
    parts: Sequence[Int[np.ndarray, "part"]],
    picks: Sequence[tuple[Int[np.ndarray, "part"], int]],
) -> Gain | None:
    """What picks of parts earn more than each part's best single worker; None for fewer than two tasks."""
    more, group = [], []
    for part, (chosen, single) in zip(parts, picks, strict=True):
        rewards = cases.measured[part]
        more.append(rewards[np.arange(len(part)), chosen] - rewards[:, single])
        group.append(cases.group[part])
    gaps = np.concatenate(more) if more else np.zeros(0)
    known = ~np.isnan(gaps)
    if not known.any():
        return None
    place = np.unique(np.concatenate(group)[known], return_inverse=True)[1]
    means = np.bincount(place, gaps[known]) / np.bincount(place)
    if means.size < 2:
        return None
    return Gain(float(means.mean()), float(means.std(ddof=1)) / float(np.sqrt(means.size)), int(means.size))


def judged(head: SelectionHead, h: Float[np.ndarray, "n d"], cases: Cases) -> Verdict | None:
    """The head beside the worker that was best on the fitted queries, on held-out ones; None as `served`."""
    whole = _whole_held(cases)
    if np.unique(cases.group[whole]).size < 2:
        return None
    return against_best_single(
        cases.rewards[whole], head.choose(h[whole]), cases.workers, cases.group[whole],
        single=cases.best(cases.fit),
    )  # fmt: skip


def served(head: SelectionHead, h: Float[np.ndarray, "n d"], cases: Cases) -> Regret | None:
    """Mean rewards on the held-out queries that every worker was tried on, each task counting once.

    None for fewer than two tasks.
    """
    whole = _whole_held(cases)
    if np.unique(cases.group[whole]).size < 2:
        return None
    return regret(cases.rewards[whole], head.choose(h[whole]), groups=cases.group[whole])


def _whole_held(cases: Cases) -> Int[np.ndarray, "whole"]:
    return np.asarray(cases.held[(cases.counts[cases.held] > 0).all(axis=1)])


def _tried_workers(table: OutcomeTable) -> dict[str, bool]:
    tried = table.counts().sum(axis=0)
    return {name: bool(count) for name, count in zip(table.workers, tried, strict=True)}


def _split(
    group: Int[np.ndarray, "n"], plan: Stage1Settings
) -> tuple[Int[np.ndarray, "fitted"], Int[np.ndarray, "held"]]:
    every = np.arange(len(group))
    if plan.held_out == 0:
        return every, every[:0]
    distinct = np.unique(group)
    count = max(1, round(plan.held_out * len(distinct)))
    if count >= len(distinct):
        raise BadInput(f"holding out {count} of {len(distinct)} distinct queries leaves none to fit")
    order = np.random.default_rng(plan.seed).permutation(len(distinct))
    held = np.isin(group, distinct[order[:count]])
    return every[~held], every[held]


# Stage 1 with the backbone: singular-value offsets trained by gradient together with the head.


@final
@dataclass(frozen=True, slots=True)
class JointSettings:
    """How offsets are trained: ``epochs`` over the fitted queries in batches, by Adam.

    ``rate`` is that of offsets, and of the head's rows in units of their root mean square. Every ``every``
    epochs the head is fitted exactly on the states of then.

    Raises: BadInput for a value out of range.
    """

    epochs: int = 20
    batch: int = 32
    rate: float = 0.02
    every: int = 2

    def __post_init__(self) -> None:
        if min(self.epochs, self.batch, self.every) < 1 or not self.rate > 0:
            raise BadInput("epochs, batch and every must be 1 or more, the rate positive")


@final
@dataclass(frozen=True, slots=True)
class Joint:
    """The best head with its offsets, stage 1 without them, and divergences (nats) epoch by epoch.

    ``curve`` has (epoch, trained, validated), epoch 0 without offsets: a fifth of the fitted tasks is kept
    from the training to pick the epoch by. ``best`` is the epoch kept; ``regret`` and ``verdict`` are of
    ``head`` on held-out queries, which had no say in it.
    """

    head: SelectionHead
    plain: Stage1
    curve: tuple[tuple[int, float, float], ...]
    best: int
    regret: Regret | None
    verdict: Verdict | None

    def to_json(self) -> Json:
        """Plain figures, without the weights."""
        return {"best": self.best, "curve": [list(row) for row in self.curve], "plain": self.plain.to_json()}


def fit_joint(
    table: OutcomeTable,
    backbone: RouterBackbone,
    transcripts: Sequence[Transcript],
    settings: Stage1Settings | None = None,
    training: JointSettings | None = None,
    *,
    progress: Progress = silent,
) -> Joint:
    """Fit a head to a table on a backbone's states, then move its singular values to make the fit better.

    ``transcripts`` are of the table's queries, one each. Matrices after the layer that is read (the output
    head) get no gradient: their offsets stay 0.

    Raises: BadInput and CannotDo as :func:`fit_stage1` and the backbone.
    Source: arXiv:2606.21228, 3.1.2 (head and offsets by the same loss); the exact refits are ours.
    """
    plan, steps = settings or Stage1Settings(), training or JointSettings()
    layer = backbone.format.layer
    if layer == "raw":
        raise CannotDo("offsets are not trained through the state before the final norm", hint="layer=-1")
    states = np.asarray(backbone.states(transcripts, progress), dtype=np.float64)
    if len(states) != len(table.queries):
        raise BadInput(f"{len(states)} states for {len(table.queries)} queries")
    cases = cases_of(table, plan)
    plain = _fit(states[cases.position], cases, plan)
    folds = cases.folds(plan.seed)
    if not folds:
        raise BadInput("one task leaves none to pick the epoch by", hint="fit on at least two")
    moved = backbone.adapter()
    blocks = int(moved.model.config.get_text_config().num_hidden_layers)
    ids = [backbone.upto(transcripts[i]) for i in cases.position]
    run = _Run(moved, ids, layer_number(layer, blocks), cases, plain.tau, plain.row.ridge, *folds[0])
    offsets, curve, best = run.train(steps, plan.seed, progress)
    if best == 0 or (plain.constant and not run.pays(offsets)):
        return Joint(plain.head.on(backbone), plain, curve, 0, plain.regret, plain.verdict)
    head = run.refit(offsets, cases.fit)
    h = np.full((len(cases.names), head.width), np.nan)
    if cases.held.size:
        h[cases.held] = run.all_states(torch.as_tensor(offsets).to(moved.zeros()), cases.held)
    return Joint(
        head.on(backbone).with_offsets(tuple(moved.counts), offsets), plain, curve, best,
        served(head, h, cases), judged(head, h, cases),
    )  # fmt: skip


@final
@dataclass(frozen=True, slots=True)
class _Run:
    adapter: SvfAdapter
    ids: list[IntArray]
    layer: int
    cases: Cases
    tau: float
    ridge: float
    trained: Int[np.ndarray, "trained"]
    validated: Int[np.ndarray, "validated"]

    def train(
        self, steps: JointSettings, seed: int, progress: Progress
    ) -> tuple[Float[np.ndarray, "offsets"], tuple[tuple[int, float, float], ...], int]:
        """Best offsets, the curve, and the epoch they are of."""
        fit = self.trained
        offsets = self.adapter.zeros().requires_grad_(True)
        first = self.refit(offsets.detach().cpu().numpy(), fit)
        assert first.bias is not None  # fitted with one
        scale = first.rms or 1.0
        # In units of the head's own scale, for Adam's steps are as long for every coordinate.
        rows, bias = (
            torch.tensor(part / scale, dtype=offsets.dtype, device=offsets.device, requires_grad=True)
            for part in (first.weights, first.bias)
        )
        optimizer = torch.optim.Adam([offsets, rows, bias], lr=steps.rate)
        rng = np.random.default_rng([seed, 5])
        curve = [self.measure(0, offsets)]
        best, kept = 0, offsets.detach().clone()
        for epoch in range(1, steps.epochs + 1):
            progress("moving singular values", epoch - 1, steps.epochs)
            order = rng.permutation(len(fit))
            for start in range(0, len(order), steps.batch):
                part = fit[order[start : start + steps.batch]]
                scores = (self.states(offsets, part) @ rows.T + bias) * scale
                loss = kl(scores, self.cases.targets(self.tau, part))
                optimizer.zero_grad()
                loss.backward()  # type: ignore[no-untyped-call]
                optimizer.step()
                with torch.no_grad():
                    offsets.clamp_(min=LEAST_OFFSET)
            if epoch % steps.every == 0 or epoch == steps.epochs:
                curve.append(self.measure(epoch, offsets))
                if curve[-1][2] < next(row[2] for row in curve if row[0] == best):
                    best, kept = epoch, offsets.detach().clone()
        progress("moving singular values", steps.epochs, steps.epochs)
        return kept.cpu().numpy().astype(np.float64), tuple(curve), best

    def refit(self, offsets: Float[np.ndarray, "offsets"], rows: Int[np.ndarray, "some"]) -> SelectionHead:
        """The exact head on some queries' states under offsets."""
        states = self.all_states(torch.as_tensor(offsets).to(self.adapter.zeros()), rows)
        return _head(states, self.cases.targets(self.tau, rows), self.ridge, self.cases.workers)

    def measure(self, epoch: int, offsets: Tensor) -> tuple[int, float, float]:
        """Divergences of the exact head under offsets."""
        head = self.refit(offsets.detach().cpu().numpy(), self.trained)
        return epoch, self._kl(head, offsets, self.trained), self._kl(head, offsets, self.validated)

    def pays(self, offsets: Float[np.ndarray, "offsets"]) -> bool:
        """Whether the exact head under offsets earns more than one worker where it was not trained."""
        head = self.refit(offsets, self.trained)
        h = self.all_states(torch.as_tensor(offsets).to(self.adapter.zeros()), self.validated)
        gain = _gain(self.cases, [self.validated], [(head.choose(h), self.cases.best(self.trained))])
        return gain is not None and gain.pays

    def _kl(self, head: SelectionHead, offsets: Tensor, part: Int[np.ndarray, "some"]) -> float:
        wanted: Targets = self.cases.targets(self.tau, part)
        return mean_kl(head.probabilities(self.all_states(offsets, part)), wanted)

    def all_states(self, offsets: Tensor, part: Int[np.ndarray, "some"]) -> Float[np.ndarray, "some d"]:
        """States of queries under offsets, without gradients."""
        batch = 64
        with torch.no_grad():
            found = [
                self.states(offsets.detach(), part[i : i + batch]).double().cpu().numpy()
                for i in range(0, len(part), batch)
            ]
        return np.concatenate(found)

    def states(self, offsets: Tensor, part: Int[np.ndarray, "some"]) -> Float[Tensor, "some d"]:
        """States of a batch of queries, differentiable in the offsets."""
        chosen = [self.ids[i] for i in part]
        longest = max(len(ids) for ids in chosen)
        tokens = np.zeros((len(chosen), longest), dtype=np.int64)
        mask = np.zeros_like(tokens)
        for row, ids in enumerate(chosen):
            tokens[row, : len(ids)], mask[row, : len(ids)] = ids, 1
        # Padding stands on the right, where a causal model's last real token does not see it.
        place = offsets.device
        states = self.adapter.states(
            offsets, torch.as_tensor(tokens, device=place), torch.as_tensor(mask, device=place), self.layer
        )
        last = torch.as_tensor(mask.sum(axis=1) - 1, device=place)
        return states[torch.arange(len(chosen), device=place), last]
