"""Trajectories of a rollout tree taken apart into the steps of a state graph.

A step is a turn of the policy, or a part of one where trajectories part inside it: such a fork place is a
state too, shared by all walks through it. Parts of a turn are discounted alike, so forking changes no return.
A step that several trajectories share is in the graph once per trajectory: multiplicity as recorded.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from refork.errors import BadInput
from refork.growing.report import sampled_under
from refork.tree.node import Node, Trajectory
from refork_methods.credit.graph.anchors import Anchor, anchor_named, codes, merge_similar
from refork_methods.credit.graph.state_graph import StateGraph

Int64 = NDArray[np.int64]
Float64 = NDArray[np.float64]
#: The boundary after so many tokens of an action node.
TokenPosition = tuple[str, int]


@dataclass(frozen=True, slots=True)
class Turn:
    """One turn of a trajectory: the state it begins in, and the parts of action nodes it consists of.

    ``parts``: node, and how many of its tokens the trajectory keeps (1 for a node whose tokens were not
    recorded).
    """

    state: Any
    name: str
    parts: tuple[tuple[Node, int], ...]


@dataclass(frozen=True, slots=True, eq=False)
class TrajectorySteps:
    """The graph of some trajectories and where its steps lie.

    ``trajectories`` are the trajectories of the graph in its order, as numbers of the trajectories given
    (those without an action or an outcome are left out). ``slots``: where the tokens of each action node
    begin in one long array of ``size`` places. A stretch of tokens ``begins[i] .. ends[i] - 1`` of it belongs
    to step ``steps[i]``.
    """

    graph: StateGraph
    trajectories: tuple[int, ...]
    nodes: dict[str, Node]
    slots: dict[str, int]
    size: int
    begins: Int64
    ends: Int64
    steps: Int64

    def per_token(self, values: Float64) -> Float64:
        """Mean of the step values of the walks through each token, [size]; NaN where none passes."""
        lengths = self.ends - self.begins
        inside = np.arange(int(lengths.sum())) - np.repeat(np.cumsum(lengths) - lengths, lengths)
        at = np.repeat(self.begins, lengths) + inside
        count = np.bincount(at, minlength=self.size)
        sums = np.bincount(at, np.repeat(values[self.steps], lengths), minlength=self.size)
        return np.asarray(np.divide(sums, count, out=np.full(self.size, np.nan), where=count > 0))


def size_of(node: Node) -> int:
    """Places of an action node: its tokens, or one where they were not recorded."""
    return 1 if node.tokens is None else node.length


def turns(trajectory: Trajectory, label: Callable[[Node], Any], history: int = 1) -> Iterator[Turn]:
    """The turns of a trajectory, in order.

    A rewrite of the context leaves the state and the turn what they were: it changes what the policy reads,
    not the world.
    """
    states: list[Any] = []
    name, parts = "", list[tuple[Node, int]]()
    for step in trajectory:
        node = step.node
        if node.kind == "action":
            whole = size_of(node)
            parts.append((node, whole if step.keep is None or node.tokens is None else min(step.keep, whole)))
            continue
        if node.kind in ("rewrite", "verdict"):
            continue
        if parts:
            yield Turn(tuple(states[-history:]), name, tuple(parts))
            parts = []
        states.append(label(node))
        name = node.text
    if parts:
        yield Turn(tuple(states[-history:]), name, tuple(parts))


def labeller(
    trajectories: Sequence[Trajectory], anchor: str | Anchor, fuzzy: float | None = None
) -> Callable[[Node], Any]:
    """What names the state that an observation shows.

    ``state``: its state key, else the node itself; ``tree``: always the node itself, so that trajectories
    share exactly what they share on the tree; otherwise an anchor of its text.

    Raises:
        BadInput: an unknown anchor, or ``fuzzy`` with one that does not read texts.
    """
    if anchor in ("state", "tree"):
        if fuzzy is not None:
            raise BadInput(
                f"anchor {anchor!r} reads no text that could be similar", where="fuzzy", hint="--anchor exact"
            )
        keyed = anchor == "state"
        return lambda node: node.state_key if keyed and node.state_key is not None else (node.id,)
    rule = anchor_named(anchor) if isinstance(anchor, str) else anchor
    texts = {
        s.node.text
        for trajectory in trajectories
        for s in trajectory
        if s.node.kind in ("task", "observation")
    }
    names = {text: rule(text) for text in texts}
    if fuzzy is not None:
        different = sorted(set(names.values()))
        number = dict(zip(different, merge_similar(different, fuzzy).tolist(), strict=True))
        names = {text: str(number[name]) for text, name in names.items()}
    # An empty answer of a tool says nothing of the state that it was given in.
    return lambda node: names[node.text] if node.text.strip() else (node.id,)


def walk_steps(
    trajectories: Sequence[Trajectory],
    outcomes: Sequence[float] | Float64,
    *,
    anchor: str | Anchor = "state",
    history: int = 1,
    fuzzy: float | None = None,
) -> TrajectorySteps:
    """The state graph of trajectories, one group for each task they begin in and each sampling settings.

    Args:
        trajectories: paths from root to leaf.
        outcomes: their rewards [trajectories]; a trajectory whose outcome is NaN is left out.
        anchor: ``state``, ``tree``, ``exact``, ``normalised`` or a function of an observation's text.
        history: how many of the last states must be equal.
        fuzzy: merge observations that share at least this part of their words.

    Raises:
        BadInput: counts that differ, an infinite outcome, or no graded trajectory with an action.
    """
    earned = np.asarray(outcomes, dtype=np.float64).reshape(-1)
    if len(earned) != len(trajectories):
        raise BadInput(f"{len(trajectories)} trajectories but {len(earned)} outcomes", where="graph credit")
    if np.isinf(earned).any():
        raise BadInput("an outcome is infinite", where=f"trajectory {int(np.argmax(np.isinf(earned)))}")
    if history < 1:
        raise BadInput(f"a history of {history} states", hint="1 is the present state alone")
    label = labeller(trajectories, anchor, fuzzy)
    taken = {
        i: list(turns(trajectories[i], label, history)) for i in np.flatnonzero(~np.isnan(earned)).tolist()
    }
    taken = {i: found for i, found in taken.items() if found}
    if not taken:
        raise BadInput("no graded trajectory has an action", where="graph credit")
    parting = _divergences(taken.values())
    made = _Steps()
    for found in taken.values():
        made.add(found, parting)
    labels, names = codes(made.labels)
    text = dict(zip(made.labels, made.names, strict=True))
    roots, _ = codes([_group_of(trajectories[i]) for i in taken])
    graph = StateGraph.from_arrays(
        labels,
        made.lengths,
        earned[list(taken)],
        roots,
        togo=made.togo,
        names=[text[name] for name in names],
    )
    arrays = (np.array(part, dtype=np.int64) for part in (made.begins, made.ends, made.steps))
    return TrajectorySteps(graph, tuple(taken), made.nodes, made.slots, made.size, *arrays)


def _group_of(trajectory: Trajectory) -> tuple[str, ...]:
    """What names a group; settings are spelled out, for sets of them have no order."""
    return (trajectory.root.id, *sorted(repr(one) for one in sampled_under(trajectory)))


def _boundaries(turn: Turn) -> Iterator[tuple[Node, int, TokenPosition | None]]:
    """The parts of a turn that hold tokens, and the place each begins at (None: the turn's beginning).

    A node of which nothing is kept is passed over: what hangs on it begins where it began.
    """
    at: TokenPosition | None = None
    for node, kept in turn.parts:
        if kept > 0:
            yield node, kept, at
            at = (node.id, kept)


def _divergences(taken: Any) -> dict[str, list[int]]:
    """For each action node, after how many of its tokens trajectories part inside a turn, ascending."""
    follows: dict[TokenPosition, set[str]] = {}
    longest: dict[str, int] = {}
    for found in taken:
        for turn in found:
            last: TokenPosition | None = None
            for node, kept, at in _boundaries(turn):
                if at is not None:
                    follows.setdefault(at, set()).add(node.id)
                longest[node.id] = max(longest.get(node.id, 0), kept)
                last = (node.id, kept)
            if last is not None:
                # The empty name is the end of the turn: it is one more way to go on from here.
                follows.setdefault(last, set()).add("")
    cuts: dict[str, list[int]] = {}
    for (node_id, kept), after in follows.items():
        # The rest of the node itself, where some trajectory keeps more of it, is a way on without a node of
        # its own.
        if len(after) + (longest[node_id] > kept) > 1:
            cuts.setdefault(node_id, []).append(kept)
    return {node_id: sorted(places) for node_id, places in cuts.items()}


@dataclass(slots=True)
class _Steps:
    """Steps of trajectories as they are collected: one entry per step, and one per stretch of tokens."""

    labels: list[Any] = field(default_factory=list)
    names: list[str] = field(default_factory=list)
    togo: list[int] = field(default_factory=list)
    lengths: list[int] = field(default_factory=list)
    begins: list[int] = field(default_factory=list)
    ends: list[int] = field(default_factory=list)
    steps: list[int] = field(default_factory=list)
    nodes: dict[str, Node] = field(default_factory=dict)
    slots: dict[str, int] = field(default_factory=dict)
    size: int = 0

    def add(self, found: Sequence[Turn], parting: dict[str, list[int]]) -> None:
        """Collect the steps of one trajectory."""
        before = len(self.labels)
        for number, turn in enumerate(found):
            self._turn(turn, len(found) - number, parting)
        self.lengths.append(len(self.labels) - before)

    def _turn(self, turn: Turn, togo: int, parting: dict[str, list[int]]) -> None:
        self._step(("state", turn.state), turn.name, togo)
        for node, kept, at in _boundaries(turn):
            if at is not None and at[1] in parting.get(at[0], ()):
                self._step(("inside", at), f"inside {at[0][:12]}:{at[1]}", togo)
            start = 0
            for cut in (c for c in parting.get(node.id, ()) if c < kept):
                self._segment(node, start, cut)
                self._step(("inside", (node.id, cut)), f"inside {node.id[:12]}:{cut}", togo)
                start = cut
            self._segment(node, start, kept)

    def _step(self, label: Any, name: str, togo: int) -> None:
        self.labels.append(label)
        self.names.append(name)
        self.togo.append(togo)

    def _segment(self, node: Node, start: int, end: int) -> None:
        if node.id not in self.slots:
            self.nodes[node.id], self.slots[node.id] = node, self.size
            self.size += size_of(node)
        self.begins.append(self.slots[node.id] + start)
        self.ends.append(self.slots[node.id] + end)
        self.steps.append(len(self.labels) - 1)
