"""Checkpoints from which a run goes on bit for bit: weights, optimizer, random state, position."""

from __future__ import annotations

import hashlib
import io
import json
import pickle
import shutil
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file

from refork.errors import BadInput, DiskFull, Mismatch, WrongWeights
from refork.policies.weights import weights_digest
from refork.types import Json

_STATE: Final = "state.json"
#: The one before the newest stays: a disk that fills up may have spoilt the newest.
_KEPT: Final = 2


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """One saved moment: ``step`` steps are done; ``position`` is the run's own bookkeeping, plain JSON.

    ``weights`` is the model's digest, ``moments`` that of the optimizer's file (None: none was noted).
    """

    folder: Path
    step: int
    weights: str
    position: Json
    moments: str | None = None


def trained_tensors(model: Any) -> dict[str, torch.Tensor]:
    """The parameters that training moves, by name; frozen ones come from where the model came from."""
    return {
        name: part.detach().cpu().contiguous().clone()
        for name, part in model.named_parameters()
        if part.requires_grad
    }


def save_checkpoint(
    folder: Path, step: int, model: Any, optimizer: torch.optim.Optimizer, position: Json
) -> None:
    """Write a checkpoint, whole or not at all, and drop all but the newest two.

    Random state is torch's generators: the only chance in training is dropout. The noise of rollouts has
    addresses, and batch orders have seeds, so neither has a state.

    Raises:
        DiskFull: it cannot be written.
    """
    digest = weights_digest(model)

    def fill(part: Path) -> None:
        save_file(trained_tensors(model), part / "weights.safetensors")
        torch.save(optimizer.state_dict(), part / "optimizer.pt")
        random = {"cpu": torch.get_rng_state(), "cuda": torch.cuda.get_rng_state_all()}
        torch.save(random, part / "random.pt")
        moments = hashlib.sha256((part / "optimizer.pt").read_bytes()).hexdigest()
        state = {"step": step, "weights": digest, "position": position, "moments": moments}
        (part / _STATE).write_text(json.dumps(state) + "\n")

    write_checkpoint(folder, step, fill)


def write_checkpoint(folder: Path, step: int, fill: Callable[[Path], None]) -> None:
    """A step's folder with all that ``fill`` puts into it, or none; the newest two stay. Raises DiskFull."""
    target = folder / f"{step:08d}"
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=folder, prefix=".part-") as scratch:
            part = Path(scratch) / "checkpoint"
            part.mkdir()
            fill(part)
            # A folder cannot be moved onto one that holds something. The step before is still there
            # meanwhile.
            if target.exists():
                shutil.rmtree(target)
            part.replace(target)
        for old in checkpoints(folder)[:-_KEPT]:
            shutil.rmtree(old)
    except OSError as error:
        raise DiskFull(f"the checkpoint could not be written: {error}", where=str(folder)) from error


def latest_checkpoint(folder: Path) -> Checkpoint | None:
    """The newest checkpoint of a run's folder, None where there is none.

    Raises:
        BadInput: its record cannot be read.
    """
    found = checkpoints(folder)
    if not found:
        return None
    try:
        state = json.loads((found[-1] / _STATE).read_text())
        return Checkpoint(
            found[-1], int(state["step"]), str(state["weights"]), dict(state["position"]),
            state.get("moments"),
        )  # fmt: skip
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise unreadable(found[-1], error) from error


def unreadable(folder: Path, error: Exception) -> BadInput:
    """What a checkpoint is refused with whose files are damaged."""
    return BadInput(
        f"this checkpoint cannot be read: {error}",
        where=str(folder),
        hint="remove it; the run goes on from the one before",
    )


def resume(folder: Path | None, digest: str, model: Any, optimizer: torch.optim.Optimizer) -> Json | None:
    """The position of a run's last checkpoint, model and optimizer in its state; None where there is none.

    Raises:
        Mismatch: the folder holds checkpoints of another run than ``digest`` names.
    """
    saved = None if folder is None else latest_checkpoint(folder)
    if saved is None:
        return None
    if saved.position.get("digest") != digest:
        raise Mismatch(
            "this folder holds checkpoints of another run",
            where=str(folder),
            hint="use the same data and settings to resume, or another folder",
        )
    restore_checkpoint(saved, model, optimizer)
    return saved.position


def restore_checkpoint(saved: Checkpoint, model: Any, optimizer: torch.optim.Optimizer) -> None:
    """Put a model, its optimizer and torch's generators in the state of a checkpoint.

    Raises:
        BadInput: a file of it cannot be read, or is not the one that was saved.
        Mismatch: the checkpoint is of another model.
        WrongWeights: the weights that result are not those that were saved (the frozen part differs).
    """
    try:
        tensors = load_file(saved.folder / "weights.safetensors")
        moments = (saved.folder / "optimizer.pt").read_bytes()
        # The model's weights have a digest of their own; the optimizer's state would go wrong unseen.
        if saved.moments is not None and hashlib.sha256(moments).hexdigest() != saved.moments:
            raise ValueError("the optimizer's file is not the one that was saved")
        optimizer_state = torch.load(io.BytesIO(moments), weights_only=True)
        random = torch.load(saved.folder / "random.pt", weights_only=True)
    except (OSError, EOFError, ValueError, RuntimeError, SafetensorError, pickle.UnpicklingError) as error:
        raise unreadable(saved.folder, error) from error
    own = {name: part for name, part in model.named_parameters() if part.requires_grad}
    wrong = sorted(set(own) ^ set(tensors)) or sorted(n for n in own if own[n].shape != tensors[n].shape)
    if wrong:
        raise Mismatch(
            f"this checkpoint is of another model; {wrong[0]} differs",
            where=str(saved.folder),
            hint="resume with the model and the adapter settings that the run began with",
        )
    with torch.no_grad():
        for name, part in own.items():
            part.copy_(tensors[name])
    # The file holds the trained tensors only; this digest covers the frozen ones as well.
    actual = weights_digest(model)
    if actual != saved.weights:
        raise WrongWeights(
            f"the checkpoint was saved with weights {saved.weights[:12]}, these are {actual[:12]}",
            where=str(saved.folder),
            hint="resume with the model that the run began with",
        )
    optimizer.load_state_dict(optimizer_state)
    torch.set_rng_state(random["cpu"])
    if random["cuda"] and torch.cuda.device_count() == len(random["cuda"]):
        torch.cuda.set_rng_state_all(random["cuda"])


def checkpoints(folder: Path) -> list[Path]:
    """The checkpoints of a folder, the oldest first."""
    if not folder.is_dir():
        return []
    return sorted(item for item in folder.iterdir() if item.is_dir() and item.name.isdigit())
