"""Where a training's curves go: one thin seam, a file always, and a tool of :mod:`refork.runs.track`."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Protocol, final, runtime_checkable

from refork.runs import track
from refork.types import Json


@runtime_checkable
class Tracker(Protocol):
    """Told of every step; numbers only."""

    def log(self, step: int, metrics: Mapping[str, Any]) -> None:
        """Metrics of one step; what is not a finite number is left out by tools that cannot show it."""
        ...

    def close(self) -> None:
        """Nothing more will come."""
        ...


@final
class JsonLines:
    """One JSON object per step in a file. A resumed run drops the lines that it is about to write again."""

    def __init__(self, path: Path) -> None:
        self.path = path
        path.parent.mkdir(parents=True, exist_ok=True)

    def log(self, step: int, metrics: Mapping[str, Any]) -> None:
        """Append a step, after any later or equal one was taken away."""
        known = read_lines(self.path)
        kept = [row for row in known if row["step"] < step]
        line = json.dumps({"step": step} | dict(metrics)) + "\n"
        if len(kept) < len(known):
            part = self.path.with_suffix(".part")
            part.write_text("".join(json.dumps(row) + "\n" for row in kept) + line)
            part.replace(self.path)
            return
        with self.path.open("a", encoding="utf-8") as out:
            out.write(line)

    def close(self) -> None:
        """Nothing to do."""


def read_lines(path: Path) -> list[Json]:
    """What a :class:`JsonLines` file holds; a last line that was cut short is left out."""
    rows: list[Json] = []
    if path.exists():
        for line in path.read_text(encoding="utf-8").splitlines():
            try:
                rows.append(json.loads(line))
            except ValueError:
                break
    return rows


@final
class Several:
    """Tells each of several trackers."""

    def __init__(self, *trackers: Tracker) -> None:
        self._trackers = trackers

    def log(self, step: int, metrics: Mapping[str, Any]) -> None:
        """Tell all of them."""
        for one in self._trackers:
            one.log(step, metrics)

    def close(self) -> None:
        """Close all of them."""
        for one in self._trackers:
            one.close()


def open_tracker(folder: Path, asked: str | None = None) -> Tracker:
    """``metrics.jsonl`` in a run's folder, and beside it a tool as ``--track`` names it.

    Raises:
        BadInput: no such tool.
        MissingExtra: it is not installed; the hint is the command.
    """
    lines = JsonLines(folder / "metrics.jsonl")
    return lines if asked is None else Several(lines, track.open_tracker(asked, folder))
