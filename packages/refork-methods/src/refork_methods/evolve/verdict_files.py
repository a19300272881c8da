"""Stored verdicts of users: JSON lines and logs of inspect_ai. Anchors, and lists of items shown."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from refork.errors import BadInput, Mismatch
from refork.jsonl import json_objects
from refork.types import Json
from refork_methods.evolve.inspect_log import LETTERS, looks_like_log, read_log
from refork_methods.evolve.swap import Verdict

_ROW = '{"item": "a17", "judge": "gpt-x prompt-3", "value": 1}'


def read_verdicts(files: Sequence[Path], threshold: float | None = None) -> list[Verdict]:
    """The verdicts of all files, in order; folders stand for the logs and JSON lines in them.

    A JSON line has ``item``, ``judge`` and ``value``; ``id`` (default FILE:LINE) and ``source`` if known.

    Raises:
        BadInput: a file without verdicts, a row without a judge or an item, a value that is no verdict.
        Mismatch: two logs hold different outputs for one item.
    """
    found: list[Verdict] = []
    outputs: dict[str, tuple[str, str]] = {}
    for file in _files(files):
        found += _inspect(file, threshold, outputs) if _is_log(file) else _lines(file, threshold)
    if not found:
        raise BadInput("there are no verdicts in these files", hint=f"lines such as {_ROW}")
    return found


def _files(given: Sequence[Path]) -> Iterator[Path]:
    for path in given:
        if not path.is_dir():
            yield path
            continue
        inside = sorted(one for one in path.iterdir() if one.suffix in (".jsonl", ".json", ".eval"))
        if not inside:
            raise BadInput("there is no .jsonl, .json or .eval file in this folder", where=str(path))
        yield from inside


def _is_log(file: Path) -> bool:
    if file.suffix == ".eval":
        return True
    if file.suffix != ".json":
        return False
    try:
        head = json.loads(file.read_text(encoding="utf-8"))
    except ValueError:
        return False
    return isinstance(head, dict) and looks_like_log(head)


def _lines(file: Path, threshold: float | None) -> Iterator[Verdict]:
    name = str(file)
    for number, row in _rows(file):
        judge, item, source = row.get("judge"), row.get("item"), row.get("source")
        place = f"{name}:{number}"
        if not judge or item is None or "value" not in row:
            raise BadInput(
                f"a verdict names its {'value' if judge and item is not None else 'judge and item'}",
                where=place, hint=f"lines such as {_ROW}",
            )  # fmt: skip
        value = verdict_value(row["value"], place, threshold)
        told = None if source is None else str(source)
        yield Verdict(str(row.get("id", place)), str(judge), str(item), value, told)


def _rows(file: Path) -> list[tuple[int, Json]]:
    """The objects of JSON lines with their line numbers.

    All lines are parsed as one list, which takes a third of the time; where that fails the lines are read one
    by one, for a message that names the line.
    """
    try:
        # Not splitlines(), which also ends a line at characters that may stand inside a JSON text (U+2028).
        lines = [(n, line) for n, line in enumerate(file.read_text("utf-8").split("\n"), 1) if line.strip()]
        rows = json.loads(f"[{','.join(line for _, line in lines)}]")
        if len(rows) == len(lines) and all(type(row) is dict for row in rows):
            return [(n, row) for (n, _), row in zip(lines, rows, strict=True)]
    except (ValueError, RecursionError):
        pass
    with file.open(encoding="utf-8") as stream:
        found = json_objects(stream, str(file))
        return [(int(place.rpartition(":")[2]), row) for place, row in found]


def _inspect(file: Path, threshold: float | None, outputs: dict[str, tuple[str, str]]) -> Iterator[Verdict]:
    for one in read_log(file):
        known, first = outputs.setdefault(one.item, (one.output, str(file)))
        if known != one.output:
            raise Mismatch(
                f"sample {one.item!r} has another output here than in {first}", where=str(file),
                hint="verdicts are compared on the same work: score one log with both scorers",
            )  # fmt: skip
        yield Verdict(
            one.node_id, one.judge, one.item, verdict_value(one.value, one.node_id, threshold), one.source
        )


def verdict_value(raw: Any, where: str, threshold: float | None = None) -> int:
    """A stored value as 0 or 1: 0, 1, true, false, inspect_ai's C, I and N, or a number against a threshold.

    Raises: BadInput for anything else.
    """
    if threshold is None and type(raw) is int and 0 <= raw <= 1:
        return raw
    if isinstance(raw, str) and raw in LETTERS:
        return LETTERS[raw]
    if isinstance(raw, bool):
        return int(raw)
    if isinstance(raw, int | float) and math.isfinite(raw):
        if threshold is not None:
            return int(raw >= threshold)
        if raw in (0, 1):
            return int(raw)
        raise BadInput(f"the value is {raw!r}, not 0 or 1", where=where, hint="--threshold 0.5")
    raise BadInput(
        f"the value is {raw!r}, not a verdict", where=where, hint="0, 1, true, false, C, I or N, or a number"
    )


def read_anchor(file: Path) -> dict[str, int]:
    """True labels by item, from JSON lines with ``id`` (or ``item``) and ``label`` 0 or 1.

    Raises: BadInput for another label, a row without an item, or an item twice.
    """
    found: dict[str, int] = {}
    with file.open(encoding="utf-8") as stream:
        for place, row in json_objects(stream, str(file)):
            item = _item(row, place)
            label = row.get("label")
            if label not in (0, 1):
                raise BadInput(f"the label is {label!r}, not 0 or 1", where=place)
            if item in found:
                raise BadInput(f"item {item!r} has a label already", where=place)
            found[item] = int(label)
    if not found:
        raise BadInput("the anchor is empty", where=str(file), hint='{"id": "a17", "label": 1}')
    return found


def read_sources(file: Path) -> dict[str, str]:
    """Sources by item that an anchor tells (``human``, ``ai``); items without one are left out."""
    with file.open(encoding="utf-8") as stream:
        return {
            _item(row, place): str(row["source"])
            for place, row in json_objects(stream, str(file))
            if row.get("source") is not None
        }


def _item(row: Json, place: str) -> str:
    item = row.get("id", row.get("item"))
    if item is None:
        raise BadInput("an anchor line names its item", where=place, hint='{"id": "a17", "label": 1}')
    return str(item)


def read_items(file: Path) -> list[str]:
    """Items, one per line: as text, or as JSON objects with ``id`` or ``item``."""
    text = file.read_text(encoding="utf-8")
    if text.lstrip().startswith("{"):
        return [_item(row, place) for place, row in json_objects(text.split("\n"), str(file))]
    return [line.strip() for line in text.splitlines() if line.strip()]
