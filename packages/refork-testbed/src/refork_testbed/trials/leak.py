"""Leak rate: how often a list of results gives the answer away.

A leak is a search, made before any page was opened, whose titles or snippets say an item of the answer that
the query has not earned (see :mod:`refork_methods.simulate.control.stingy`).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import pairwise

from refork.plain import canonical
from refork.stats import Interval, wilson
from refork.tree.tree import Tree
from refork.types import Json
from refork.worlds.environment import ActionObservation
from refork_methods.simulate.control.stingy import (
    Secret,
    items_stated,
    opens_page,
    query_of,
    secret_in,
    unearned,
)


@dataclass(frozen=True, slots=True)
class LeakRate:
    """Leaks among ``searches`` that could leak.

    A search of which every item was earned cannot. The interval is Wilson's, of searches taken as
    independent; None where there is none.
    """

    leaks: int
    searches: int

    @property
    def interval(self) -> Interval | None:
        """Share of searches that leak; None where there was no search."""
        return wilson(self.leaks, self.searches) if self.searches else None

    @property
    def rate(self) -> float | None:
        """The share alone."""
        return self.leaks / self.searches if self.searches else None

    def to_json(self) -> Json:
        """Counts, share and interval."""
        found = self.interval
        span = None if found is None else [found.low, found.high]
        return {"leaks": self.leaks, "searches": self.searches, "rate": self.rate, "interval": span}


def leaks(secret: Secret, history: Sequence[ActionObservation]) -> list[bool | None]:
    """Whether each turn leaks; None where it is no search, comes after a page, or has earned every item."""
    found: list[bool | None] = []
    opened = False
    for turn, (action, said) in enumerate(history):
        query = query_of(action)
        items = () if query is None or opened else unearned(secret, history[:turn], query)
        found.append(bool(items_stated(secret, items, said)) if items else None)
        opened = opened or opens_page(action)
    return found


def leak_rate(result: Iterable[bool | None]) -> LeakRate:
    """The rate of turns that :func:`leaks` judged."""
    known = [item for item in result if item is not None]
    return LeakRate(sum(known), len(known))


def tree_leaks(tree: Tree) -> dict[str, LeakRate]:
    """Leak rates by who answered: ``real``, ``replayed``, or the simulator's identity as JSON.

    A turn that several branches share counts once. A task counts where its node's ``extra["task"]`` names
    an answer.
    """
    judged: dict[str, tuple[str, bool | None]] = {}
    for trajectory in tree.paths(list(tree.leaves())):
        nodes = [step.node for step in trajectory]
        record = nodes[0].extra.get("task") if nodes else None
        data = record.get("data") if isinstance(record, dict) else None
        secret = secret_in(data) if isinstance(data, dict) else None
        if secret is None:
            continue
        turns = [
            (action, answer)
            for action, answer in pairwise(nodes)
            if action.kind == "action" and answer.kind == "observation"
        ]
        verdicts = leaks(secret, [(action.text, answer.text) for action, answer in turns])
        for (_, answer), verdict in zip(turns, verdicts, strict=True):
            simulator = answer.extra.get("simulator")
            who = canonical(simulator) if simulator is not None else str(answer.origin or "real")
            judged[answer.id] = who, verdict
    by: dict[str, list[bool | None]] = {}
    for who, verdict in judged.values():
        by.setdefault(who, []).append(verdict)
    return {who: leak_rate(turns) for who, turns in sorted(by.items())}
