"""How many drafts of each request to verify, so that the batch gains the most tokens per second.

A length may depend on what was there before the token it admits was drawn, and on nothing else: only then
is the distribution of the output that of plain decoding.

Source: arXiv 2607.05147, Algorithm 1.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, Protocol, TypeAlias, final, get_args

import numpy as np
from jaxtyping import Float, Int
from numpy.typing import NDArray

from refork.errors import BadInput, CannotDo
from refork.plain import content_hash
from refork.stats.results import Array
from refork.types import Json
from refork_methods.speculate.step_cost import StepCost

Mode: TypeAlias = Literal[
    "early_stop", "stale_topk", "context_only", "static_threshold", "fixed", "top_k", "vllm"
]
Lengths: TypeAlias = NDArray[np.int64]
#: The margin for tables that were measured on a machine.
MEASURED = 1.1


class Scheduler(Protocol):
    """Says how long a prefix of each request's drafts is verified."""

    def drafts(self, requests: int, recent: Float[Array, "g"] | None = None) -> bool:
        """Whether this round should draft at all; asked before anything of the round is drawn."""
        ...

    def plan(
        self, survival: Float[Array, "R g"], limits: Int[Array, "R"] | None = None, others: int = 0
    ) -> Lengths:
        """Lengths [R], 0 .. g; ``limits`` are the most that each request has room for.

        ``others`` are requests of the same pass that say one token each, without drafts.
        """
        ...


def survival_of(confidence: Float[Array, "R g"]) -> Float[np.ndarray, "R g"]:
    """Chances a[r, j] that the first j drafts all survive, from conditional ones c[r, j] in [0, 1].

    Raises:
        BadInput: NaN, or a confidence outside [0, 1].
    """
    return np.asarray(np.cumprod(_chances(confidence, "confidence"), axis=1))


def throughput(lengths: Int[Array, "R"], survival: Float[Array, "R g"], cost: StepCost) -> float:
    """Theta: expected tokens per second of one step with these lengths.

    Raises:
        BadInput: lengths outside 0 .. g, or a step outside the table.
    """
    requests, block = survival.shape
    if len(lengths) != requests or (lengths < 0).any() or (lengths > block).any():
        raise BadInput(f"every one of {requests} requests needs a length from 0 to {block}")
    gained = survival[np.arange(block) < np.asarray(lengths)[:, None]].sum()
    return float((requests + gained) * cost.sps(np.array([requests + lengths.sum()]), requests)[0])


def ranked(survival: Float[Array, "R g"]) -> tuple[Int[np.ndarray, "n"], Float[np.ndarray, "n"]]:
    """Requests and survivals of the candidates above 0, in the order (-a, position, request).

    The order of equal values is what keeps prefixes whole: confidences of exactly 1 would else admit a second
    draft before the first (ours).
    """
    # Position by position, so that the stable sort leaves equal values in the order of their positions.
    flat = survival.T.ravel()
    order = np.argsort(-flat, kind="stable")[: np.count_nonzero(flat > 0)]
    return np.asarray(order % len(survival)), np.asarray(flat[order])


def path(
    values: Float[Array, "n"], requests: int, cost: StepCost, others: int = 0
) -> Float[np.ndarray, "n+1"]:
    """Theta after 0, 1, ... n candidates were admitted in their order; ``others`` say one token each."""
    tau = requests + others + np.concatenate([[0.0], np.cumsum(values)])
    return np.asarray(tau * cost.sps(requests + others + np.arange(len(tau)), requests, others))


def early_stop(survival: Float[Array, "R g"], cost: StepCost, others: int = 0) -> Lengths:
    """Algorithm 1: admit drafts in descending survival until one more does not raise Theta.

    Exact in distribution for any table. Optimal where Theta rises to one peak and falls (no lengths are
    better).

    Source: arXiv 2607.05147, Algorithm 1; deviates in the order of equal values (see :func:`ranked`) and in
        the draft's cost, a constant of the step that is added where the table knows it.
    """
    who, values = ranked(survival)
    theta = path(values, len(survival), cost, others)
    rises = theta[1:] > theta[:-1]
    # argmin finds the first candidate that does not raise Theta; where all do it would answer 0.
    return _admit(who, len(rises) if rises.all() else int(rises.argmin()), len(survival))


