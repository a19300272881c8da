"""Where curves go: one thin seam, a file by default, other tools where they are installed."""

from __future__ import annotations

import json
import math
import numbers
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Protocol, final, runtime_checkable

from ramify.core.errors import BadInput, CannotDo, MissingExtra
from ramify.core.types import Json


@runtime_checkable
class Tracker(Protocol):
    """Told of every step; numbers only."""

    def log(self, step: int, metrics: Mapping[str, Any]) -> None:
        """Metrics of one step; what is not a finite number is left out by tools that cannot show it."""
        ...

    def close(self) -> None:
        """Nothing more will come."""
        ...


def plain_metrics(metrics: Mapping[str, Any]) -> dict[str, float]:
    """The finite numbers among some metrics."""
    return {
        name: float(value)
        for name, value in metrics.items()
        if type(value) is not bool and isinstance(value, numbers.Real) and math.isfinite(float(value))
    }


@final
class Recorded:
    """Keeps everything in memory: ``steps`` is a list of (step, metrics)."""

    def __init__(self) -> None:
        self.steps: list[tuple[int, Json]] = []

    def log(self, step: int, metrics: Mapping[str, Any]) -> None:
        """Keep a step; one that is logged again replaces what was known of it and all later ones."""
        self.steps = [item for item in self.steps if item[0] < step]
        self.steps.append((step, dict(metrics)))

    def close(self) -> None:
        """Nothing to do."""


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
class TensorBoard:
    """Scalars for TensorBoard, in files of a local folder."""

    def __init__(self, folder: Path) -> None:
        try:
            from torch.utils.tensorboard import SummaryWriter
        except ImportError as error:
            raise MissingExtra("tensorboard", "track") from error
        self._writer: Any = SummaryWriter(str(folder))

    def log(self, step: int, metrics: Mapping[str, Any]) -> None:
        """Write a step's numbers."""
        for name, value in plain_metrics(metrics).items():
            self._writer.add_scalar(name, value, step)

    def close(self) -> None:
        """Flush and close the files."""
        self._writer.close()


@final
class Trackio:
    """A local trackio project; nothing is uploaded, since no Space is named."""

    def __init__(self, project: str, name: str) -> None:
        try:
            import trackio
        except ImportError as error:
            raise MissingExtra("trackio", "track") from error
        self._trackio: Any = trackio
        trackio.init(project=project, name=name, resume="allow")

    def log(self, step: int, metrics: Mapping[str, Any]) -> None:
        """Log a step's numbers."""
        self._trackio.log(plain_metrics(metrics), step=step)

    def close(self) -> None:
        """End the run."""
        self._trackio.finish()


@final
class WeightsAndBiases:
    """A Weights & Biases run in offline mode; ``wandb sync`` uploads it if and when its owner wants."""

    def __init__(self, folder: Path, project: str, name: str) -> None:
        try:
            import wandb
        except ImportError as error:
            raise CannotDo("wandb is not installed", hint="pip install wandb") from error
        folder.mkdir(parents=True, exist_ok=True)
        self._run: Any = wandb.init(project=project, name=name, dir=str(folder), mode="offline")

    def log(self, step: int, metrics: Mapping[str, Any]) -> None:
        """Log a step's numbers."""
        self._run.log(plain_metrics(metrics), step=step)

    def close(self) -> None:
        """End the run."""
        self._run.finish()


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


#: Trackers that a recipe may name beside the file that is always written.
TRACKERS = ("tensorboard", "trackio", "wandb")


def open_tracker(folder: Path, name: str | None = None) -> Tracker:
    """``metrics.jsonl`` in a run's folder, and a named tool beside it. None of them uploads anything.

    Raises:
        BadInput: no such tool.
        MissingExtra, CannotDo: it is not installed; the hint is the command.
    """
    lines = JsonLines(folder / "metrics.jsonl")
    if name is None:
        return lines
    if name == "tensorboard":
        return Several(lines, TensorBoard(folder / "tensorboard"))
    if name == "trackio":
        return Several(lines, Trackio("ramify", folder.resolve().name))
    if name == "wandb":
        return Several(lines, WeightsAndBiases(folder / "wandb", "ramify", folder.resolve().name))
    raise BadInput(f"unknown tracker {name!r}", hint="known: " + ", ".join(TRACKERS))
