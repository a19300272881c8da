"""Orchestration collapse, made measurable: voters that may copy the first voice they are shown.

Three voters answer one after the other and the majority counts. Isolated they err independently. Where each
is shown the steps before it, voters two and three copy the first with some chance, and the vote is worth less
the more they copy, down to one voter's accuracy.

Source: arXiv:2606.21228 describes the collapse and the isolation; voters and closed forms are ours.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import final

from refork.chat import Reply, words_in
from refork.errors import BadInput
from refork.policies.base import Cost
from refork.types import Json, Message
from refork_methods.route.conduct.coins import Coins, SeededCoins, every_outcome
from refork_methods.route.conduct.execute import Execution, Isolation, OrchestrationMemory, execute
from refork_methods.route.conduct.plan import Plan
from refork_methods.route.pool import Worker, WorkerPool

RIGHT, WRONG = "yes", "no"
VOTERS = ("first", "second", "third")
QUESTION = "is it so ?"


@final
class Voter:
    """Says ``yes`` (right) with chance ``accuracy``; shown answers, copies the first with ``copies``."""

    def __init__(self, name: str, accuracy: float, copies: float, coins: Coins) -> None:
        self._name, self._accuracy, self._copies, self._coins = name, accuracy, copies, coins

    @property
    def name(self) -> str:
        """Its name."""
        return self._name

    def reply(self, messages: Sequence[Message], *, tools: Sequence[Json] = (), draw: int = 0) -> Reply:
        """``yes`` or ``no``."""
        del tools
        shown = [str(m["content"]) for m in messages if m.get("role") == "assistant"]
        if shown and self._coins(self._copies, self._name, "copies", draw):
            said = shown[0]
        else:
            said = RIGHT if self._coins(self._accuracy, self._name, "knows", draw) else WRONG
        return Reply({"role": "assistant", "content": said}, cost=Cost(words_in(messages), 1))


def vote(accuracy: float, copies: float, isolation: Isolation, coins: Coins, draw: int = 0) -> Execution:
    """One vote, run by the engine under an isolation; the plan grants no step the answer of another."""
    pool = WorkerPool(tuple(Worker(n, chat=Voter(n, accuracy, copies, coins)) for n in VOTERS))
    plan = Plan(VOTERS, (QUESTION,) * len(VOTERS), ((),) * len(VOTERS))
    return execute(plan, pool, memory=OrchestrationMemory(isolation), draw=draw)


def majority(execution: Execution) -> str | None:
    """The answer that more than half of the steps gave; None without one."""
    said = [step.output for step in execution.steps]
    return next((one for one in said if one is not None and 2 * said.count(one) > len(said)), None)


def majority_chance(accuracy: float, copies: float = 0.0) -> float:
    """The chance that the majority of three is right where voters two and three copy the first with a chance.

    With no copying p^3 + 3 p^2 (1 - p); copying always, p. Raises BadInput for a chance outside [0, 1].
    """
    if not (0 <= accuracy <= 1 and 0 <= copies <= 1):
        raise BadInput(f"accuracy {accuracy} and copies {copies} must be chances")
    p, c = accuracy, copies
    beside_right, beside_wrong = c + (1 - c) * p, (1 - c) * p
    return p * (1 - (1 - beside_right) ** 2) + (1 - p) * beside_wrong**2


def _voted(accuracy: float, copies: float, isolation: Isolation, coins: Coins) -> str | None:
    return majority(vote(accuracy, copies, isolation, coins))


@dataclass(frozen=True, slots=True)
class CollapseRow:
    """One setting: closed form, the engine over every outcome, its sampled mean and the standard error."""

    isolation: Isolation
    copies: float
    closed: float
    engine: float
    sampled: float
    error: float


def collapse_table(
    accuracy: float = 0.7, copies: Sequence[float] = (0.5, 1.0), draws: int = 4000, seed: int = 0
) -> list[CollapseRow]:
    """Isolated voters, then shared ones that copy with each chance, through the engine.

    The voters are the same in every row: what keeps the isolated ones from copying is only what they see.
    Raises: BadInput for fewer than two draws.
    """
    if draws < 2:
        raise BadInput(f"{draws} draws have no error")
    settings: list[tuple[Isolation, float]] = [("workflow", max(copies)), *(("shared", c) for c in copies)]
    rows = []
    for isolation, copying in settings:
        closed = majority_chance(accuracy, 0.0 if isolation == "workflow" else copying)
        every = every_outcome(partial(_voted, accuracy, copying, isolation))
        exact = math.fsum(weight for weight, said in every if said == RIGHT)
        flips = SeededCoins(seed)
        wins = sum(majority(vote(accuracy, copying, isolation, flips, d)) == RIGHT for d in range(draws))
        mean = wins / draws
        error = math.sqrt(mean * (1 - mean) / (draws - 1))
        rows.append(CollapseRow(isolation, copying, closed, exact, mean, error))
    return rows
