"""Stage 1: a selection head from an outcome table, alone or together with its backbone."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal, TypeAlias, final

import networkx as nx
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
from refork_methods.route.table import OutcomeTable, task_of

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
    states: Float[np.ndarray, "n d"], wanted: Targets, ridge: float = 0.0
) -> Float[np.ndarray, "workers d"]:
    """The bias-free map [L, d] that minimises the KL plus ``ridge / 2`` times its mean square score.

    Convex: L-BFGS in float64 finds the minimum. The ridge is of the scores, not of the weights, so that it
    means the same whatever the scale of the states. Where several maps give the same scores, the smallest.

    Raises: BadInput for a negative ridge, states that are not finite or all zero, or another number of rows.
    """
    if not (np.isfinite(ridge) and ridge >= 0):
        raise BadInput(f"ridge is {ridge!r}; it must be 0 or more")
    h = np.asarray(states, dtype=np.float64)
    if h.ndim != 2 or len(h) != len(wanted.weight) or not np.isfinite(h).all() or not h.any():
        raise BadInput(f"states {h.shape} are not finite rows, and some, for {len(wanted.weight)} queries")
    # In white states the problem is about as round as it gets: tens of steps, where it took thousands.
    left, size, right = np.linalg.svd(h, full_matrices=False)
    # As numpy tells a matrix's rank: directions below it are rounding, and dividing by them would blow it up.
    kept = size > size[0] * np.finfo(np.float64).eps * max(h.shape)
    x = torch.as_tensor(left[:, kept] * np.sqrt(len(h)))
    w = torch.zeros((wanted.chances.shape[1], x.shape[1]), dtype=torch.float64, requires_grad=True)
    optimizer = torch.optim.LBFGS(
        [w], max_iter=1000, history_size=30, tolerance_grad=1e-8, tolerance_change=1e-12,
        line_search_fn="strong_wolfe",
    )  # fmt: skip

    def closure() -> Tensor:
        optimizer.zero_grad()
        scores = x @ w.T
        loss = kl(scores, wanted) + ridge / 2 * scores.square().mean()
        loss.backward()  # type: ignore[no-untyped-call]
        return loss

    optimizer.step(closure)  # type: ignore[no-untyped-call]
    return np.asarray((w.detach().numpy() * np.sqrt(len(h)) / size[kept]) @ right[kept])


# Stage 1: a selection head from an outcome table, by the divergence from softmax targets of mean rewards.

Uneven: TypeAlias = Literal["weigh", "refuse"]
TAUS = (0.05, 0.1, 0.2, 0.5, 1.0)


@final
@dataclass(frozen=True, slots=True)
class Stage1Settings:
    """How a head is fitted to a table.

    ``tau`` is the targets' temperature in units of the rewards' range; None chooses one of ``taus`` on
    held-out queries. ``held_out`` is the share of queries kept for that and for the report, 0 for none.
    ``ridge`` is on the mean square score. Where queries lack workers or repeats are uneven, ``weigh`` weights
    them by how much was measured, ``refuse`` stops. ``cold`` gives workers without any outcome the mean
    reward to assume for them on every query.
    """

    tau: float | None = 0.2
    taus: tuple[float, ...] = TAUS
    held_out: float = 0.2
    ridge: float = 1e-4
    uneven: Uneven = "weigh"
    cold: Mapping[str, float] = field(default_factory=dict)
    seed: int = 0

    def __post_init__(self) -> None:
        if self.uneven not in ("weigh", "refuse"):
            raise BadInput(f"uneven is {self.uneven!r}", hint="'weigh' or 'refuse'")
        if not 0 <= self.held_out < 1:
            raise BadInput(f"held_out is {self.held_out}; it must be a share in [0, 1)")
        if self.tau is None and (self.held_out == 0 or not self.taus):
            raise BadInput("choosing tau needs held-out queries and some taus to choose from")


@final
@dataclass(frozen=True, slots=True)
class Row:
    """One tau: divergence on fitted and held-out queries (nats), and of the best constant policy there.

    ``skill`` is the share of the constant policy's held-out divergence that the states explain: 1 is all, 0
    none. Taus are compared by it: divergences of different taus have different targets, and shrink with tau
    whatever the head knows.
    """

    tau: float
    fitted: float
    held: float | None
    constant: float | None
    skill: float | None


@final
@dataclass(frozen=True, slots=True)
class Stage1:
    """A fitted head and what is known of it.

    ``rows`` has every tau tried; ``regret`` are mean rewards on held-out queries (of argmax, as served; of
    the best single worker; of the best worker of each query by its measured mean, which flatters it), None
    where too few held-out queries have every worker. ``dropped`` ones had outcomes of fewer than two workers.
    """

    head: SelectionHead
    tau: float
    rows: tuple[Row, ...]
    regret: Regret | None
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
            "held_out": to_json(self.regret) if self.regret is not None else None,
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
    fit, held = _split(names, _groups(table, place), settings)
    dropped = tuple(table.queries[i] for i in np.flatnonzero(~usable))
    return Cases(
        names, workers, rbar[place], counts[place], place, fit, held, dropped, table.high - table.low
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
    h = h[cases.position]
    tried = plan.taus if plan.tau is None else (plan.tau,)
    made = [(tau, fit_weights(h[cases.fit], cases.targets(tau, cases.fit), plan.ridge)) for tau in tried]
    rows = tuple(_row(tau, SelectionHead(w, cases.workers), h, cases) for tau, w in made)
    best = max(range(len(rows)), key=lambda i: (_score(rows[i]), -i))
    head = SelectionHead(made[best][1], cases.workers)
    return Stage1(
        head, rows[best].tau, rows, served(head, h, cases),
        tuple(cases.names[i] for i in cases.fit), tuple(cases.names[i] for i in cases.held), cases.dropped,
    )  # fmt: skip


def _row(tau: float, head: SelectionHead, h: Float[np.ndarray, "n d"], cases: Cases) -> Row:
    wanted = cases.targets(tau, cases.fit)
    fitted = mean_kl(head.probabilities(h[cases.fit]), wanted)
    if not cases.held.size:
        return Row(tau, fitted, None, None, None)
    other = cases.targets(tau, cases.held)
    held = mean_kl(head.probabilities(h[cases.held]), other)
    constant = mean_kl(np.tile(wanted.mean(), (len(cases.held), 1)), other)
    return Row(tau, fitted, held, constant, 1 - held / constant if constant > 0 else None)


def _score(row: Row) -> float:
    return -np.inf if row.skill is None else row.skill


def served(head: SelectionHead, h: Float[np.ndarray, "n d"], cases: Cases) -> Regret | None:
    """Mean rewards on the held-out queries that every worker was tried on, each task counting once.

    None for fewer than two tasks.
    """
    tried = cases.counts[cases.held] > 0
    whole = cases.held[tried.all(axis=1)]
    names, tasks = np.unique([task_of(cases.names[i]) for i in whole], return_inverse=True)
    if names.size < 2:
        return None
    return regret(cases.rewards[whole], head.choose(h[whole]), groups=tasks)


def _tried_workers(table: OutcomeTable) -> dict[str, bool]:
    tried = table.counts().sum(axis=0)
    return {name: bool(count) for name, count in zip(table.workers, tried, strict=True)}


def _groups(table: OutcomeTable, place: Int[np.ndarray, "n"]) -> list[int]:
    """What stays together in the split: queries of one task, and those whose texts are equal."""
    texts = table.texts or (None,) * len(table.queries)
    together = nx.Graph()
    for i in place:
        query = ("query", i)
        together.add_edge(query, ("task", task_of(table.queries[i])))
        if texts[i]:
            together.add_edge(query, ("text", texts[i]))
    group = {
        member: number for number, part in enumerate(nx.connected_components(together)) for member in part
    }
    return [group["query", i] for i in place]


def _split(
    names: tuple[str, ...], groups: list[int], plan: Stage1Settings
) -> tuple[Int[np.ndarray, "fitted"], Int[np.ndarray, "held"]]:
    every = np.arange(len(names))
    if plan.held_out == 0:
        return every, every[:0]
    distinct = sorted(set(groups))
    count = max(1, round(plan.held_out * len(distinct)))
    if count >= len(distinct):
        raise BadInput(f"holding out {count} of {len(distinct)} distinct queries leaves none to fit")
    order = np.random.default_rng(plan.seed).permutation(len(distinct))
    kept = {distinct[i] for i in order[:count]}
    held = np.array([group in kept for group in groups])
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

    ``curve`` has (epoch, fitted, held out), epoch 0 without offsets; held out is None where nothing was.
    ``best`` is the epoch kept: of the least held-out divergence, so that figure is somewhat flattered.
    """

    head: SelectionHead
    plain: Stage1
    curve: tuple[tuple[int, float, float | None], ...]
    best: int

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
    states = backbone.states(transcripts, progress)
    plain = fit_stage1(table, states, plan)
    cases = cases_of(table, plan)
    moved = backbone.adapter()
    blocks = int(moved.model.config.get_text_config().num_hidden_layers)
    ids = [backbone.upto(transcripts[i]) for i in cases.position]
    run = _Run(moved, ids, layer_number(layer, blocks), cases, plain.tau, plan.ridge)
    offsets, curve, best = run.train(plain.head.weights, steps, plan.seed, progress)
    if best == 0:
        return Joint(plain.head.on(backbone), plain, curve, 0)
    head = plain.head.with_weights(run.refit(offsets)).on(backbone)
    return Joint(head.with_offsets(tuple(moved.counts), offsets), plain, curve, best)


