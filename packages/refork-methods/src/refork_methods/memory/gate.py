"""The recurrence gate: a plan becomes code at exactly the theta-th distinct task that selected it.

Source: arXiv:2606.24151, Algorithm 1. The paper's theta is not given; 3, the rent-or-buy threshold and the
bounded history of eight queries are ours.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Self, final

import numpy as np
from jaxtyping import Float, Int
from scipy.stats import binom

from refork.errors import BadInput
from refork_methods.memory.agreement import Agreement

#: Queries of consumed buffers that a plan keeps.
HISTORY = 8


@final
@dataclass(frozen=True, slots=True)
class RecurrenceGate:
    """When a plan is due.

    ``theta`` distinct tasks; 0 makes code at once and must be asked for with ``eager=True``. Or
    ``build_cost`` and ``saving`` (what one task costs more by text than by code, same unit): theta is then
    ``ceil(build_cost / saving)``, at least 1.

    ``share``: of the other runs that had the plan, did not fail and can be compared, how many must have made
    the plan's own calls before its code is admitted; one at least. 0 asks for none, as published; at once
    there is none yet.
    """

    theta: int = 3
    eager: bool = False
    share: float = 1.0

    def __post_init__(self) -> None:
        if self.eager and self.theta != 0:
            raise BadInput("an eager gate has theta 0", where="theta", hint="leave theta out")
        if not self.eager and self.theta < 1:
            raise BadInput(
                f"theta is {self.theta}; a plan must be selected at least once",
                where="theta",
                hint="theta 1 or more; code at once must be asked for: --eager, RecurrenceGate.at_once()",
            )
        if not 0 <= self.share <= 1:
            raise BadInput(f"the share {self.share} is not between 0 and 1", where="share")
        if self.eager and self.share:
            raise BadInput("code at once has no other run to look at", where="share", hint="share 0")

    @classmethod
    def at_once(cls) -> Self:
        """The eager gate: code as soon as there is a plan."""
        return cls(theta=0, eager=True, share=0.0)

    @classmethod
    def rent_or_buy(cls, build_cost: float, saving: float) -> Self:
        """The gate at theta* = ceil(build_cost / saving).

        Raises:
            BadInput: a cost or saving that is not positive and finite: then code never pays for itself.
        """
        return cls(theta=rent_or_buy_theta(build_cost, saving))

    def due(self, buffer: Sequence[str]) -> bool:
        """Whether a buffer of distinct task ids has reached theta."""
        return len(set(buffer)) >= self.theta

    def unconfirmed(self, agreements: Sequence[Agreement]) -> str:
        """Why a plan's code may not enter yet, from how other runs agreed with the plan; "" where it may."""
        decided = [one for one in agreements if one.verdict != "open"]
        same = sum(one.verdict == "same" for one in decided)
        if not self.share or (same and same >= self.share * len(decided)):
            return ""
        parted = next((one.words for one in decided or agreements if one.verdict != "same"), "")
        told = f": {parted}" if parted else ""
        return f"{same} of {len(agreements)} other runs that had the plan made its calls{told}"

    def disproved(self, agreements: Sequence[Agreement]) -> bool:
        """Whether more of the other runs did otherwise than the plan than did the same."""
        verdicts = [one.verdict for one in agreements]
        return self.share > 0 and verdicts.count("other") > verdicts.count("same")


def rent_or_buy_theta(build_cost: float, saving: float) -> int:
    """theta* = ceil(build_cost / saving): stop renting (text) when the rent paid has reached the price.

    Raises:
        BadInput: a number that is not positive and finite.
    """
    for name, value in (("build_cost", build_cost), ("saving", saving)):
        if not math.isfinite(value) or value <= 0:
            raise BadInput(
                f"{name} is {value}; it must be positive",
                where=name,
                hint="where code saves nothing, keep the plan as text",
            )
    rents = build_cost / saving
    # 2.1 / 0.3 is 7.000000000000001: a quotient that is whole up to rounding is that whole number.
    whole = round(rents)
    return max(1, whole if math.isclose(rents, whole, rel_tol=1e-12) else math.ceil(rents))


@dataclass(frozen=True, slots=True)
class Recurrence:
    """What a plan has gathered: distinct tasks and their queries since the last build, and older queries.

    ``counted`` are all tasks that ever counted, so that none counts twice.
    """

    tasks: tuple[str, ...] = ()
    queries: tuple[str, ...] = ()
    history: tuple[str, ...] = ()
    counted: frozenset[str] = field(default=frozenset())

    def with_task(self, task: str, query: str) -> Recurrence:
        """With one more task; a task that counted before changes nothing."""
        if task in self.counted:
            return self
        return replace(
            self,
            tasks=(*self.tasks, task),
            queries=(*self.queries, query),
            counted=self.counted | {task},
        )

    def folded(self, keep: int = HISTORY) -> Recurrence:
        """The buffer emptied into the history, of which the last ``keep`` queries stay."""
        # [-0:] would keep all.
        history = tuple(dict.fromkeys((*self.history, *self.queries)))[-keep:] if keep else ()
        return Recurrence(history=history, counted=self.counted)


