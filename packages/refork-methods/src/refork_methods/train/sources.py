"""What there is to train on: conversations in a file, trajectories and pairs on a tree."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from refork.errors import BadInput
from refork.jsonl import json_objects, read_utf8
from refork.tree.node import Node, Trajectory
from refork.tree.tree import Tree
from refork.types import Json, Message, token_array
from refork_methods.credit.methods import Credit
from refork_methods.credit.on_tree import tree_credits
from refork_methods.train.preference import Pair
from refork_methods.train.rows import RolloutRow, rollout_rows, sibling_pairs

Floats = NDArray[np.float64]


def json_lines(file: Path) -> list[Json]:
    """The objects of a JSON-lines file.

    Raises:
        BadInput: no such file, no UTF-8, or a line that is not an object; the line is named.
    """
    return [row for _, row in _placed(file)]


def _placed(file: Path) -> list[tuple[str, Json]]:
    """The objects of a JSON-lines file with their places."""
    # Not splitlines(), which also ends a line at characters that may stand inside a JSON text (U+2028).
    rows = list(json_objects(read_utf8(file).split("\n"), str(file)))
    if not rows:
        raise BadInput("the file is empty", where=str(file))
    return rows


def read_conversations(file: Path) -> list[list[Message]]:
    """Chat conversations, one ``{"messages": [...]}`` per line.

    Raises:
        BadInput: see :func:`json_lines`; or a line without messages.
    """
    found = []
    for place, row in _placed(file):
        messages = row.get("messages")
        if not isinstance(messages, list) or not all(isinstance(m, dict) and "role" in m for m in messages):
            raise BadInput("this line has no list of messages with roles", where=place)
        found.append(messages)
    return found


def read_pairs(file: Path) -> list[Pair]:
    """Preference pairs: ``prompt_ids``, ``chosen_ids``, ``rejected_ids`` per line, as lists of token ids.

    Raises:
        BadInput: see :func:`json_lines`; or a line without these ids (text alone is refused, since it may
            be tokenised otherwise than it was sampled).
    """
    found = []
    for place, row in _placed(file):
        parts = []
        for name in ("prompt_ids", "chosen_ids", "rejected_ids"):
            ids = row.get(name)
            if not isinstance(ids, list) or not all(type(i) is int and i >= 0 for i in ids):
                raise BadInput(
                    f"{name} is not a list of token ids",
                    where=place,
                    hint="write pairs with `refork train export --format trl-dpo`",
                )
            parts.append(token_array(ids))
        found.append(Pair(parts[0], parts[1], parts[2]))
    return found


def graded_groups(tree: Tree, score: str = "success") -> list[tuple[Node, list[Trajectory], Floats]]:
    """Each task of a tree with its graded paths and their outcomes; only exact draws of the policy count.

    A task that was drawn under several sampling settings comes once for each: such draws are no one group.

    Raises:
        BadInput: no task has a graded rollout.
    """
    found = []
    for task in list(tree.tasks()):
        try:
            groups = tree_credits(tree, task, score=score)
        except BadInput as error:
            # The message is the only sign of a task without grades: every other refusal must come through.
            if not error.what.startswith("no rollout below"):
                raise
            continue
        found += [(task, list(credit.trajectories), credit.outcomes) for credit in groups]
    if not found:
        raise BadInput(
            f"no rollout of this tree has a {score!r} score",
            where=str(tree.file or "tree in memory"),
            hint="`refork tree stats` lists its scores",
        )
    return found


def successes(tree: Tree, least: float = 1.0, score: str = "success") -> list[Trajectory]:
    """The paths of a tree whose outcome is at least ``least``; raises BadInput where there are none."""
    trajectories = [
        trajectory
        for _, group, outcomes in graded_groups(tree, score)
        for trajectory, outcome in zip(group, outcomes, strict=True)
        if outcome >= least
    ]
    if not trajectories:
        raise BadInput(f"no rollout of this tree has a {score!r} of at least {least:g}", where=str(tree.file))
    return trajectories


def tree_rows(tree: Tree, credit: Credit, score: str = "success") -> list[RolloutRow]:
    """All graded rollouts of a tree with advantages task by task, as plain rows.

    Tokens that several trajectories share stand in each of them, since other trainers know no trees.
    """
    groups = graded_groups(tree, score)
    return rollout_rows(
        [trajectory for _, trajectories, _ in groups for trajectory in trajectories],
        np.concatenate([outcomes for _, _, outcomes in groups]),
        [one for _, trajectories, outcomes in groups for one in credit(trajectories, outcomes)],
    )


def tree_pairs(tree: Tree, least: float = 0.25, score: str = "success") -> list[tuple[Pair, float]]:
    """Preference pairs from every fork of a tree whose branches differ in value by at least ``least``.

    Raises BadInput where no fork does.
    """
    found: list[tuple[Pair, float]] = []
    for _, trajectories, outcomes in graded_groups(tree, score):
        found += sibling_pairs(trajectories, outcomes, least=least)
    if not found:
        raise BadInput(
            f"no fork of this tree has branches whose values differ by {least:g} or more",
            where=str(tree.file or "tree in memory"),
            hint="grow more rollouts per task, or ask for a smaller difference",
        )
    return found
