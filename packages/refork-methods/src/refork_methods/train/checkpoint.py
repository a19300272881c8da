"""Checkpoints from which a run goes on bit for bit: weights, optimizer, random state, position."""

from __future__ import annotations

import json
import shutil
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import torch
from safetensors.torch import load_file, save_file

from refork.errors import BadInput, Mismatch, WrongWeights
from refork.policies.weights import weights_digest
from refork.types import Json

_STATE: Final = "state.json"


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """One saved moment: ``step`` steps are done; ``position`` is the run's own bookkeeping, plain JSON."""

    folder: Path
    step: int
    weights: str
    position: Json


def trained_tensors(model: Any) -> dict[str, torch.Tensor]:
    """The parameters that training moves, by name; frozen ones come from where the model came from."""
    return {
        name: part.detach().cpu().contiguous().clone()
        for name, part in model.named_parameters()
        if part.requires_grad
    }


def save_checkpoint(
    folder: Path, step: int, model: Any, optimizer: torch.optim.Optimizer, position: Json, keep: int = 2
) -> Checkpoint:
    """Write a checkpoint, whole or not at all, and drop all but the newest ``keep``.

    Random state is torch's generators: the only chance in training is dropout. The noise of rollouts has
    addresses, and batch orders have seeds, so neither has a state.
    """
    folder.mkdir(parents=True, exist_ok=True)
    digest = weights_digest(model)
    target = folder / f"{step:08d}"
    with tempfile.TemporaryDirectory(dir=folder, prefix=".part-") as scratch:
        part = Path(scratch) / "checkpoint"
        part.mkdir()
        save_file(trained_tensors(model), part / "weights.safetensors")
        torch.save(optimizer.state_dict(), part / "optimizer.pt")
        random = {"cpu": torch.get_rng_state(), "cuda": torch.cuda.get_rng_state_all()}
        torch.save(random, part / "random.pt")
        state = {"step": step, "weights": digest, "position": position}
        (part / _STATE).write_text(json.dumps(state) + "\n")
        if target.exists():
            shutil.rmtree(target)
        part.replace(target)
    for old in _all(folder)[:-keep]:
        shutil.rmtree(old)
    return Checkpoint(target, step, digest, position)


def latest_checkpoint(folder: Path) -> Checkpoint | None:
    """The newest checkpoint of a run's folder, None where there is none.

    Raises:
        BadInput: its record cannot be read.
    """
    found = _all(folder)
    if not found:
        return None
    try:
        state = json.loads((found[-1] / _STATE).read_text())
        return Checkpoint(found[-1], int(state["step"]), str(state["weights"]), dict(state["position"]))
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise BadInput(
            f"this checkpoint cannot be read: {error}",
            where=str(found[-1]),
            hint="remove it; the run goes on from the one before",
        ) from error


def restore_checkpoint(saved: Checkpoint, model: Any, optimizer: torch.optim.Optimizer) -> None:
    """Put a model, its optimizer and torch's generators in the state of a checkpoint.

    Raises:
        Mismatch: the checkpoint is of another model.
        WrongWeights: the weights that result are not those that were saved (the frozen part differs).
    """
    tensors = load_file(saved.folder / "weights.safetensors")
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
    actual = weights_digest(model)
    if actual != saved.weights:
        raise WrongWeights(
            f"the checkpoint was saved with weights {saved.weights[:12]}, these are {actual[:12]}",
            where=str(saved.folder),
            hint="resume with the model that the run began with",
        )
    optimizer.load_state_dict(torch.load(saved.folder / "optimizer.pt", weights_only=True))
    random = torch.load(saved.folder / "random.pt", weights_only=True)
    torch.set_rng_state(random["cpu"])
    if random["cuda"] and torch.cuda.device_count() == len(random["cuda"]):
        torch.cuda.set_rng_state_all(random["cuda"])


def _all(folder: Path) -> list[Path]:
    if not folder.is_dir():
        return []
    return sorted(item for item in folder.iterdir() if item.is_dir() and item.name.isdigit())
