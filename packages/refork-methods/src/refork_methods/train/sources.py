"""What there is to train on: conversations in a file, trajectories and pairs on a tree."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from refork.errors import BadInput
from refork.jsonl import json_objects
from refork.tree.node import Node, Trajectory
from refork.tree.tree import Tree
from refork.types import Json, Message, token_array
from refork_methods.credit.methods import Credit
from refork_methods.credit.on_tree import tree_credit
from refork_methods.train.preference import Pair
from refork_methods.train.rows import RolloutRow, rollout_rows, sibling_pairs

Floats = NDArray[np.float64]


def json_lines(file: Path) -> list[Json]:
    """The objects of a JSON-lines file.

    Raises:
        BadInput: no such file, or a line that is not an object; the line is named.
    """
    try:
        lines = file.read_text(encoding="utf-8").split("\n")
    except OSError as error:
        raise BadInput(f"the file cannot be read: {error.strerror}", where=str(file)) from error
    rows = [row for _, row in json_objects(lines, str(file))]
    if not rows:
        raise BadInput("the file is empty", where=str(file))
    return rows


def read_conversations(file: Path) -> list[list[Message]]:
    """Chat conversations, one ``{"messages": [...]}`` per line.

    Raises:
        BadInput: see :func:`json_lines`; or a line without messages.
    """
    found = []
    for number, row in enumerate(json_lines(file), 1):
        messages = row.get("messages")
        if not isinstance(messages, list) or not all(isinstance(m, dict) and "role" in m for m in messages):
            raise BadInput("this line has no list of messages with roles", where=f"{file}:{number}")
        found.append(messages)
    return found


def read_pairs(file: Path) -> list[Pair]:
    """Preference pairs: ``prompt_ids``, ``chosen_ids``, ``rejected_ids`` per line, as lists of token ids.

    Raises:
        BadInput: see :func:`json_lines`; or a line without these ids (text alone is refused, since it may
            be tokenised otherwise than it was sampled).
    """
    found = []
    for number, row in enumerate(json_lines(file), 1):
        parts = []
        for name in ("prompt_ids", "chosen_ids", "rejected_ids"):
            ids = row.get(name)
            if not isinstance(ids, list) or not all(type(i) is int and i >= 0 for i in ids):
                raise BadInput(
                    f"{name} is not a list of token ids",
                    where=f"{file}:{number}",
                    hint="write pairs with `refork train export --format trl-dpo`",
                )
            parts.append(token_array(ids))
        found.append(Pair(parts[0], parts[1], parts[2]))
    return found


def graded_groups(tree: Tree, score: str = "success") -> list[tuple[Node, list[Trajectory], Floats]]:
    """Each task of a tree with its graded paths and their outcomes; only exact draws of the policy count.

    Raises:
        BadInput: no task has a graded rollout.
    """
    found = []
    for task in list(tree.tasks()):
        try:
            credit = tree_credit(tree, task, score=score)
        except BadInput as error:
            # The message is the only sign of a task without grades: every other refusal must come through.
            if not error.what.startswith("no rollout below"):
                raise
            continue
        found.append((task, list(credit.trajectories), credit.outcomes))
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
    rows: list[RolloutRow] = []
    for _, trajectories, outcomes in graded_groups(tree, score):
        rows += rollout_rows(trajectories, outcomes, list(credit(trajectories, outcomes)))
    return rows


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
