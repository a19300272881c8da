"""Checkpoints of a drafter's training, from which it goes on bit for bit."""

from __future__ import annotations

import hashlib
import io
import json
import shutil
import tempfile
from pathlib import Path
from typing import Any, Final

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file

from refork.errors import BadInput, DiskFull, Mismatch
from refork.policies.weights import weights_digest
from refork.types import Json

_STATE: Final = "state.json"
_KEEP: Final = 2


def save_state(folder: Path, step: int, model: Any, optimizer: torch.optim.Optimizer, run: Json) -> None:
    """Write a checkpoint, whole or not at all, and drop all but the newest two.

    Nothing in training has a random state: orders and anchors come from the seed and the step.

    Raises:
        DiskFull: it cannot be written.
    """
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=folder, prefix=".part-") as scratch:
            part = Path(scratch) / "checkpoint"
            part.mkdir()
            save_file(
                {k: v.detach().cpu().contiguous() for k, v in model.state_dict().items()}, part / "draft"
            )
            torch.save(optimizer.state_dict(), part / "optimizer.pt")
            moments = hashlib.sha256((part / "optimizer.pt").read_bytes()).hexdigest()
            body = {"step": step, "digest": weights_digest(model), "optimizer": moments, "run": run}
            (part / _STATE).write_text(json.dumps(body) + "\n")
            target = folder / f"{step:08d}"
            if target.exists():
                shutil.rmtree(target)
            part.replace(target)
        for old in _all(folder)[:-_KEEP]:
            shutil.rmtree(old)
    except OSError as error:
        raise DiskFull(f"the checkpoint could not be written: {error}", where=str(folder)) from error


def restore_state(folder: Path, model: Any, optimizer: torch.optim.Optimizer, run: Json) -> int:
    """Put model and optimizer in the state of the newest checkpoint; how many steps are done, 0 without one.

    Raises:
        Mismatch: it is of another run (the keys that differ are named), or its tensors are not those saved.
        BadInput: it cannot be read.
    """
    found = _all(folder)
    if not found:
        return 0
    place = found[-1]
    try:
        body = json.loads((place / _STATE).read_text())
        differ = sorted(key for key in run if body["run"].get(key) != run[key])
        if differ:
            raise Mismatch(
                f"this folder holds a run with other {', '.join(differ)}",
                where=str(folder),
                hint="resume with the same target, data and settings, or use another folder",
            )
        model.load_state_dict(load_file(place / "draft"))
        moments = (place / "optimizer.pt").read_bytes()
        if hashlib.sha256(moments).hexdigest() != body["optimizer"]:
            raise ValueError("the optimizer's file is not the one that was saved")
        optimizer.load_state_dict(torch.load(io.BytesIO(moments), weights_only=True))
        step, digest = int(body["step"]), str(body["digest"])
    except (OSError, ValueError, KeyError, TypeError, RuntimeError, SafetensorError) as error:
        raise BadInput(
            f"this checkpoint cannot be read: {error}",
            where=str(place),
            hint="remove it; training goes on from the one before",
        ) from error
    if weights_digest(model) != digest:
        raise Mismatch(
            "the tensors in this checkpoint are not those that were saved",
            where=str(place),
            hint="remove it; training goes on from the one before",
        )
    return step


def _all(folder: Path) -> list[Path]:
    if not folder.is_dir():
        return []
    return sorted(item for item in folder.iterdir() if item.is_dir() and item.name.isdigit())
