"""Stage 1: a selection head from an outcome table, by the divergence from softmax targets of mean rewards."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from typing import Literal, TypeAlias, final

import networkx as nx
import numpy as np
from jaxtyping import Float, Int

from refork.decide import Regret, regret
from refork.errors import BadInput
from refork.plain import to_json
from refork.types import Json
from refork_methods.route.head import SelectionHead
from refork_methods.route.table import OutcomeTable, task_of
from refork_methods.route.targets import Targets, fit_weights, mean_kl, targets

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
    place: Int[np.ndarray, "n"]
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
    unknown = sorted(set(settings.cold) & {w for w, seen in _seen(table).items() if seen})
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
    h = h[cases.place]
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
    """Mean rewards on the held-out queries that every worker was tried on; None for fewer than two."""
    tried = cases.counts[cases.held] > 0
    whole = cases.held[tried.all(axis=1)]
    if whole.size < 2:
        return None
    return regret(cases.rewards[whole], head.choose(h[whole]))


def _seen(table: OutcomeTable) -> dict[str, bool]:
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
