"""Trajectories merged into a state graph: equal states are one node, an action is an edge.

Integer arrays in, integer arrays out. Steps lie trajectory by trajectory, in order.
"""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal, Self, final

import numpy as np
from numpy.typing import ArrayLike, NDArray

from refork.errors import BadInput
from refork_methods.credit.graph.anchors import (
    Anchor,
    anchor_named,
    apply_anchor,
    codes,
    last_states,
    merge_similar,
)
from refork_methods.credit.graph.records import Recorded, check_records

Int64 = NDArray[np.int64]
Float64 = NDArray[np.float64]
Bools = NDArray[np.bool_]
Scope = Literal["group", "task"]


@final
@dataclass(frozen=True, slots=True, eq=False)
class StateGraph:
    """One state graph per group (or task), all in one set of arrays.

    A node is a state of one graph, or an end: the trajectories of a graph that ended with one outcome
    share one. An end has no steps. Per step [steps]: ``nodes`` it leaves, ``nexts`` it reaches,
    ``trajectories``, ``positions`` (from 0), ``togo`` (turns left, this one included: what values are
    discounted by), ``valid``. Per trajectory [trajectories]: ``outcomes``, ``groups``. Per node [nodes]:
    ``graphs``, ``labels`` (number of its state; -1: an end), ``ends`` (outcome of an end; NaN: a state).
    ``rewards`` [steps] where they were recorded per step, else None: then the outcome is the last step's.
    ``names`` are what labels stand for; empty where labels were given as numbers.
    """

    nodes: Int64
    nexts: Int64
    trajectories: Int64
    positions: Int64
    togo: Int64
    valid: Bools
    rewards: Float64 | None
    outcomes: Float64
    groups: Int64
    graphs: Int64
    labels: Int64
    ends: Float64
    names: tuple[str, ...] = ()

    def __len__(self) -> int:
        return len(self.nodes)

    @property
    def states(self) -> int:
        """How many nodes are states; they come first."""
        return int(np.count_nonzero(self.labels >= 0))

    @property
    def step_graphs(self) -> Int64:
        """The graph of each step, [steps]."""
        return self.graphs[self.nodes]

    @property
    def step_groups(self) -> Int64:
        """The group of each step, [steps]."""
        return self.groups[self.trajectories]

    def visits(self) -> Int64:
        """Steps that leave each node, [nodes]; for an end, trajectories that reach it."""
        inside = np.bincount(self.nodes, minlength=len(self.graphs))
        final_steps = np.isfinite(self.ends[self.nexts])
        return inside + np.bincount(self.nexts[final_steps])  # the last node is the end of some trajectory

    def name(self, node: int) -> str:
        """What a node is, in words."""
        if self.labels[node] < 0:
            return f"end {self.ends[node]:g}"
        label = int(self.labels[node])
        return self.names[label] if label < len(self.names) else f"state {label}"

    @classmethod
    def from_arrays(
        cls,
        labels: ArrayLike,
        lengths: ArrayLike,
        outcomes: ArrayLike,
        groups: ArrayLike | None = None,
        *,
        tasks: ArrayLike | None = None,
        scope: Scope = "group",
        togo: ArrayLike | None = None,
        valid: ArrayLike | None = None,
        rewards: ArrayLike | None = None,
        names: Sequence[str] = (),
    ) -> Self:
        """The graph of labelled steps.

        Args:
            labels: number of the state each step leaves, at least 0, [steps].
            lengths: steps of each trajectory, at least 1, [trajectories].
            outcomes: reward of each episode, [trajectories].
            groups: what was sampled together, [trajectories]; None: one group.
            tasks: task of each trajectory; needed for scope ``task``.
            scope: whose states merge: those of a group, or of all groups of a task.
            togo: turns left at each step, itself included, [steps]; None: every step is a turn.
            valid: whether each action was valid, [steps]; None: all were.
            rewards: rewards per step, [steps], which sum to the outcomes; None: the outcome is earned by
                the last step.
            names: what labels stand for.

        Raises:
            BadInput: lengths that do not fit, an empty trajectory, a negative label, an outcome or reward
                that is not finite, or an unknown scope.
        """
        sizes, steps, earned = _checked(labels, lengths, outcomes)
        group = _whole(groups, len(sizes), "groups")
        trajectories = np.repeat(np.arange(len(sizes)), sizes)
        begins = np.cumsum(sizes) - sizes
        places = np.arange(len(steps)) - np.repeat(begins, sizes)
        owner = _owners(group, tasks, scope, len(sizes))
        width = steps.max() + 1
        states, nodes = np.unique(owner[trajectories] * width + steps, return_inverse=True)
        finals, worth, end_node = _ends(owner, earned)
        # Wrong at the end of each trajectory, where it names the next one's start: the line below puts the
        # end there.
        nexts = np.roll(nodes, -1).astype(np.int64)
        nexts[begins + sizes - 1] = len(states) + end_node
        return cls(
            nodes=nodes.astype(np.int64),
            nexts=nexts,
            trajectories=trajectories,
            positions=places,
            togo=np.repeat(sizes, sizes) - places if togo is None else _togo(togo, len(steps)),
            valid=np.ones(len(steps), dtype=bool) if valid is None else _flags(valid, len(steps)),
            rewards=None if rewards is None else _rewards(rewards, trajectories, earned),
            outcomes=earned,
            groups=group,
            graphs=np.concatenate([states // width, finals]),
            labels=np.concatenate([states % width, np.full(len(finals), -1)]),
            ends=np.concatenate([np.full(len(states), np.nan), worth]),
            names=tuple(names),
        )

    @classmethod
    def from_trajectories(
        cls,
        trajectories: Sequence[Recorded],
        anchor: str | Anchor = "exact",
        *,
        history: int = 1,
        fuzzy: float | None = None,
        scope: Scope = "group",
    ) -> Self:
        """The graph of recorded trajectories.

        Args:
            trajectories: what :func:`refork_methods.credit.graph.records.read_records` gives.
            anchor: what makes two observations one state: ``exact``, ``normalised``, ``state`` (the
                ``anchor`` recorded with every step), or a function of the observation.
            history: how many of the last observations must be equal.
            fuzzy: merge observations that share at least this part of their words; None: only equal ones.
            scope: whose states merge, see :meth:`from_arrays`.

        Warns where a group has one trajectory: there is nothing to compare it with, and its credit is 0.

        Raises:
            BadInput: what :func:`refork_methods.credit.graph.records.check_records` refuses, or an
                observation that the anchor cannot compare.
        """
        check_records(trajectories)
        sizes = np.array([len(item.steps) for item in trajectories])
        labels, names = _labels(trajectories, anchor)
        if fuzzy is not None:
            labels, names = _renamed(merge_similar(names, fuzzy)[labels], labels, names)
        if history != 1:
            places = np.arange(len(labels)) - np.repeat(np.cumsum(sizes) - sizes, sizes)
            labels, names = _renamed(last_states(labels, places, history), labels, names)
        groups, group_names = codes([(item.task, item.group) for item in trajectories])
        _warn_alone(groups, [name for _, name in group_names])
        per_step = trajectories[0].per_step
        return cls.from_arrays(
            labels,
            sizes,
            [item.reward for item in trajectories],
            groups,
            tasks=codes([item.task for item in trajectories])[0],
            scope=scope,
            valid=[step.valid for item in trajectories for step in item.steps],
            rewards=[float(s.reward or 0.0) for item in trajectories for s in item.steps]
            if per_step
            else None,
            names=names,
        )


def _renamed(merged: Int64, labels: Int64, names: list[str]) -> tuple[Int64, list[str]]:
    """Merged labels numbered from 0, each with the name of the first label it stands for."""
    _, first, numbers = np.unique(merged, return_index=True, return_inverse=True)
    return numbers.astype(np.int64), [names[i] for i in labels[first].tolist()]


def _warn_alone(groups: Int64, names: Sequence[str]) -> None:
    alone = np.flatnonzero(np.bincount(groups) == 1)
    if len(alone):
        warnings.warn(
            f"{len(alone)} of {len(names)} groups have one trajectory, the first is "
            f"{names[int(alone[0])]}: there is nothing to compare it with",
            stacklevel=3,
        )


def _labels(trajectories: Sequence[Recorded], anchor: str | Anchor) -> tuple[Int64, list[str]]:
    steps = [step for item in trajectories for step in item.steps]
    if anchor == "state":
        missing = next((i for i, step in enumerate(steps) if step.anchor is None), None)
        if missing is not None:
            raise BadInput(
                "a step has no recorded anchor",
                where=f"step {missing} of all",
                hint="--anchor exact compares the observations",
            )
        return codes([step.anchor for step in steps])
    rule = anchor_named(anchor) if isinstance(anchor, str) else anchor
    # An anchor that the environment gave says more than any text.
    given = anchor == "exact" and all(step.anchor is not None for step in steps)
    if given:
        return codes([step.anchor for step in steps])
    missing = next((i for i, step in enumerate(steps) if step.observation is None), None)
    if missing is not None:
        raise BadInput(
            "a step has no observation, and steps without one would all be one state",
            where=f"step {missing} of all",
            hint="--anchor state compares the recorded anchors, where every step has one",
        )
    return apply_anchor([step.observation for step in steps], rule)


def _checked(labels: ArrayLike, lengths: ArrayLike, outcomes: ArrayLike) -> tuple[Int64, Int64, Float64]:
    sizes = np.asarray(lengths, dtype=np.int64).ravel()
    steps = np.asarray(labels)
    if steps.dtype.kind not in ("i", "u"):
        raise BadInput(
            f"labels are {steps.dtype}, not integers", where="state graph", hint="see anchors.codes"
        )
    steps = steps.astype(np.int64).ravel()
    earned = np.asarray(outcomes, dtype=np.float64).ravel()
    if not len(sizes):
        raise BadInput("there is no trajectory", where="state graph")
    if len(sizes) != len(earned):
        raise BadInput(f"{len(sizes)} trajectories but {len(earned)} outcomes", where="state graph")
    if (sizes < 1).any():
        raise BadInput("it has no steps", where=f"trajectory {int(np.argmax(sizes < 1))}")
    if sizes.sum() != len(steps):
        raise BadInput(f"{len(steps)} labels for {sizes.sum()} steps", where="state graph")
    if steps.min() < 0:
        raise BadInput("a label is negative", where=f"step {int(np.argmax(steps < 0))}")
    if int(steps.max()) >= np.iinfo(np.int64).max // len(sizes):
        raise BadInput(
            f"the label {steps.max()} is too large",
            where=f"step {int(np.argmax(steps))}",
            hint="anchors.codes numbers labels from 0",
        )
    if not np.isfinite(earned).all():
        bad = int(np.argmax(~np.isfinite(earned)))
        raise BadInput(
            f"the outcome is {earned[bad]}",
            where=f"trajectory {bad}",
            hint="leave trajectories out that were never graded",
        )
    return sizes, steps, earned


def _whole(given: ArrayLike | None, count: int, what: str) -> Int64:
    """Group numbers from 0, [count]."""
    if given is None:
        return np.zeros(count, dtype=np.int64)
    names = np.asarray(given).ravel()
    if len(names) != count:
        raise BadInput(f"{count} trajectories but {len(names)} {what}", where="state graph")
    return np.unique(names, return_inverse=True)[1].astype(np.int64)


def _owners(group: Int64, tasks: ArrayLike | None, scope: str, count: int) -> Int64:
    if scope == "group":
        return group
    if scope != "task":
        raise BadInput(f"unknown scope {scope!r}", where="state graph", hint="known: group, task")
    if tasks is None:
        raise BadInput("scope task needs the task of every trajectory", where="state graph")
    return _whole(tasks, count, "tasks")


def _ends(owner: Int64, earned: Float64) -> tuple[Int64, Float64, NDArray[np.intp]]:
    """The graph and the outcome of each end, [ends], and the end of each trajectory.

    Ends are told apart by outcome, never by a test against one reward that means success.
    """
    order = np.lexsort((earned, owner))
    graph, values = owner[order], earned[order]
    largest = np.zeros_like(earned)  # there are no more graphs than trajectories
    np.maximum.at(largest, owner, np.abs(earned))
    # Rounding makes no difference, and what is rounding shows against the graph's own outcomes.
    apart = (np.diff(graph) > 0) | (np.diff(values) > 1e-9 * largest[graph[1:]])
    first = np.concatenate([[True], apart])
    of = np.empty_like(order)
    of[order] = np.cumsum(first) - 1
    return graph[first], values[first], of


def _togo(given: ArrayLike, count: int) -> Int64:
    turns = np.asarray(given).ravel()
    if len(turns) != count or turns.min() < 1:
        raise BadInput("turns to go are at least 1, one number per step", where="state graph")
    return turns


def _flags(given: ArrayLike, count: int) -> Bools:
    flags: NDArray[Any] = np.asarray(given, dtype=bool).ravel()
    if len(flags) != count:
        raise BadInput(f"{count} steps but {len(flags)} marks of validity", where="state graph")
    return flags


def _rewards(given: ArrayLike, trajectories: Int64, earned: Float64) -> Float64:
    rewards = np.asarray(given, dtype=np.float64).ravel()
    if len(rewards) != len(trajectories):
        raise BadInput(f"{len(trajectories)} steps but {len(rewards)} rewards", where="state graph")
    if not np.isfinite(rewards).all():
        raise BadInput("a reward is not finite", where=f"step {int(np.argmax(~np.isfinite(rewards)))}")
    total = np.bincount(trajectories, rewards)
    wrong = ~np.isclose(total, earned, rtol=1e-9, atol=1e-9)
    if wrong.any():
        bad = int(np.argmax(wrong))
        raise BadInput(
            f"the steps earn {total[bad]:g}, the episode {earned[bad]:g}",
            where=f"trajectory {bad}",
            hint="rewards are per step or per episode; give one of the two",
        )
    return rewards
