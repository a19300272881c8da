"""Labelled rollouts of prompts on a tree: which refused, and which first thinking token each began with."""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import final

import numpy as np
from numpy.typing import NDArray

from refork.errors import BadInput
from refork.forking.arm import resolved_scores
from refork.policies.base import PolicyCard
from refork.tree.node import Node
from refork.tree.tree import Tree
from refork.types import Json
from refork_methods.probe.cases import Position
from refork_methods.stance.label import forced_values
from refork_methods.stance.marker import Marker, find_thinking
from refork_methods.stance.prompts import Case, rollouts

#: Nodes that may follow a turn before its score: what the world answered, and a verdict.
_AFTER = ("observation", "verdict")


@final
@dataclass(frozen=True, slots=True)
class Row:
    """One labelled rollout: its turn, and where its thinking begins and ends in it, as token numbers.

    ``token`` is the id of the first thinking token, None where it thought nothing.
    """

    case: int
    node: Node
    refused: bool
    first: int
    end: int
    token: int | None

    @property
    def opening(self) -> bytes | None:
        """The ids of the turn up to the first thinking token, as one key; None where it thought nothing."""
        if self.token is None or self.node.tokens is None:
            return None
        return self.node.tokens[: self.first + 1].tobytes()


@final
@dataclass(frozen=True, slots=True, eq=False)
class Rows:
    """Labelled rollouts of ``cases`` by one policy; ``ungraded`` and ``failed`` ones have no label.

    Among all complete rollouts, ``unopened`` never open their thinking; ``unclosed`` never close it, and no
    label of an answer behind a forced closing is there, as it is for ``forced``. Rows of a prompt lie
    together, in an order that does not depend on when they were drawn.
    """

    tree: Tree
    cases: tuple[Case, ...]
    rows: tuple[Row, ...]
    ungraded: int
    failed: int
    unopened: int = 0
    unclosed: int = 0
    forced: int = 0

    @property
    def labels(self) -> NDArray[np.int64]:
        """1 refused, 0 complied, [rows]."""
        return np.array([row.refused for row in self.rows], dtype=np.int64)

    @property
    def owners(self) -> NDArray[np.int64]:
        """Number of each row's case, [rows]."""
        return np.array([row.case for row in self.rows], dtype=np.int64)

    @property
    def prompts(self) -> list[str]:
        """Id of each row's prompt."""
        return [self.cases[row.case].id for row in self.rows]

    @property
    def intents(self) -> list[str]:
        """Intent of each row's prompt."""
        return [self.cases[row.case].intent for row in self.rows]

    @property
    def sources(self) -> list[str]:
        """Source of each row's prompt."""
        return [self.cases[row.case].source for row in self.rows]

    def counts(self) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Refusals and rollouts of each case, [cases]."""
        size = len(self.cases)
        refusals = np.bincount(self.owners, self.labels, size).astype(np.int64)
        return refusals, np.bincount(self.owners, minlength=size)

    def sharing(
        self, part: Rows, position: Position, *, token_alone: bool = False
    ) -> tuple[list[int], list[int]]:
        """For each row of a part, refusals and rollouts among all that share what a reader there sees.

        ``token_alone``: a reader at ``first_thinking`` who sees the token, and not what the turn said before.
        """

        def key(row: Row) -> tuple[int, Hashable]:
            if position != "first_thinking":
                return row.case, None
            return row.case, row.token if token_alone else row.opening

        seen: dict[tuple[int, Hashable], list[int]] = {}
        for row in self.rows:
            seen.setdefault(key(row), []).append(int(row.refused))
        groups = [seen[key(row)] for row in part.rows]
        return [sum(group) for group in groups], [len(group) for group in groups]

    def only(self, rows: Iterable[Row]) -> Rows:
        """The same prompts with some of the rollouts."""
        return replace(self, rows=tuple(rows))

    def at_most(self, count: int) -> Rows:
        """The first ``count`` rollouts of every prompt."""
        seen: Counter[int] = Counter()
        kept = []
        for row in self.rows:
            seen[row.case] += 1
            if seen[row.case] <= count:
                kept.append(row)
        return self.only(kept)

    def thoughtful(self) -> Rows:
        """Only rollouts that have a first thinking token."""
        return self.only(row for row in self.rows if row.token is not None)

    def to_json(self) -> Json:
        """How much there is."""
        _, rollouts_ = self.counts()
        used = rollouts_[rollouts_ > 0]
        return {
            "prompts": int((rollouts_ > 0).sum()),
            "prompts_without_rollouts": int((rollouts_ == 0).sum()),
            "rollouts": len(self.rows),
            "rollouts_per_prompt": [int(used.min()), int(used.max())] if used.size else None,
            "refusals": int(self.labels.sum()),
            "without_thinking": sum(row.token is None for row in self.rows),
            "ungraded": self.ungraded,
            "failed": self.failed,
            "unopened": self.unopened,
            "unclosed": self.unclosed,
            "closed_by_force": self.forced,
        }


def read_rows(
    tree: Tree, cases: Sequence[Case], card: PolicyCard, marker: Marker, score: str = "refusal"
) -> Rows:
    """Rollouts of a policy that ``score`` labels: refused above one half, so that a tie complies.

    Unchanged arms only, complete turns only. Where a turn never opens its thinking it has none; where it
    never closes it and has no score itself, the answer drawn behind a forced closing speaks for it.

    Raises: BadInput where no rollout has the score.
    """
    found: list[Row] = []
    ungraded = unopened = unclosed = forced = 0
    for number, case in enumerate(cases):
        nodes = rollouts(case, card)
        values = score_values(tree, nodes, score)
        prompt = tree.path(case.root).tokens
        for node in nodes:
            assert node.tokens is not None
            span = find_thinking(prompt, node.tokens, marker)
            value = values.get(node.id)
            if value is None and span.opened and not span.closed:
                # Only a turn that never closed may borrow a forced answer's score.
                value = next(iter(forced_values(tree, node, marker, score).values()), None)
                forced += value is not None
                unclosed += value is None
            else:
                unclosed += span.opened and not span.closed
            unopened += not span.opened
            if value is None:
                ungraded += 1
                continue
            # An unopened turn has an empty span, so it thinks nothing here, as one with empty thinking does.
            thinks = span.thought and span.length > 0
            token = int(node.tokens[span.begin]) if thinks else None
            found.append(
                Row(number, node, value > 0.5, span.begin, span.end if thinks else span.begin, token)
            )
    if not found:
        raise BadInput(
            f"no rollout of {card.name!r} under these prompts has a score {score!r}",
            where=tree.uri or "tree",
            hint=f"{ungraded} rollouts are ungraded; grade them, or name their score",
        )
    failed = sum(_failures(tree, case, card) for case in cases)
    return Rows(tree, tuple(cases), tuple(found), ungraded, failed, unopened, unclosed, forced)


def score_values(tree: Tree, nodes: Sequence[Node], score: str) -> dict[str, float]:
    """Score of each turn: its own, or of what followed it, the world's answer and its verdict."""
    at = {node.id: node for node in nodes}
    found: dict[str, float] = {}
    while at:
        scored = resolved_scores(tree, score, [node.id for node in at.values()])
        found |= {turn: scored[node.id] for turn, node in at.items() if node.id in scored}
        following: dict[str, Node] = {}
        for turn, node in at.items():
            if turn not in found:
                after = next((child for child in tree.children(node, None) if child.kind in _AFTER), None)
                if after is not None:
                    following[turn] = after
        at = following
    return found


def _failures(tree: Tree, case: Case, card: PolicyCard) -> int:
    """Draws of unchanged arms of this policy that ended in an error."""
    return sum(
        draw.end == "error"
        for fork in tree.forks(case.root.node)
        if fork.change is None and fork.token is None and fork.policy.get("weights") == card.weights
        for draw in tree.draws(fork.id)
    )
