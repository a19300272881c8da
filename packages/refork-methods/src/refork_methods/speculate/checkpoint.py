"""Drafters on disk: ``draft.safetensors`` and ``config.json``, and only what is the drafter's own."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, Final

import torch
from safetensors import SafetensorError
from safetensors.torch import load, save

from refork.errors import BadInput, Mismatch
from refork.policies.local import LocalPolicy
from refork.policies.weights import weights_digest
from refork.settings import present_mark
from refork.types import Json
from refork_methods.speculate.config import DraftConfig, HeldOut
from refork_methods.speculate.files import write_bytes, write_text
from refork_methods.speculate.model import Drafter, build_draft

TENSORS: Final = "draft.safetensors"
CONFIG: Final = "config.json"
VERSION: Final = 1


def save_draft(model: Drafter, config: DraftConfig, folder: Path, about: Json | None = None) -> None:
    """Write a drafter, each file whole or not at all; the target's embedding and head are not stored.

    ``about`` is whatever else is worth keeping (how it was trained), as plain JSON.

    Raises:
        DiskFull: the folder cannot be written.
    """
    tensors = {name: part.detach().cpu().contiguous() for name, part in model.state_dict().items()}
    body = {
        "format": "refork-draft",
        "version": VERSION,
        "draft": config.to_json(),
        "digest": weights_digest(_module(model)),
        "about": about or {},
    }
    # The config goes last: a crash between the two leaves no drafter, or an old config whose digest refuses
    # the new tensors.
    write_bytes(folder / TENSORS, save(tensors))
    write_text(folder / CONFIG, json.dumps(body, indent=2, ensure_ascii=False) + "\n")


def load_draft(folder: Path | str, target: LocalPolicy) -> Drafter:
    """A drafter in evaluation mode, if it is one of this target.

    Raises:
        BadInput: no drafter there, one that cannot be read, or for a target of another shape.
        WrongTokenizer: it was trained with another tokenizer.
        WrongWeights: it was trained for other weights.
        Mismatch: its tensors are not those that were saved.
    """
    place = Path(folder)
    body = read_config(place)
    config = DraftConfig.from_json(body["draft"], str(place / CONFIG))
    config.check_target(target, str(place))
    try:
        tensors = load((place / TENSORS).read_bytes())
    except (OSError, SafetensorError) as error:
        raise BadInput(f"these tensors cannot be read: {error}", where=str(place / TENSORS)) from error
    model = build_draft(config, target)
    own = model.state_dict()
    wrong = sorted(set(own) ^ set(tensors)) or sorted(n for n in own if own[n].shape != tensors[n].shape)
    if wrong:
        raise BadInput(
            f"tensor {wrong[0]!r} does not fit the config",
            where=str(place),
            hint="were config and tensors written together?",
        )
    model.load_state_dict(tensors)
    if body["digest"] != weights_digest(_module(model)):
        raise Mismatch("the drafter's tensors are not those its config was written with", where=str(place))
    about = body.get("about")
    model.held_out = HeldOut.read(about.get("held_out") if isinstance(about, dict) else None, config.block)
    model.eval()
    return model


def read_config(folder: Path) -> Json:
    """What stands in a drafter's ``config.json``.

    Raises:
        BadInput: there is none, or it is not ours.
    """
    path = folder / CONFIG
    try:
        body = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise BadInput(
            f"there is no drafter to read: {error}",
            where=str(folder),
            hint="refork speculate train makes one",
        ) from error
    if not isinstance(body, dict) or present_mark(body.get("format")) != "refork-draft":
        raise BadInput(
            "this config.json is not one of our drafters",
            where=str(path),
            hint="published layouts are read by refork speculate import",
        )
    if body.get("version") != VERSION or "draft" not in body or "digest" not in body:
        raise BadInput(f"a drafter of version {body.get('version')} cannot be read here", where=str(path))
    return body


def _module(model: Any) -> torch.nn.Module:
    assert isinstance(model, torch.nn.Module)
    return model
