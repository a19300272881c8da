"""Checkpoints from which training goes on bit for bit."""

from __future__ import annotations

import hashlib
import json
import pickle
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file

from refork.errors import Mismatch
from refork.runs.recipe import RecipePart, open_folder
from refork.types import Json
from refork_methods.train.checkpoint import checkpoints, unreadable, write_checkpoint

if TYPE_CHECKING:
    from refork_methods.crosscoder.model import CrossCoder
    from refork_methods.crosscoder.sources import Source
    from refork_methods.crosscoder.train import State, TrainSettings

STATE = "state.json"


class Identity(RecipePart):
    """What two runs must share for one to go on from the other."""

    settings: Json
    model: Json
    activations: str


def tensor_digest(model: CrossCoder) -> str:
    """Sha256 (hex) of every parameter and buffer: name, shape, bytes."""
    found = hashlib.sha256()
    for name, tensor in sorted(model.state_dict().items()):
        found.update(f"{name}\x1f{tuple(tensor.shape)}\x1e".encode())
        found.update(tensor.detach().cpu().contiguous().numpy().data)
    return found.hexdigest()


def save(folder: Path, model: CrossCoder, state: State, log: list[Json]) -> None:
    """Write a checkpoint, whole or not at all, and drop all but the newest two. Raises DiskFull."""

    def fill(part: Path) -> None:
        tensors = {name: t.detach().cpu().contiguous() for name, t in model.state_dict().items()}
        save_file(tensors, part / "model.safetensors")
        moving = {"optimizer": state.optimizer.state_dict(), "silent_for": state.silent_for}
        torch.save(moving, part / "moving.pt")
        about = {
            "step": state.step,
            "cut": state.cut,
            "normalized": model.normalized,
            "origin": model.origin,
            "digest": tensor_digest(model),
            "log": log,
        }
        (part / STATE).write_text(json.dumps(about) + "\n")

    write_checkpoint(folder, state.step, fill)


def restore(folder: Path, model: CrossCoder, state: State, plan: TrainSettings, source: Source) -> list[Json]:
    """Put model and state where the newest checkpoint left them; its log, empty where there is none.

    Raises:
        Mismatch: the folder holds a run with other settings, another model or other activations.
        BadInput: a checkpoint that cannot be read, or whose weights are not those it was saved with.
    """
    body = {k: v for k, v in model.config().items() if k not in ("normalized", "origin")}
    open_folder(
        folder,
        Identity(settings=plan.model_dump(), model=body, activations=source.digest()),
    )
    found = checkpoints(folder)
    if not found:
        return []
    place = found[-1]
    try:
        about = json.loads((place / STATE).read_text())
        tensors = load_file(place / "model.safetensors")
        moving: Any = torch.load(place / "moving.pt", weights_only=True)
        # Assigned beforehand: a fresh model's buffer is empty, and load_state_dict refuses another shape.
        model.frozen = tensors["frozen"].to(model.W_dec.device)
        model.load_state_dict(tensors)
        state.optimizer.load_state_dict(moving["optimizer"])
        state.silent_for.copy_(moving["silent_for"])
        state.step, state.cut = int(about["step"]), float(about["cut"])
        model.normalized, model.origin = bool(about["normalized"]), dict(about["origin"])
        log = list(about["log"])
    except (
        OSError,
        EOFError,
        ValueError,
        KeyError,
        RuntimeError,
        SafetensorError,
        pickle.UnpicklingError,
    ) as error:
        raise unreadable(place, error) from error
    if tensor_digest(model) != about["digest"]:
        raise Mismatch(
            "the weights in this checkpoint are not those that were saved",
            where=str(place),
            hint="remove it; training goes on from the one before",
        )
    return log
