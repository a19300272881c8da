"""Fidelity on a tree's own turns: every recorded answer is predicted once, and the figures are its scores."""

from __future__ import annotations

from dataclasses import dataclass, replace

from refork.errors import BadInput
from refork.growing.recorder import trajectories
from refork.tree.node import Trajectory
from refork.tree.score import Producer, Score
from refork.tree.tree import Tree
from refork.worlds.environment import EnvTrajectory
from refork_methods.simulate.evaluate import Evaluation
from refork_methods.simulate.fidelity import MEASURES

#: What is written as a score of an observation, as ``fidelity.NAME``.
SCORED = ("coverage", "exact", "rule", "rubric")


@dataclass(frozen=True, slots=True)
class OnTree:
    """A tree's paths as their environment saw them, and each turn's observation node by its target's key.

    ``unplaced``: trajectories whose turns are not one node each (several calls answered at once); they are
    predicted, their scores are not written. ``unread``: why trajectories could not be read.
    """

    trajectories: list[EnvTrajectory]
    nodes: dict[str, str]
    unplaced: int
    unread: list[str]


def on_tree(tree: Tree) -> OnTree:
    """Paths of a tree for an evaluation; a turn that branches share is a target on the first of them only.

    Raises: BadInput where no trajectory has a turn.
    """
    found: list[EnvTrajectory] = []
    nodes: dict[str, str] = {}
    taken: set[str] = set()
    unread: list[str] = []
    unplaced = 0
    for item in trajectories(tree, refused=unread):
        places = _observations(tree.path(str(item.extra["node"])))
        if len(places) != len(item.turns):
            unplaced += 1
            found.append(item)
            continue
        turns = tuple(
            replace(turn, target=False) if place in taken else turn
            for turn, place in zip(item.turns, places, strict=True)
        )
        nodes |= {
            f"{item.source}/{item.id}/{n}": place for n, place in enumerate(places) if place not in taken
        }
        taken |= set(places)
        found.append(replace(item, turns=turns))
    if not found:
        raise BadInput("no trajectory of this tree has a turn", where="fidelity", hint="refork world record")
    return OnTree(found, nodes, unplaced, unread)


def _observations(trajectory: Trajectory) -> list[str]:
    """Nodes of the observations that answer an action, in order."""
    found: list[str] = []
    acted = False
    for step in trajectory:
        if step.node.kind == "action":
            acted = True
        elif step.node.kind == "observation" and acted:
            found.append(step.node.id)
    return found


def write_scores(tree: Tree, evaluation: Evaluation, nodes: dict[str, str], seed: int = 0) -> int:
    """Write the turns' figures as scores of their observations; how many are new.

    The producer is this evaluation of this simulator: its identity, its judge's and the seed.
    """
    fidelity = evaluation.fidelity
    judge = fidelity.judge if evaluation.judge is None else evaluation.judge
    producer = Producer("fidelity", "1", {"simulator": fidelity.identity, "judge": judge, "seed": seed})
    tree.add_producer(producer)
    scores = [
        Score(nodes[turn.key], f"fidelity.{name}", value, producer.id, turn.error)
        for turn in evaluation.turns
        if turn.key in nodes
        for name in SCORED
        if (value := MEASURES[name](turn)) is not None
    ]
    return tree.add_scores(scores)
