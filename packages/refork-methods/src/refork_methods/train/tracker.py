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
