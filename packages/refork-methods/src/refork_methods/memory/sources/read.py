"""Reading a file of trajectories, whichever of the known kinds it is."""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path

from refork.errors import BadInput
from refork.jsonl import json_objects
from refork.plain import from_json, to_json
from refork.tree.address import is_address
from refork.tree.sqlite import is_database
from refork.types import Json
from refork_methods.memory.sources.messages import run_of_messages
from refork_methods.memory.sources.spans import is_span, runs_of_spans
from refork_methods.memory.sources.tree import runs_of_tree
from refork_methods.memory.trajectory import RunTrajectory


def read_runs(path: Path) -> list[RunTrajectory]:
    """The trajectories of a tree, or of JSON lines: OpenAI messages, spans, or our own.

    A line of messages may say ``task`` (else the file's name and the line), ``query``, and ``success`` or
    ``reward``.

    Raises:
        BadInput: a line of no known kind, a trajectory without a query, two of one task id.
    """
    if not (is_address(path) or path.is_file()):
        raise BadInput("there is no such file", where=str(path))
    runs = list(runs_of_tree(path)) if is_database(path) else _lines(path)
    names = [run.task for run in runs]
    if len(set(names)) < len(names):
        twice = next(name for name in names if names.count(name) > 1)
        raise BadInput(f"two trajectories have the task id {twice!r}", where=str(path))
    if not runs:
        raise BadInput("there is no trajectory in this file", where=str(path))
    return runs


def _lines(path: Path) -> list[RunTrajectory]:
    with path.open(encoding="utf-8") as lines:
        rows = list(json_objects(lines, str(path)))
    if rows and all(is_span(body) for _, body in rows):
        return list(runs_of_spans(rows))
    return [_run(place, body, f"{path.stem}:{number}") for number, (place, body) in enumerate(rows, 1)]


def _run(place: str, body: Json, name: str) -> RunTrajectory:
    if "steps" in body and "query" in body:
        return from_json(RunTrajectory, body, place)
    messages = body.get("messages")
    if not isinstance(messages, list) or not all(isinstance(one, dict) for one in messages):
        raise BadInput(
            "this line is no trajectory",
            where=place,
            hint='{"messages": [...]}, {"query": ..., "steps": [...]} or spans',
        )
    task = str(body.get("task") or body.get("task_id") or body.get("id") or name)
    query = body.get("query")
    return run_of_messages(messages, task, query=str(query) if query else None, success=_success(body))


def _success(body: Json) -> bool | None:
    if isinstance(body.get("success"), bool):
        return bool(body["success"])
    reward = body.get("reward")
    return None if reward is None else float(reward) >= 1.0


def write_runs(path: Path, runs: Iterable[RunTrajectory]) -> None:
    """Trajectories as our own JSON lines."""
    path.write_text(
        "".join(json.dumps(to_json(run), ensure_ascii=False) + "\n" for run in runs), encoding="utf-8"
    )