@final
@dataclass(frozen=True, slots=True)
class _Run:
    adapter: SvfAdapter
    ids: list[IntArray]
    layer: int
    cases: Cases
    tau: float
    ridge: float

    def train(
        self, weights: Float[np.ndarray, "workers d"], steps: JointSettings, seed: int, progress: Progress
    ) -> tuple[Float[np.ndarray, "offsets"], tuple[tuple[int, float, float | None], ...], int]:
        """Best offsets, the curve, and the epoch they are of."""
        fit = self.cases.fit
        scale = float(np.sqrt(np.mean(np.square(weights)))) or 1.0
        offsets = self.adapter.zeros().requires_grad_(True)
        # In units of the head's own scale, for Adam's steps are as long for every coordinate.
        rows = torch.tensor(weights / scale, dtype=offsets.dtype, device=offsets.device, requires_grad=True)
        optimizer = torch.optim.Adam([offsets, rows], lr=steps.rate)
        rng = np.random.default_rng([seed, 5])
        curve = [self.measure(0, offsets)]
        best, kept = 0, offsets.detach().clone()
        for epoch in range(1, steps.epochs + 1):
            progress("moving singular values", epoch - 1, steps.epochs)
            order = rng.permutation(len(fit))
            for start in range(0, len(order), steps.batch):
                part = fit[order[start : start + steps.batch]]
                loss = kl(self.states(offsets, part) @ rows.T * scale, self.cases.targets(self.tau, part))
                optimizer.zero_grad()
                loss.backward()  # type: ignore[no-untyped-call]
                optimizer.step()
                with torch.no_grad():
                    offsets.clamp_(min=LEAST_OFFSET)
            if epoch % steps.every == 0 or epoch == steps.epochs:
                curve.append(self.measure(epoch, offsets))
                if _better(curve[-1], next(row for row in curve if row[0] == best)):
                    best, kept = epoch, offsets.detach().clone()
        progress("moving singular values", steps.epochs, steps.epochs)
        return kept.cpu().numpy().astype(np.float64), tuple(curve), best

    def refit(self, offsets: Float[np.ndarray, "offsets"]) -> Float[np.ndarray, "workers d"]:
        """The exact head on the fitted queries' states under offsets."""
        fit = self.cases.fit
        states = self.all_states(torch.as_tensor(offsets).to(self.adapter.zeros()), fit)
        return fit_weights(states, self.cases.targets(self.tau, fit), self.ridge)

    def measure(self, epoch: int, offsets: Tensor) -> tuple[int, float, float | None]:
        """Divergences of the exact head under offsets."""
        weights = self.refit(offsets.detach().cpu().numpy())
        fitted = self._kl(weights, offsets, self.cases.fit)
        held = self._kl(weights, offsets, self.cases.held) if self.cases.held.size else None
        return epoch, fitted, held

    def _kl(
        self, weights: Float[np.ndarray, "workers d"], offsets: Tensor, part: Int[np.ndarray, "some"]
    ) -> float:
        head = SelectionHead(weights, self.cases.workers)
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


def _better(row: tuple[int, float, float | None], than: tuple[int, float, float | None]) -> bool:
    if row[2] is None or than[2] is None:
        return row[1] < than[1]
    return row[2] < than[2]