def top_k(survival: Float[Array, "R g"], budget: int) -> Lengths:
    """The ``budget`` likeliest drafts of the batch; exact where the past alone sets the budget."""
    who, _ = ranked(survival)
    return _admit(who, min(budget, len(who)), len(survival))


def global_search(survival: Float[Array, "R g"], cost: StepCost, others: int = 0) -> Lengths:
    """The best prefix of the ranking, looking past dips of Theta.

    Exact in distribution only where no survival depends on a token of this round.
    """
    who, values = ranked(survival)
    return _admit(who, int(path(values, len(survival), cost, others).argmax()), len(survival))


def _admit(who: Array, count: int, requests: int) -> Lengths:
    return np.bincount(who[:count], minlength=requests).astype(np.int64)


@dataclass(frozen=True, slots=True)
class _Past:
    """Ranked survivals of an earlier step of ``requests`` with up to ``block`` drafts each."""

    requests: int
    block: int
    values: Array

    def scaled(self, requests: int) -> Array:
        """As those of a batch with so many requests."""
        values, before = self.values, self.requests
        if before == requests or not len(values):
            return values
        count = round(len(values) * requests / before)
        places = (np.arange(count) + 0.5) * before / requests - 0.5
        return np.interp(places, np.arange(len(values)), values)