# How many tools a gate builds and how many are never called: closed forms, a simulator, rent or buy.
#
# Tasks are drawn independently from families of which each has one plan. The plan is made at the first task
# of its family and selected at every later one. Source: the setting is that of arXiv:2606.24151; the closed
# forms follow from it and are ours.


def zipf(families: int, exponent: float = 1.0) -> Float[np.ndarray, "families"]:
    """Probabilities proportional to ``rank ** -exponent``."""
    if families < 1:
        raise BadInput("there must be at least one family", where="families")
    weights = np.arange(1, families + 1, dtype=np.float64) ** -exponent
    return np.asarray(weights / weights.sum())


def expected_tools(tasks: int, shares: Float[np.ndarray, "families"], theta: int) -> float:
    """Expected number of tools after ``tasks`` tasks: the sum of P(Bin(T, q_f) >= theta + 1).

    Raises:
        BadInput: shares that are no probabilities, or a negative count.
    """
    _check(tasks, shares, theta)
    # sf(theta) is P(X > theta): one arrival makes the plan, theta more select it.
    return float(binom.sf(theta, tasks, shares).sum())


def expected_never_invoked(tasks: int, shares: Float[np.ndarray, "families"], theta: int) -> float:
    """Expected number of tools that no task calls: the sum of P(Bin(T, q_f) = theta + 1).

    Raises:
        BadInput: shares that are no probabilities, or a negative count.
    """
    _check(tasks, shares, theta)
    return float(binom.pmf(theta + 1, tasks, shares).sum())


def expected_invocations(tasks: int, shares: Float[np.ndarray, "families"], theta: int) -> float:
    """Expected number of tasks that meet a finished tool: the sum of E[max(0, Bin(T, q_f) - theta - 1)]."""
    _check(tasks, shares, theta)
    counts = np.arange(theta + 2, tasks + 1)
    if not len(counts):
        return 0.0
    return float((binom.pmf(counts[:, None], tasks, shares[None, :]) * (counts - theta - 1)[:, None]).sum())


@dataclass(frozen=True, slots=True)
class GateRuns:
    """Simulated streams: tools built, tools never invoked and invocations of each run."""

    tools: Int[np.ndarray, "runs"]
    never_invoked: Int[np.ndarray, "runs"]
    invocations: Int[np.ndarray, "runs"]


def simulate_gate(
    tasks: int, shares: Float[np.ndarray, "families"], theta: int, runs: int, seed: int
) -> GateRuns:
    """Streams run through the gate task by task, all runs at once.

    A family's plan is created by its first task; each later one first calls the tool if there is one, else
    counts as a selection, and at the theta-th the tool is built (theta 0: with the plan itself).

    Raises:
        BadInput: shares that are no probabilities, or a count below 1.
    """
    _check(tasks, shares, theta)
    if runs < 1:
        raise BadInput("there must be at least one run", where="runs")
    rng = np.random.default_rng(seed)
    drawn = rng.choice(len(shares), size=(tasks, runs), p=shares)
    rows = np.arange(runs)
    known = np.zeros((runs, len(shares)), dtype=bool)
    built = np.zeros_like(known)
    selected = np.zeros(known.shape, dtype=np.int64)
    called = np.zeros_like(selected)
    for family in drawn:
        # As it was before this task: a task never calls the tool that it causes to be built.
        had_tool, had_plan = built[rows, family], known[rows, family]
        called[rows, family] += had_tool
        selected[rows, family] += had_plan & ~had_tool
        known[rows, family] = True
        built[rows, family] |= selected[rows, family] >= theta
    return GateRuns(
        tools=built.sum(axis=1),
        never_invoked=(built & (called == 0)).sum(axis=1),
        invocations=called.sum(axis=1),
    )


def gate_cost(arrivals: int, build_cost: float, text: float, code: float, theta: int) -> float:
    """What ``arrivals`` tasks of one family cost if code is built after ``theta`` of them went by text."""
    by_text = min(arrivals, theta)
    built = build_cost if arrivals >= theta else 0.0
    return by_text * text + built + (arrivals - by_text) * code


def offline_cost(arrivals: int, build_cost: float, text: float, code: float) -> float:
    """The least that they could have cost with the number of arrivals known: all text, or code at once."""
    return min(arrivals * text, build_cost + arrivals * code)


def _check(tasks: int, shares: Float[np.ndarray, "families"], theta: int) -> None:
    if tasks < 0 or theta < 0:
        raise BadInput("a count must be 0 or more", where="tasks, theta")
    array = np.asarray(shares)
    if array.ndim != 1 or not len(array) or (array < 0).any() or abs(float(array.sum()) - 1.0) > 1e-9:
        raise BadInput("the shares of the families must be probabilities that sum to 1", where="shares")
