"""From a file to a graph, and from advantages to a file: what the command line calls."""

from __future__ import annotations

import json
import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from refork.errors import BadInput, MissingExtra
from refork.tree.sqlite import is_database
from refork.tree.tree import Tree
from refork.types import Json
from refork_methods.credit.graph.advantages import CreditSettings, edge_gains, node_values
from refork_methods.credit.graph.on_tree import graded_trajectories, graph_credit
from refork_methods.credit.graph.records import Recorded, read_records
from refork_methods.credit.graph.state_graph import Scope, StateGraph
from refork_methods.credit.graph.trajectory_steps import walk_steps

Float64 = NDArray[np.float64]


@dataclass(frozen=True, slots=True, kw_only=True)
class Reading:
    """How a file becomes a graph.

    ``anchor`` None: the state key on a tree that records any, the exact observation elsewhere. ``score``: the
    leaf score of a tree. ``task``: one root of a tree; None: all.
    """

    anchor: str | None = None
    history: int = 1
    fuzzy: float | None = None
    scope: Scope = "group"
    score: str = "success"
    task: str | None = None


@dataclass(frozen=True, slots=True, eq=False)
class Source:
    """The graph of a file. ``names`` are the trajectories': a leaf's node id, or group and name.

    ``records`` holds the trajectories of JSON lines; None for a tree. ``anchor`` is the one that merged
    states, ``keyed`` whether any of them has a state key.
    """

    graph: StateGraph
    names: tuple[str, ...]
    records: tuple[Recorded, ...] | None
    anchor: str
    keyed: bool


def is_tree(path: Path) -> bool:
    """Whether a file is a tree; raises BadInput where there is no such file."""
    try:
        return is_database(path)
    except OSError as error:
        raise BadInput(f"the file cannot be read: {error.strerror}", where=str(path)) from error


def read_source(path: Path, how: Reading) -> Source:
    """The graph of a tree file or of JSON lines.

    Raises:
        BadInput: what cannot be read, a setting that means nothing for this kind of file, and what
            :func:`refork_methods.credit.graph.records.parse_records` or
            :func:`refork_methods.credit.graph.trajectory_steps.walk_steps` refuse.
    """
    if is_tree(path):
        if how.scope != "group":
            raise BadInput("on a tree every task is one group", where=str(path), hint="leave --scope out")
        with Tree.open(path, "r") as tree:
            tasks = None if how.task is None else [tree.node(how.task)]
            trajectories, outcomes, _, _ = graded_trajectories(tree, tasks, how.score)
        # No log of another tool records state keys: by them nothing would ever merge.
        keyed = any(step.node.state_key is not None for path in trajectories for step in path)
        anchor = how.anchor or ("state" if keyed else "exact")
        found = walk_steps(trajectories, outcomes, anchor=anchor, history=how.history, fuzzy=how.fuzzy)
        names = tuple(trajectories[i].leaf.id for i in found.trajectories)
        return Source(found.graph, names, None, anchor, keyed)
    if how.task is not None:
        raise BadInput("a task is named by a tree's node; this is no tree", where=str(path))
    records = read_records(path)
    with warnings.catch_warnings():
        # The collision report says the same, and more.
        warnings.simplefilter("ignore", UserWarning)
        anchor = how.anchor or "exact"
        graph = StateGraph.from_trajectories(
            records, anchor, history=how.history, fuzzy=how.fuzzy, scope=how.scope
        )
    names = tuple(f"{item.group}/{item.name}" for item in records)
    return Source(graph, names, tuple(records), anchor, True)