@final
class PrefixScheduler:
    """A scheduler with one of seven rules.

    - ``early_stop``: Algorithm 1 on the current step.
    - ``stale_topk``: how many drafts is decided by a global search on confidences of ``staleness`` steps
      ago (1 is enough for exactness; the paper's engine uses 2), which drafts by the current ones. Where
      there was no such step, or all had less left to say than now, by ``early_stop``.
    - ``context_only``: a global search on the current step, for confidence heads that read no drafted token.
    - ``static_threshold``: drafts whose survival is at least ``threshold``; ``fixed``: ``length`` of every
      request; ``top_k``: the ``budget`` likeliest drafts of the batch.
    - ``vllm``: vLLM's rule, stale_topk one step stale; before there is a past it verifies everything.

    ``beyond`` says what happens where the table ends: ``refuse``, or ``cap`` what is verified (and drafted
    for). ``retry``: after so many rounds in a row without drafts one is drafted, to see whether times have
    changed. ``margin``: drafting must promise so many times what plain steps give. Of a measured table take
    MEASURED: its times are not exact, and drafts make some branches end early, so that a batch that nobody
    joins waits for its slowest.

    Raises:
        BadInput: an unknown mode, or a rule without its number.
    Source: arXiv 2607.05147 (Algorithm 1, stale form); vLLM pull request 47808; ``drafts`` is ours.
    """

    def __init__(
        self,
        step_cost: StepCost | None,
        mode: Mode = "early_stop",
        *,
        staleness: int = 1,
        threshold: float | None = None,
        length: int | None = None,
        budget: int | None = None,
        beyond: Literal["refuse", "cap"] = "refuse",
        retry: int = 64,
        margin: float = 1.0,
    ) -> None:
        if mode not in get_args(Mode):
            raise BadInput(f"unknown schedule {mode!r}", hint=", ".join(get_args(Mode)))
        if mode == "static_threshold" and (threshold is None or not 0 <= threshold <= 1):
            raise BadInput("a static threshold needs a threshold in [0, 1]")
        if mode == "fixed" and (length is None or length < 0):
            raise BadInput("a fixed schedule needs a length, 0 or more")
        if mode == "top_k" and (budget is None or budget < 0):
            raise BadInput("a fixed top-K needs a budget, 0 or more")
        if step_cost is None and mode not in ("static_threshold", "fixed", "top_k"):
            raise BadInput(f"{mode} needs a step-cost table", hint="refork speculate profile")
        if staleness < 1 or retry < 1 or margin < 1 or beyond not in ("refuse", "cap"):
            raise BadInput("staleness, retry and margin are at least 1; beyond is 'refuse' or 'cap'")
        self.cost, self.mode, self.threshold, self.length = step_cost, mode, threshold, length
        self.beyond, self.retry, self.budget, self.margin = beyond, retry, budget, margin
        self.staleness = 1 if mode == "vllm" else staleness
        self._past: deque[_Past] = deque(maxlen=self.staleness)
        self._plain = 0

    def to_json(self) -> Json:
        """The rule with the numbers that it was given, and a digest of its table."""
        told = {"mode": self.mode, "beyond": self.beyond, "retry": self.retry, "margin": self.margin}
        told |= {"staleness": self.staleness} if self.mode == "stale_topk" else {}
        told |= {
            name: value
            for name in ("threshold", "length", "budget")
            if (value := getattr(self, name)) is not None
        }
        return told | {"cost": None if self.cost is None else content_hash(self.cost.to_json())}

    def on(self, step_cost: StepCost) -> PrefixScheduler:
        """The same rule with another table and no past."""
        return PrefixScheduler(
            step_cost,
            self.mode,
            staleness=self.staleness,
            threshold=self.threshold,
            length=self.length,
            budget=self.budget,
            beyond=self.beyond,
            retry=self.retry,
            margin=self.margin,
        )

    def check_head(self, reads_drafts: bool) -> None:
        """Refuse a confidence head that reads drafted tokens where the rule would leak them.

        Raises:
            CannotDo: a same-step global search on such confidences.
        """
        if reads_drafts and self.mode == "context_only":
            raise CannotDo(
                "a same-step search over confidences that read drafted tokens "
                "changes the output's distribution",
                hint="train with confidence_with_markov off, or use early_stop or stale_topk",
            )

    def drafts(self, requests: int, recent: Float[Array, "g"] | None = None) -> bool:
        """Whether drafting pays, from the past alone: the best step with drafts against a plain one.

        ``recent`` [g] is how often the first j drafts survived lately, in place of the last confidences.
        True where there is no past yet. Counts its own refusals: ask once a round. Where not even drafts that
        are all kept would pay, nothing is tried.

        Raises:
            BadInput: more requests than the table covers, where it is not to be capped.
        """
        if requests == 0 or self.cost is None:
            return requests > 0
        if not self._room(requests):
            return False
        if recent is not None:
            # Every chance once for each request: they fall along the block, so this is in the path's order.
            values = np.repeat(_survivals(np.asarray(recent)[None])[0], requests)
        elif self._past:
            values = self._past[-1].scaled(requests)
        else:
            return True
        values = values[: self.cost.range[1] - requests]
        plain = self.margin * requests / float(self.cost.verify(np.array([requests]))[0])
        if path(np.ones(len(values)), requests, self.cost).max() <= plain:
            return False
        pays = bool(path(values, requests, self.cost).max() > plain)
        self._plain = 0 if pays or self._plain >= self.retry else self._plain + 1
        return self._plain == 0

    def plan(
        self, survival: Float[Array, "R g"], limits: Int[Array, "R"] | None = None, others: int = 0
    ) -> Lengths:
        """Lengths [R] of this step; what later steps need is remembered.

        ``others`` are requests of the same pass that say one token each, without drafts.

        Raises:
            BadInput: survivals outside [0, 1], NaN, or rising along a block; a step outside the table.
        """
        survival = _survivals(np.asarray(survival, dtype=np.float64))
        requests, block = survival.shape
        room = np.full(requests, block) if limits is None else np.clip(np.asarray(limits), 0, block)
        if len(room) != requests:
            raise BadInput(f"{len(room)} limits for {requests} requests")
        if self.mode == "fixed":
            return np.asarray(np.minimum(room, self.length or 0), dtype=np.int64)
        within = np.arange(block) < room[:, None]
        if self.mode == "static_threshold":
            return np.asarray((within & (survival >= (self.threshold or 0.0))).sum(axis=1), dtype=np.int64)
        if not within.any():
            return np.zeros(requests, dtype=np.int64)
        survival = np.where(within, survival, 0.0)
        if self.mode == "top_k":
            return top_k(survival, self.budget or 0)
        return self._searched(survival, others)

    def _searched(self, survival: Array, others: int) -> Lengths:
        """Lengths by a rule that looks at the table."""
        cost, (requests, block) = self._table(), survival.shape
        most = self._covered(cost, requests, block, others)
        if most == 0:
            return np.zeros(requests, dtype=np.int64)
        if most < survival.size:  # so many of the likeliest at most: no token is read to know it
            kept = top_k(survival, most)
            survival = np.where(np.arange(block) < kept[:, None], survival, 0.0)
        values = ranked(survival)[1]
        # What was seen where less was left to say knows nothing of the places behind.
        short = self.mode == "stale_topk" and any(past.block < block for past in self._past)
        full = len(self._past) == self.staleness and not short
        if self.mode == "context_only":
            lengths = global_search(survival, cost, others)
        elif self.mode == "early_stop" or (self.mode == "stale_topk" and not full):
            lengths = early_stop(survival, cost, others)
        elif not full:
            lengths = (survival > 0).sum(axis=1)
        else:
            stale = self._past[0].scaled(requests)[:most]
            lengths = top_k(survival, int(path(stale, requests, cost, others).argmax()))
        self._past.append(_Past(requests, block, values))
        return lengths

    def _table(self) -> StepCost:
        if self.cost is None:
            raise BadInput(f"{self.mode} needs a step-cost table")
        return self.cost

    def _room(self, requests: int, others: int = 0) -> bool:
        """Whether the table holds steps of so many requests, where it is to be capped."""
        low, high = self._table().range
        inside = low <= requests + others <= high and self._table().drafts_for(requests)
        return inside or self.beyond == "refuse"

    def _covered(self, cost: StepCost, requests: int, block: int, others: int) -> int:
        """How many drafts of a step the table covers."""
        if cost.covers(requests, block, others):
            return requests * block
        low, high = cost.range
        fewest = requests + others
        if self.beyond == "refuse":
            raise BadInput(
                f"{requests} requests with {block} drafts each need {fewest} to {fewest + requests * block} "
                f"tokens in a pass; the table covers {low} to {high}",
                hint="profile larger shapes (refork speculate profile --tokens, --requests), or beyond='cap'",
            )
        return max(0, high - fewest) if self._room(requests, others) else 0


