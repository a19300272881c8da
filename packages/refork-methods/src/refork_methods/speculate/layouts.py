"""Drafters of other projects as ours, and ours as theirs: folders of DeepSpec, speculators and DFlash.

What is read is checked against the target it is to draft for; what a layout has no field for is refused,
never dropped. Tensors go over bit for bit.

Source: arXiv:2607.05147 and arXiv:2602.06036 (the networks); the layouts are those of deepseek-ai/DeepSpec,
vllm-project/speculators 0.9 and z-lab/dflash.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Collection
from pathlib import Path
from typing import Any, Final

import torch
from safetensors import SafetensorError
from safetensors.torch import load, save_file
from torch import Tensor, nn

from refork.errors import BadInput, CannotDo, DiskFull, WrongWeights
from refork.policies.local import LocalPolicy
from refork.types import Json
from refork_methods.speculate.config import DraftConfig, draft_config
from refork_methods.speculate.files import read_json, write_json
from refork_methods.speculate.layout_config import Layout, layout_of, read_fields, write_fields
from refork_methods.speculate.model import Drafter, build_draft

_CONFIG: Final = "config.json"
_WEIGHTS: Final = "model.safetensors"
_INDEX: Final = "model.safetensors.index.json"
_EMBEDDING, _HEAD = "embed_tokens.weight", "lm_head.weight"
_TRAINING_ONLY: Final = ("verifier_lm_head.weight", "verifier_norm.weight")


def import_draft(folder: Path | str, target: LocalPolicy, *, ignore: Collection[str] = ()) -> Drafter:
    """A published drafter as one of ours, in evaluation mode, float32.

    The target must be the model it was trained for: its vocabulary, width and depth are checked, and where
    the folder carries the target's embedding or head, these too; otherwise the caller's word counts.
    ``ignore`` names config fields to be passed over although they are not known here.

    Raises:
        BadInput: no drafter there, a layout or a tensor that does not fit.
        CannotDo: something that our drafters have no counterpart of, named.
        WrongTokenizer, WrongWeights: it drafts for another target.
    """
    place = Path(folder)
    body = read_json(place / _CONFIG)
    fields = read_fields(body, str(place / _CONFIG), ignore)
    plain = draft_config(target)
    known: Json = {"target_depth": plain.target_depth, "target": plain.target, "tokenizer": plain.tokenizer}
    config = DraftConfig(**(known | fields))
    config.check_target(target, str(place))
    _check_ends(target)
    tensors = _read_tensors(place)
    for name in ("t2d", "d2t"):
        if name in tensors:
            raise CannotDo("this drafter knows a part of the vocabulary only", where=str(place))
    for name, own in ((_EMBEDDING, _embedding(target)), (_HEAD, _head(target))):
        if name in tensors and not _same(tensors[name], own):
            raise WrongWeights(
                f"this drafter brings a {name} of its own, other than the target's",
                where=str(place),
                hint="load the target it was trained for; ours have no head of their own",
            )
    return _filled(build_draft(config, target), tensors, place)


def export_draft(
    draft: Drafter, target: LocalPolicy, folder: Path | str, layout: Layout, *, verifier: str | None = None
) -> None:
    """Write one of our drafters as a folder of another project, all of it or nothing.

    ``verifier`` is the name or path under which that project finds the target; ``speculators`` loads the
    target's embedding and head from there. Folders of ``deepspec`` and of eagle drafters hold copies of them.

    Raises:
        BadInput: an unknown layout, or a folder that holds something.
        CannotDo: the layout has no field for what this drafter is.
        DiskFull: the folder cannot be written.
    """
    place = Path(folder)
    draft.config.check_target(target)
    _check_ends(target)
    names = list(getattr(target.decoder.backbone.model.config, "architectures", None) or [])
    body = write_fields(draft.config, layout, verifier, names)
    tensors = {_theirs(name): part.detach().cpu().contiguous() for name, part in draft.state_dict().items()}
    if layout == "deepspec" or draft.config.kind == "eagle":
        tensors |= {_EMBEDDING: _embedding(target).clone(), _HEAD: _head(target).clone()}

    def write(made: Path) -> None:
        made.mkdir()
        save_file(tensors, made / _WEIGHTS, metadata={"format": "pt"})
        write_json(made / _CONFIG, body)

    write_whole(place, write)


def write_whole(place: Path, write: Callable[[Path], None]) -> None:
    """A folder with all that ``write`` puts into it, or none.

    Raises:
        BadInput: it is there already, and holds something.
        DiskFull: it cannot be written.
    """
    refuse_taken(place)
    try:
        place.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=place.parent, prefix=f".{place.name}-") as scratch:
            made = Path(scratch) / "draft"
            write(made)
            made.replace(place)
    except OSError as error:
        raise DiskFull(f"the drafter could not be written: {error}", where=str(place)) from error


def refuse_taken(place: Path) -> None:
    """Refuse a folder that holds something."""
    if place.exists() and (not place.is_dir() or any(place.iterdir())):
        raise BadInput(
            "this folder holds something", where=str(place), hint="name one that does not exist yet"
        )


def layout_of_folder(folder: Path | str) -> Layout:
    """Which layout a drafter's folder is in; raises BadInput where it is none."""
    place = Path(folder) / _CONFIG
    return layout_of(read_json(place), str(place))