def step_rows(source: Source, advantages: Float64, settings: CreditSettings) -> list[Json]:
    """One row per step: trajectory, step, state, its value and visits, gain of the edge, advantage.

    Where a step's tokens were recorded, ``tokens`` has one advantage for each, None where its mask is false.
    """
    graph = source.graph
    values = node_values(graph, settings.gamma, settings.visit, settings.win)
    gains, visits = edge_gains(graph, values), graph.visits()
    rows: list[Json] = [
        {
            "trajectory": source.names[trajectory],
            "step": place,
            "outcome": float(graph.outcomes[trajectory]),
            "state": graph.name(node),
            "visits": int(visits[node]),
            "value": float(values[node]),
            "gain": gain,
            "advantage": advantage,
        }
        for trajectory, place, node, gain, advantage in zip(
            graph.trajectories.tolist(),
            graph.positions.tolist(),
            graph.nodes.tolist(),
            gains.tolist(),
            advantages.tolist(),
            strict=True,
        )
    ]
    if source.records is not None:
        steps = [step for item in source.records for step in item.steps]
        for row, step in zip(rows, steps, strict=True):
            row["action"] = step.action
            row["tokens"] = _per_token(row["advantage"], step.tokens, step.mask)
    return rows


def _per_token(
    advantage: float, tokens: Sequence[int] | None, mask: Sequence[bool] | None
) -> list[float | None] | None:
    if tokens is None:
        return None
    return [advantage if on else None for on in (mask if mask is not None else [True] * len(tokens))]


def write_rows(rows: Sequence[Json], path: Path) -> None:
    """Write rows as ``.jsonl``, ``.npz`` (numbers only, names as text) or ``.parquet``; whole or not at all.

    Raises:
        BadInput: another ending, or a file that cannot be written.
        MissingExtra: parquet without pyarrow.
    """
    # The ending stays last: NumPy would add another .npz to any other name, and the move would miss the file.
    part = path.with_name(f".{path.stem}.part{path.suffix}")
    try:
        if path.suffix == ".jsonl":
            part.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
        elif path.suffix == ".npz":
            plain = [key for key in rows[0] if key != "tokens"]
            columns: dict[str, Any] = {key: np.array([row[key] for row in rows]) for key in plain}
            np.savez_compressed(part, **columns)
        elif path.suffix == ".parquet":
            _parquet(rows, part)
        else:
            raise BadInput(
                f"{path.suffix or 'no ending'!r} is not known",
                where=str(path),
                hint=".jsonl, .npz or .parquet",
            )
        part.replace(path)
    except OSError as error:
        raise BadInput(f"the file cannot be written: {error.strerror}", where=str(path)) from error
    finally:
        part.unlink(missing_ok=True)


def _parquet(rows: Sequence[Json], path: Path) -> None:
    try:
        import pyarrow
        from pyarrow import parquet
    except ImportError as error:
        raise MissingExtra("pyarrow", "export") from error
    parquet.write_table(pyarrow.Table.from_pylist(list(rows)), path)


def shown_rows(rows: Sequence[Json], trajectory: str | None = None) -> list[Json]:
    """The rows of one trajectory: the named one (the beginning will do), else whose advantages vary most.

    Raises:
        BadInput: no trajectory of that name, or several.
    """
    by_name: dict[str, list[Json]] = {}
    for row in rows:
        by_name.setdefault(row["trajectory"], []).append(row)
    if trajectory is None:
        return max(by_name.values(), key=lambda mine: float(np.std([row["advantage"] for row in mine])))
    found = [trajectory] if trajectory in by_name else [n for n in by_name if n.startswith(trajectory)]
    if len(found) != 1:
        what = "no trajectory begins" if not found else f"{len(found)} trajectories begin"
        some = ", ".join(list(by_name)[:3])
        raise BadInput(f"{what} with {trajectory!r}", hint=f"the first are {some}")
    return by_name[found[0]]


def write_on_tree(
    path: Path,
    *,
    method: str,
    settings: CreditSettings,
    score: str = "success",
    task: str | None = None,
    anchor: str = "state",
    history: int = 1,
    fuzzy: float | None = None,
) -> int:
    """Store the advantages of a tree file's rollouts as scores; how many are new.

    Raises:
        BadInput: the file is no tree, and what
            :func:`refork_methods.credit.graph.on_tree.graph_credit` refuses.
    """
    if not is_tree(path):
        raise BadInput("only a tree can hold scores", where=str(path), hint="--out writes them to a file")
    with Tree.open(path) as tree:
        credit = graph_credit(
            tree,
            None if task is None else [tree.node(task)],
            score=score,
            method=method,
            settings=settings,
            anchor=anchor,
            history=history,
            fuzzy=fuzzy,
        )
        return credit.write(tree)