def _chances(values: Array, what: str) -> NDArray[np.float64]:
    """Two-dimensional values in [0, 1]."""
    array = np.asarray(values, dtype=np.float64)
    if array.ndim != 2:
        raise BadInput(f"{what} must be [requests, block], not {array.shape}")
    bad = ~((array >= 0) & (array <= 1))
    if bad.any():
        row, column = (int(i) for i in np.argwhere(bad)[0])
        raise BadInput(
            f"{what} {array[row, column]} is outside [0, 1]", where=f"request {row}, position {column + 1}"
        )
    return array


def _survivals(survival: Array) -> NDArray[np.float64]:
    """Survivals [R, g] in [0, 1] that never rise along a block."""
    array = _chances(survival, "survival")
    rising = np.diff(array, axis=1) > 0
    if rising.any():
        row, column = (int(i) for i in np.argwhere(rising)[0])
        raise BadInput(
            f"survival rises from {array[row, column]} to {array[row, column + 1]}",
            where=f"request {row}, position {column + 2}",
            hint="give cumulative chances (survival_of), not conditional ones",
        )
    return array


# Schedules by name, as the command line and recipes give them.


def schedule_of(name: str, cost: StepCost) -> PrefixScheduler:
    """The schedule of a name: ``early_stop``, ``stale_topk:2``, ``fixed:4``, ``static_threshold:0.5``.

    Raises:
        BadInput: no such rule, or a number that is none.
    """
    mode, _, number = name.partition(":")
    known = get_args(Mode)
    if mode not in known:
        raise BadInput(f"there is no schedule {name!r}", hint=", ".join(known))
    try:
        if mode == "fixed":
            return PrefixScheduler(cost, "fixed", length=int(number))
        if mode == "top_k":
            return PrefixScheduler(cost, "top_k", budget=int(number))
        if mode == "static_threshold":
            return PrefixScheduler(cost, "static_threshold", threshold=float(number))
        if mode == "stale_topk" and number:
            return PrefixScheduler(cost, "stale_topk", staleness=int(number))
    except ValueError as error:
        raise BadInput(
            f"{number!r} in {name!r} is no number", hint="fixed:4, static_threshold:0.5"
        ) from error
    if number:
        raise BadInput(f"{mode} takes no number", where=name)
    found: PrefixScheduler = _plain(known, mode, cost)
    return found


def _plain(known: Sequence[Mode], mode: str, cost: StepCost) -> PrefixScheduler:
    return PrefixScheduler(cost, next(one for one in known if one == mode))


def schedules_of(names: Sequence[str] | None, cost: StepCost) -> dict[str, PrefixScheduler]:
    """Schedules by name; by default the paper's two, vLLM's rule, and half a block for all.

    Raises:
        BadInput: as :func:`schedule_of`.
    """
    chosen = names or ("early_stop", "stale_topk", "vllm", "fixed:3")
    return {name: schedule_of(name, cost) for name in chosen}
