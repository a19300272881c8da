"""Where a run's curves go: one small protocol, and tools that keep them on this machine unless they are told.

======================  ==============================================  =====================================
``--track``             ``WHERE``                                       left out
======================  ==============================================  =====================================
``tensorboard[:WHERE]``  a folder for its event files                    ``OUT/tensorboard``
``trackio[:WHERE]``      a project of this machine                       ``refork``
``wandb[:WHERE]``        PROJECT or ENTITY/PROJECT; files in OUT/wandb   ``refork``
``mlflow[:WHERE]``       a folder, ``sqlite:///FILE`` or a server's URL  ``OUT/mlflow``
======================  ==============================================  =====================================

Weights & Biases runs offline unless WANDB_MODE says otherwise; MLflow uploads only to a server that is named.
"""

from __future__ import annotations

import json
import math
import numbers
import os
import re
import secrets
import time
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Final, Protocol, final, runtime_checkable

from refork import registry
from refork.errors import BadInput, MissingExtra
from refork.plain import from_json
from refork.types import Json

#: Files in which runs keep a line for every step.
CURVES: Final = ("metrics.jsonl", "log.jsonl")
GRAMMAR: Final = "tensorboard, trackio, wandb, mlflow or one of your own, each with :WHERE if you like"


@runtime_checkable
class Tracker(Protocol):
    """Told of steps; numbers only. ``handle`` lets a later process go on with the same curve."""

    @property
    def handle(self) -> str | None:
        """What the tool calls this run; None where it needs no name to go on."""
        ...

    def log(self, step: int, metrics: Mapping[str, Any]) -> None:
        """Metrics of one step; what is no finite number is left out."""
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
class TensorBoard:
    """Scalars for TensorBoard, in event files of a folder."""

    handle: str | None = None

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
    """A trackio project of this machine; nothing is uploaded, since no Space is named."""

    handle: str | None = None

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
    """A Weights & Biases run, offline unless WANDB_MODE says otherwise; ``wandb sync`` uploads it later."""

    def __init__(self, folder: Path, project: str, name: str, handle: str | None = None) -> None:
        os.environ.setdefault("WANDB_ERROR_REPORTING", "false")
        try:
            import wandb
        except ImportError as error:
            raise MissingExtra("wandb", "wandb") from error
        folder.mkdir(parents=True, exist_ok=True)
        entity, slash, rest = project.rpartition("/")
        self.handle: str | None = handle or secrets.token_hex(4)
        mode: Any = os.environ.get("WANDB_MODE", "offline")
        self._run: Any = wandb.init(
            project=rest, entity=entity if slash else None, name=name, id=self.handle, resume="allow",
            dir=str(folder), mode=mode,
            settings=wandb.Settings(silent=True, disable_git=True, save_code=False, console="off"),
        )  # fmt: skip

    def log(self, step: int, metrics: Mapping[str, Any]) -> None:
        """Log a step's numbers."""
        self._run.log(plain_metrics(metrics), step=step)

    def close(self) -> None:
        """End the run."""
        self._run.finish()


@final
class MLflow:
    """An MLflow run in a folder, a database or on a server; the experiment is ``refork``."""

    def __init__(self, where: str, name: str, handle: str | None = None) -> None:
        os.environ.setdefault("MLFLOW_DISABLE_TELEMETRY", "true")
        local = "://" not in where
        if local:  # recent releases want to be told that a folder is meant
            os.environ.setdefault("MLFLOW_ALLOW_FILE_STORE", "true")
        try:
            from mlflow.entities import Metric
            from mlflow.exceptions import MlflowException
            from mlflow.tracking import MlflowClient
        except ImportError as error:
            raise MissingExtra("mlflow", "mlflow") from error
        self._metric: Any = Metric
        try:
            self._client: Any = MlflowClient(tracking_uri=Path(where).resolve().as_uri() if local else where)
            self.handle: str | None = self._go_on(handle, MlflowException) or self._begin(name)
        except (MlflowException, ImportError) as error:
            raise BadInput(f"MLflow cannot write there: {error}", where=where) from error

    def _go_on(self, handle: str | None, refused: type[Exception]) -> str | None:
        """The run of before, if it is still there."""
        if handle is None:
            return None
        try:
            self._client.update_run(handle, status="RUNNING")
        except refused:
            return None
        return handle

    def _begin(self, name: str) -> str:
        known = self._client.get_experiment_by_name("refork")
        experiment = self._client.create_experiment("refork") if known is None else known.experiment_id
        return str(self._client.create_run(experiment, run_name=name).info.run_id)

    def log(self, step: int, metrics: Mapping[str, Any]) -> None:
        """Log a step's numbers in one call."""
        now = int(time.time() * 1000)
        batch = [self._metric(name, value, now, step) for name, value in plain_metrics(metrics).items()]
        if batch:
            self._client.log_batch(self.handle, metrics=batch)

    def close(self) -> None:
        """End the run."""
        self._client.set_terminated(self.handle)


def open_tensorboard(where: str, out: Path, name: str, handle: str | None) -> Tracker:
    """``tensorboard[:FOLDER]``: event files for TensorBoard."""
    return TensorBoard(Path(where or out / "tensorboard"))


def open_trackio(where: str, out: Path, name: str, handle: str | None) -> Tracker:
    """``trackio[:PROJECT]``: a project of this machine."""
    return Trackio(where or "refork", name)


