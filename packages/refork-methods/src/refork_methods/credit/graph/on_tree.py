"""Graph credit of recorded rollouts: advantages per token of trajectories, and scores on their tree.

The policy's tokens get their step's advantage, all others NaN. A token that several trajectories share gets
the mean of what its steps have in them: the same number in each trajectory, so it does not matter in which
one a trainer learns it.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import asdict, dataclass
from functools import partial

import numpy as np
from numpy.typing import ArrayLike

from refork.errors import BadInput
from refork.tree.node import Node, Trajectory
from refork.tree.score import Producer, Score
from refork.tree.tree import Tree
from refork_methods.credit.graph.advantages import METHODS, CreditSettings, step_advantages
from refork_methods.credit.graph.anchors import Anchor
from refork_methods.credit.graph.state_graph import StateGraph
from refork_methods.credit.graph.trajectory_steps import Float64, TrajectorySteps, size_of, walk_steps
from refork_methods.credit.on_tree import tree_credits

#: On a tree every trajectory counts once in its group's mean: forks cut turns into steps, and must not weigh.
ON_TREE = CreditSettings(over="trajectories")


def graph_advantages(
    trajectories: Sequence[Trajectory],
    outcomes: ArrayLike,
    *,
    method: str = "g2po",
    settings: CreditSettings = ON_TREE,
    anchor: str | Anchor = "state",
    history: int = 1,
    fuzzy: float | None = None,
) -> list[Float64]:
    """Advantages per token of each trajectory, verdicts left out; NaN where the policy did not speak.

    Trajectories of one task under the same sampling settings are one group; there may be several. States
    merge by their state key, and trajectories of one tree share their common beginning whatever their states
    are called. A state visited by a shared beginning counts once per path through it. Where forks were chosen
    by what had been seen, values above them lean towards the forked branch.

    Args:
        trajectories: paths from root to leaf.
        outcomes: rewards [trajectories]; NaN: not graded, and so without an advantage, and not counted.
        method: ``grpo``, ``gigpo``, ``hgpo``, ``graphgpo`` or ``g2po``.
        settings: norm, step weight and so on.
        anchor: what makes two observations one state, see
            :func:`refork_methods.credit.graph.trajectory_steps.walk_steps`.
        history: how many of the last states must be equal.
        fuzzy: merge observations that share at least this part of their words.

    Raises:
        BadInput: an unknown method or anchor, counts that differ, or an infinite outcome.
    """
    _known(method)
    earned = np.asarray(outcomes, dtype=np.float64).reshape(-1)
    # A group in which nobody acted is no error to a trainer. Counts that differ are, and walk_steps says so.
    if len(earned) == len(trajectories) and not _acted(trajectories, earned):
        return [np.full(_length(trajectory), np.nan) for trajectory in trajectories]
    found = walk_steps(trajectories, earned, anchor=anchor, history=history, fuzzy=fuzzy)
    return _along(trajectories, found, found.per_token(step_advantages(found.graph, method, settings)))


#: Credit methods of these names, see :mod:`refork_methods.credit.methods`.
gigpo = partial(graph_advantages, method="gigpo")
hgpo = partial(graph_advantages, method="hgpo")
graphgpo = partial(graph_advantages, method="graphgpo")
g2po = partial(graph_advantages, method="g2po")


def _known(method: str) -> None:
    if method not in METHODS:
        raise BadInput(
            f"unknown method {method!r}", where="graph credit", hint=f"known: {', '.join(METHODS)}"
        )


def _acted(trajectories: Sequence[Trajectory], earned: Float64) -> bool:
    graded = np.flatnonzero(~np.isnan(earned)).tolist()
    return any(step.node.kind == "action" for i in graded for step in trajectories[i])


def _length(trajectory: Trajectory) -> int:
    return sum(len(s.tokens) for s in trajectory if s.node.kind != "verdict" and s.tokens is not None)


def _along(trajectories: Sequence[Trajectory], found: TrajectorySteps, tokens: Float64) -> list[Float64]:
    graded = set(found.trajectories)
    rows = []
    for i, trajectory in enumerate(trajectories):
        parts = [np.zeros(0)]
        for step in trajectory:
            if step.node.kind == "verdict" or step.tokens is None:
                continue
            at, count = found.slots.get(step.node.id), len(step.tokens)
            known = i in graded and at is not None
            parts.append(tokens[at : at + count] if known and at is not None else np.full(count, np.nan))
        rows.append(np.concatenate(parts))
    return rows


@dataclass(frozen=True, slots=True, eq=False)
class GraphCredit:
    """Graph credit of recorded tasks.

    ``trajectories`` and ``outcomes`` [trajectories] are what it was computed from, ``steps`` [steps] the
    advantage of each step of ``graph``, ``advantages`` one array per trajectory with one number per token
    (see :func:`graph_advantages`). ``scores`` are ready to be written: under ``advantage``, one value per
    token of an action node (one in all where its tokens were not recorded).
    """

    trajectories: tuple[Trajectory, ...]
    outcomes: Float64
    graph: StateGraph
    steps: Float64
    advantages: tuple[Float64, ...]
    producer: Producer
    scores: tuple[Score, ...]

    def write(self, tree: Tree) -> int:
        """Store producer and scores; how many scores are new."""
        tree.add_producer(self.producer)
        return tree.add_scores(self.scores)


def graph_credit(
    tree: Tree,
    tasks: Iterable[Node | str] | None = None,
    *,
    score: str = "success",
    method: str = "g2po",
    settings: CreditSettings = ON_TREE,
    anchor: str = "state",
    history: int = 1,
    fuzzy: float | None = None,
    forks: Collection[str] | None = None,
) -> GraphCredit:
    """Graph credit of tasks of a tree, from all graded rollouts that no change led to.

    Args:
        tree: where the rollouts are.
        tasks: roots; None: all that have a graded rollout.
        score: name of the leaf score.
        method: see :func:`graph_advantages`, as are the settings and the anchor.
        settings: norm, step weight and so on.
        anchor: ``state``, ``tree``, ``exact`` or ``normalised``.
        history: how many of the last states must be equal.
        fuzzy: merge similar observations.
        forks: ids of the arms that count; None: every unchanged arm.

    Raises:
        UnknownNode: no such root.
        BadInput: a task without a graded rollout, or none that has one, and what
            :func:`graph_advantages` refuses.
    """
    _known(method)
    trajectories, outcomes, reads, draws = graded_trajectories(tree, tasks, score, forks)
    found = walk_steps(trajectories, outcomes, anchor=anchor, history=history, fuzzy=fuzzy)
    steps = step_advantages(found.graph, method, settings)
    tokens = found.per_token(steps)
    config = {
        "method": method,
        "score": score,
        "anchor": anchor,
        "history_of_anchor": history,
        "fuzzy": fuzzy,
        "draws": draws,
        **asdict(settings),
    }
    producer = Producer("graph-credit", "1", config, tuple(sorted(reads)))
    return GraphCredit(
        trajectories=tuple(trajectories),
        outcomes=np.asarray(outcomes, dtype=np.float64),
        graph=found.graph,
        steps=steps,
        advantages=tuple(_along(trajectories, found, tokens)),
        producer=producer,
        scores=tuple(_scores(found, tokens, producer.id)),
    )


def graded_trajectories(
    tree: Tree,
    tasks: Iterable[Node | str] | None = None,
    score: str = "success",
    forks: Collection[str] | None = None,
) -> tuple[list[Trajectory], list[float], set[str], list[str]]:
    """Graded rollouts of tasks: paths, outcomes, producers of the outcomes, a digest of each group's draws.

    Raises:
        UnknownNode: no such root.
        BadInput: a named task without a graded rollout, or no task that has one.
    """
    trajectories: list[Trajectory] = []
    outcomes: list[float] = []
    reads: set[str] = set()
    draws: list[str] = []
    named = tasks is not None
    for root in tree.tasks() if tasks is None else tasks:
        try:
            groups = tree_credits(tree, root, score=score, forks=forks)
        except BadInput as error:
            # The message is the only sign of a task without grades: every other refusal must come through.
            if named or not error.what.startswith("no rollout below"):
                raise
            continue
        for credit in groups:
            trajectories += credit.trajectories
            outcomes += credit.outcomes.tolist()
            reads.update(credit.producer.reads)
            draws.append(str(credit.producer.config["draws"]))
    if not trajectories:
        raise BadInput(
            f"no task of this tree has a rollout with a {score!r} score",
            where=tree.uri or "in memory",
            hint=f"--score names another; this tree has: {tree.named_scores()}",
        )
    return trajectories, outcomes, reads, draws


def _scores(found: TrajectorySteps, tokens: Float64, producer: str) -> list[Score]:
    """One score per action node whose tokens all have an advantage."""
    scores = []
    for name, node in found.nodes.items():
        at = found.slots[name]
        values = tokens[at : at + size_of(node)]
        if np.isfinite(values).all():
            value = float(values[0]) if node.tokens is None else values.copy()
            scores.append(Score(name, "advantage", value, producer))
    return scores