def _filled(draft: Drafter, tensors: dict[str, Tensor], place: Path) -> Drafter:
    """The drafter with the folder's tensors: each of its own, and none besides."""
    own = draft.state_dict()
    given = {
        _ours(name): part.to(torch.float32)
        for name, part in tensors.items()
        if name not in (_EMBEDDING, _HEAD, *_TRAINING_ONLY)
    }
    odd = sorted(set(own) ^ set(given)) or sorted(n for n in own if own[n].shape != given[n].shape)
    if odd:
        missing = odd[0] not in given
        raise BadInput(
            f"tensor {_theirs(odd[0])!r} "
            + (
                "is missing" if missing else "is not known here" if odd[0] not in own else "has another shape"
            ),
            where=str(place),
            hint="the config and the tensors must belong together",
        )
    draft.load_state_dict(given)
    draft.eval()
    return draft


def _read_tensors(place: Path) -> dict[str, Tensor]:
    """All tensors of a folder, from one file or several."""
    files = [_WEIGHTS]
    if not (place / _WEIGHTS).is_file() and (place / _INDEX).is_file():
        files = sorted(set(read_json(place / _INDEX).get("weight_map", {}).values()))
    found: dict[str, Tensor] = {}
    for name in files:
        if Path(name).name != name:
            raise BadInput(f"the index names a file elsewhere, {name!r}", where=str(place / _INDEX))
        try:
            found |= load((place / name).read_bytes())
        except (OSError, SafetensorError) as error:
            raise BadInput(
                f"there are no tensors to read: {error}",
                where=str(place / name),
                hint="safetensors files are read, pickles are not",
            ) from error
    return found


def _ours(name: str) -> str:
    return "head." + name.removeprefix("markov_head.") if name.startswith("markov_head.") else name


def _theirs(name: str) -> str:
    return "markov_head." + name.removeprefix("head.") if name.startswith("head.") else name


def _same(theirs: Tensor, ours: Tensor) -> bool:
    """Whether a copy, perhaps of less precision, is of this tensor."""
    return theirs.shape == ours.shape and torch.equal(theirs, ours.to(theirs.dtype))


def _embedding(target: LocalPolicy) -> Tensor:
    weight: Tensor = target.decoder.backbone.model.get_input_embeddings().weight
    return weight.detach().cpu()


def _head(target: LocalPolicy) -> Tensor:
    weight: Tensor = target.decoder.backbone.model.get_output_embeddings().weight
    return weight.detach().cpu()


def _check_ends(target: LocalPolicy) -> None:
    """Refuse a target that scales its embedding or its logits: the others read bare weights."""
    model: Any = target.decoder.backbone.model
    text = model.config.get_text_config()
    head = model.get_output_embeddings()
    odd = [
        name
        for name in ("final_logit_softcapping", "logits_scaling", "logit_scale", "embedding_multiplier")
        if getattr(text, name, None) not in (None, 1.0)
    ]
    bare = type(model.get_input_embeddings()) is nn.Embedding and isinstance(head, nn.Linear)
    if odd or not bare or head.bias is not None:
        raise CannotDo(
            f"{type(model).__name__} changes its embedding or its logits on the way"
            + (f" ({odd[0]})" if odd else ""),
            hint="these layouts read a target's bare weights, so the drafter would see other inputs there",
        )