def open_wandb(where: str, out: Path, name: str, handle: str | None) -> Tracker:
    """``wandb[:ENTITY/PROJECT]``: Weights & Biases, offline unless WANDB_MODE says otherwise."""
    return WeightsAndBiases(out / "wandb", where or "refork", name, handle)


def open_mlflow(where: str, out: Path, name: str, handle: str | None) -> Tracker:
    """``mlflow[:WHERE]``: a folder, ``sqlite:///FILE`` or a server's URL."""
    return MLflow(where or str(out / "mlflow"), name, handle)


def parse_track(text: str) -> tuple[str, str]:
    """The tracker and the place that ``NAME[:WHERE]`` names; an empty place is the tracker's own.

    Raises:
        BadInput: no such tracker.
    """
    name, where = registry.split("trackers", text)
    if text.endswith(":") or not (registry.known("trackers", name) or ":" in name):
        raise BadInput(f"{text!r} names no tracker", hint=f"--track {GRAMMAR}")
    return name, where


def open_tracker(asked: str, out: Path, handle: str | None = None) -> Tracker:
    """The tracker of a run whose folder is ``out``; ``handle`` is what an earlier one of it was called.

    Raises:
        BadInput, MissingExtra: no such tracker, or it is not installed.
    """
    name, where = parse_track(asked)
    opener = registry.resolve("trackers", name)
    tracker: Tracker = opener(where, out, out.resolve().name, handle)
    return tracker


@final
@dataclass(slots=True)
class _TrackerState:
    """Who was told of a run's curves, what it calls the run, and the last step of each file."""

    asked: str
    handle: str | None = None
    told: dict[str, int] = field(default_factory=dict)

    @classmethod
    def read(cls, file: Path, asked: str) -> _TrackerState:
        """What an earlier process kept; nothing where there was none, or it told somebody else."""
        try:
            known = from_json(cls, json.loads(file.read_bytes()))
        except FileNotFoundError:
            return cls(asked)
        except (OSError, ValueError, BadInput) as error:
            hint = "without it the whole curve is told again, to a new run where the tracker has runs"
            raise BadInput(
                f"what {asked} was told cannot be read: {error}", where=str(file), hint=hint
            ) from error
        return known if known.asked == asked else cls(asked)


@final
class Follower:
    """Tells a tracker what a run writes of its steps, so that the run itself knows of no tracker.

    It reads the lines of the run's curve files as they come. Where a run has none, it is told progress.
    What it has told is kept beside them, so that a resumed run goes on where it stopped. ``notes`` names
    damaged lines.

    Raises:
        BadInput, MissingExtra: no such tracker, it is not installed, or what it was told cannot be read.
    """

    def __init__(self, asked: str, out: Path) -> None:
        name, _ = parse_track(asked)
        out.mkdir(parents=True, exist_ok=True)
        self.notes: list[str] = []
        # A tracker of a file has slashes and a colon in its name.
        self._marker = out / f".track-{re.sub(r'[^A-Za-z0-9._-]', '-', name)}.json"
        self._known = _TrackerState.read(self._marker, asked)
        self.asked = asked
        self._out = out
        self._told = self._known.told
        self._read: dict[str, int] = {}
        self.tracker = open_tracker(asked, out, self._known.handle)

    def poll(self, progress: Mapping[str, Any] | None = None) -> None:
        """Tell what is new; ``progress`` where the run writes no curve."""
        files = [file for name in CURVES if (file := self._out / name).exists()]
        for file in files:
            self._file(file)
        if not files and progress is not None:
            step = int(progress.get("done") or 0)
            name = str(progress.get("stage") or "run")
            if step > self._told.get(name, -1):
                self.tracker.log(step, {f"{name}/{key}": value for key, value in progress.items()})
                self._told[name] = step
        self._keep()

    def _file(self, file: Path) -> None:
        # Before it is read: what is written in between makes the next poll read again.
        size = file.stat().st_size
        if size == self._read.get(file.name):
            return
        self._read[file.name] = size
        rows, damaged = _rows(file)
        if damaged and (note := f"{file}: lines that are no JSON are not shown: {damaged}") not in self.notes:
            self.notes.append(note)
        # A file that now ends earlier was cut by a resumed run, whose steps are told from there on.
        told = min(self._told.get(file.name, -1), max((row["step"] for row in rows), default=-1))
        for row in rows:  # a resumed run takes back steps, and tells them again
            if row["step"] > told:
                self.tracker.log(row["step"], {k: v for k, v in row.items() if k != "step"})
                told = row["step"]
        self._told[file.name] = told

    def _keep(self) -> None:
        self._known.handle = self.tracker.handle
        part = self._marker.with_suffix(".part")
        part.write_text(json.dumps(asdict(self._known)) + "\n", encoding="utf-8")
        part.replace(self._marker)

    def close(self) -> None:
        """Tell the rest, and end."""
        try:
            self.poll()
        finally:
            self.tracker.close()


def _rows(file: Path) -> tuple[list[Json], str]:
    """Lines that say a step, and the numbers of those that are damaged; the last may still be written."""
    rows: list[Json] = []
    damaged: list[str] = []
    lines = file.read_text(encoding="utf-8").splitlines()
    for number, line in enumerate(lines, 1):
        try:
            row = json.loads(line)
        except ValueError:
            if number < len(lines):
                damaged.append(str(number))
            continue
        if isinstance(row, dict) and isinstance(row.get("step"), int):
            rows.append(row)
    return rows, ", ".join(damaged)
