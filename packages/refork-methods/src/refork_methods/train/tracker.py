"""The curve of a training: one JSON object a step in a file, which ``--track`` shows in other tools."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Protocol, final

from refork.types import Json


class Tracker(Protocol):
    """Told of every step."""

    def log(self, step: int, metrics: Mapping[str, Any]) -> None:
        """Metrics of one step."""
        ...


@final
class JsonLines:
    """One JSON object per step in a file. A resumed run drops the lines that it is about to write again."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._last: int | None = None
        path.parent.mkdir(parents=True, exist_ok=True)

    def log(self, step: int, metrics: Mapping[str, Any]) -> None:
        """Append a step, after any later or equal one was taken away."""
        line = json.dumps({"step": step} | dict(metrics)) + "\n"
        if self._last is None or step <= self._last:
            # The first line of a resumed run: what another one wrote beyond it is about to be done again.
            kept = [row for row in read_lines(self.path) if row["step"] < step]
            part = self.path.with_suffix(".part")
            part.write_text("".join(json.dumps(row) + "\n" for row in kept) + line)
            part.replace(self.path)
        else:
            with self.path.open("a", encoding="utf-8") as out:
                out.write(line)
        self._last = step


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
