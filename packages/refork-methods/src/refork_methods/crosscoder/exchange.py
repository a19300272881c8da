"""Crosscoders as files: our own format, and weights of the dictionary_learning family in and out.

That family keeps ``ae.pt`` (a state dict) and ``config.json`` in a folder. Single-model dictionaries there
read one vector; a crosscoder is one over A's channels followed by B's. Its crosscoder layout stacks models:
encoder ``[2, d, f]``, decoder ``[2, f, d]``.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Literal

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file
from torch import Tensor

from refork.errors import BadInput, Mismatch
from refork.settings import present_mark
from refork.types import Json
from refork_methods.crosscoder.checkpoint import tensor_digest
from refork_methods.crosscoder.model import Activation, CrossCoder, Scoring
from refork_methods.crosscoder.normalizer import Normalizer
from refork_methods.crosscoder.partition import Partition

VERSION = 1
Layout = Literal["sae", "crosscoder"]
#: What each of that family's classes is here: its activation and how its tensors lie.
_CLASSES: dict[str, tuple[Activation, Layout]] = {
    "AutoEncoder": ("l1", "sae"),
    "AutoEncoderTopK": ("topk", "sae"),
    "BatchTopKSAE": ("batch_topk", "sae"),
    "CrossCoder": ("l1", "crosscoder"),
    "BatchTopKCrossCoder": ("batch_topk", "crosscoder"),
}


def save(model: CrossCoder, folder: Path) -> None:
    """Write ``model.safetensors`` and ``config.json``; normaliser, threshold and partition are inside.

    Raises: BadInput for a model without normaliser statistics.
    """
    if not model.normalized:
        raise BadInput(
            "a crosscoder without normaliser statistics is no use to anybody",
            where="save",
            hint="train it first, or set_normalizer(Normalizer.identity(width))",
        )
    folder.mkdir(parents=True, exist_ok=True)
    tensors = {name: t.detach().cpu().contiguous() for name, t in model.state_dict().items()}
    about = {"format": "refork-crosscoder", "version": VERSION, "digest": tensor_digest(model)}
    # The config last: its digest vouches for tensors that lie there already.
    for name, write in (("model.safetensors", None), ("config.json", about | model.config())):
        scratch = folder / f".{name}.part"
        if write is None:
            save_file(tensors, scratch)
        else:
            scratch.write_text(json.dumps(write, indent=2) + "\n")
        scratch.replace(folder / name)


def load(folder: Path, device: str = "cpu") -> CrossCoder:
    """A crosscoder from its folder, or from that of the run that trained it.

    Raises:
        BadInput: not a crosscoder, written by a later version, or without statistics.
        Mismatch: the tensors are not those that were saved.
    """
    if not (folder / "config.json").exists() and (folder / "model" / "config.json").exists():
        folder = folder / "model"
    try:
        about = json.loads((folder / "config.json").read_text())
        if present_mark(about["format"]) != "refork-crosscoder" or int(about["version"]) > VERSION:
            raise ValueError(f"format {about['format']!r}, version {about['version']!r}")
        if not about["normalized"]:
            raise ValueError("it holds no normaliser statistics")
        tensors = load_file(folder / "model.safetensors")
        model = CrossCoder(
            (int(about["d_in"][0]), int(about["d_in"][1])), int(about["dict_size"]), about["k"],
            about["activation"], Partition(**about["partition"]), scoring=about["scoring"],
            origin=about["origin"],
        )  # fmt: skip
        # Assigned beforehand: a fresh model's buffer is empty, and load_state_dict refuses another shape.
        model.frozen = tensors["frozen"]
        model.load_state_dict(tensors)
    except (OSError, ValueError, KeyError, TypeError, RuntimeError, SafetensorError) as error:
        raise BadInput(
            f"this is not a crosscoder that can be read: {error}",
            where=str(folder),
            hint="weights of other libraries: refork_methods.crosscoder.load_dictionary_learning",
        ) from error
    model.normalized = True
    if tensor_digest(model) != about["digest"]:
        raise Mismatch("the tensors are not those that were saved", where=str(folder))
    return model.to(device)


# -- dictionary_learning ---------------------------------------------------------------------------


def to_dictionary_learning(model: CrossCoder, layout: Layout = "sae") -> tuple[dict[str, Tensor], Json]:
    """State dict and config with the normaliser folded in, so that they read and write raw activations.

    Scores weighted by decoder norms become plain values by rescaling each feature (``f`` times its norm,
    decoder divided by it), which keeps every reconstruction and the threshold. In the crosscoder layout
    this is the code normalisation ``NONE``.

    Raises: BadInput for widths that differ in the crosscoder layout, or no threshold yet.
    """
    plain = model.folded()
    d_a, d_b = model.d_in
    if layout == "crosscoder" and d_a != d_b:
        raise BadInput(f"the crosscoder layout knows one width; these are {model.d_in}", where="export")
    if model.activation == "batch_topk" and model.threshold < 0:
        raise BadInput("this crosscoder has no threshold yet", where="export", hint="train it further")
    gain = torch.ones(model.dict_size)
    if len(plain.frozen):
        gain = plain.frozen.detach().cpu().clamp_min(1e-12)
    reads = plain.W_enc.detach().cpu() * gain[:, None]
    bias = plain.b_enc.detach().cpu() * gain
    writes = plain.W_dec.detach().cpu() / gain[:, None]
    base = plain.b_dec.detach().cpu()
    rest: dict[str, Tensor] = {}
    if model.k is not None and model.activation != "l1":
        rest = {
            "k": torch.tensor(model.k, dtype=torch.int),
            "threshold": plain.threshold.detach().cpu().clone(),
        }
    names = {"topk": "AutoEncoderTopK", "batch_topk": "BatchTopKSAE", "l1": "AutoEncoder"}
    trainer: Json = {"dict_class": names[model.activation], "dict_size": model.dict_size, "k": model.k}
    if layout == "sae":
        state = {
            "encoder.weight": reads.contiguous(),
            "decoder.weight": writes.T.contiguous(),
            ("bias" if model.activation == "l1" else "b_dec"): base,
            # That family subtracts the decoder's bias before it encodes.
            "encoder.bias": (bias.double() + reads.double() @ base.double()).float(),
        }
        return state | rest, {"trainer": trainer | {"activation_dim": d_a + d_b}}
    trainer |= {
        "dict_class": "CrossCoder" if model.activation == "l1" else "BatchTopKCrossCoder",
        "activation_dim": d_a,
        "num_layers": 2,
        "code_normalization": "CROSSCODER" if model.activation == "l1" else "NONE",
    }
    if model.activation == "topk":
        raise BadInput("the crosscoder layout has no per-sample TopK", where="export", hint="layout='sae'")
    state = {
        "encoder.weight": torch.stack([reads[:, :d_a].T, reads[:, d_a:].T]).contiguous(),
        "encoder.bias": bias,
        "decoder.weight": torch.stack([writes[:, :d_a], writes[:, d_a:]]).contiguous(),
        "decoder.bias": base.reshape(2, d_a),
    }
    return state | rest, {"trainer": trainer}


def from_dictionary_learning(
    state: Mapping[str, Tensor],
    config: Json,
    *,
    d_in: tuple[int, int] | None = None,
    scale: float = 1.0,
    origin: Json | None = None,
) -> CrossCoder:
    """A crosscoder with such weights.

    ``d_in`` splits the channels of a single-model dictionary (default: in halves). ``scale`` is what
    activations were divided by before they reached it, where its biases were not scaled back.

    Raises: BadInput for another dictionary class, missing tensors, or TopK weights under a ReLU class:
    loaded as such, every feature would fire.
    """
    trainer = dict(config.get("trainer", config))
    name = str(trainer.get("dict_class", "")).rpartition(".")[2]
    if name not in _CLASSES:
        raise BadInput(
            f"unknown dictionary class {name!r}", where="import", hint=f"known: {', '.join(_CLASSES)}"
        )
    activation, layout = _CLASSES[name]
    if activation == "l1" and "k" in state:
        raise BadInput(
            f"these are TopK weights (they hold k = {int(state['k'])}), but the config calls them a {name}: "
            "as ReLU, every feature would fire",
            where="import",
            hint="set dict_class to AutoEncoderTopK, BatchTopKSAE or BatchTopKCrossCoder",
        )
    if not scale > 0:
        raise BadInput(f"the scale is {scale!r}; it must be above 0", where="import")
    try:
        reads, bias, writes, base, widths = _tensors(state, layout, d_in)
        k = None if activation == "l1" else int(state["k"] if "k" in state else trainer["k"])
    except (KeyError, ValueError, RuntimeError) as error:
        raise BadInput(f"this state dict is not one of a {name}: {error}", where="import") from error
    model = CrossCoder(
        widths, len(reads), k, activation, scoring=_scoring(activation, layout, trainer), origin=origin
    )
    with torch.no_grad():
        for parameter, tensor in (
            (model.W_enc, reads),
            (model.b_enc, bias),
            (model.W_dec, writes),
            (model.b_dec, base),
        ):
            parameter.copy_(tensor)
        if activation == "batch_topk" and "threshold" in state:
            model.threshold.copy_(state["threshold"].float().reshape(-1)[0])
    statistics = Normalizer.identity(sum(widths))
    model.set_normalizer(Normalizer(statistics.mean, statistics.scale * scale))
    return model


def save_dictionary_learning(model: CrossCoder, folder: Path, layout: Layout = "sae") -> None:
    """Write ``ae.pt`` and ``config.json`` as that family lays them out. Raises as the conversion does."""
    state, config = to_dictionary_learning(model, layout)
    folder.mkdir(parents=True, exist_ok=True)
    torch.save(state, folder / "ae.pt")
    (folder / "config.json").write_text(json.dumps(config, indent=2) + "\n")


def load_dictionary_learning(
    folder: Path, *, d_in: tuple[int, int] | None = None, scale: float = 1.0
) -> CrossCoder:
    """Read ``ae.pt`` and ``config.json``. Raises BadInput where they cannot, and as the conversion does."""
    try:
        config = json.loads((folder / "config.json").read_text())
        state = torch.load(folder / "ae.pt", map_location="cpu", weights_only=True)
    except (OSError, ValueError, RuntimeError) as error:
        raise BadInput(f"these weights cannot be read: {error}", where=str(folder)) from error
    # A compiled model's state dict carries a prefix.
    state = {str(key).removeprefix("_orig_mod."): value for key, value in state.items()}
    return from_dictionary_learning(state, config, d_in=d_in, scale=scale)


def _tensors(
    state: Mapping[str, Tensor], layout: Layout, d_in: tuple[int, int] | None
) -> tuple[Tensor, Tensor, Tensor, Tensor, tuple[int, int]]:
    """Reads [f, d], encoder bias [f], writes [f, d], decoder bias [d] and the widths."""
    reads, writes, bias = state["encoder.weight"], state["decoder.weight"], state["encoder.bias"]
    if layout == "crosscoder":
        if reads.ndim != 3 or reads.shape[0] != 2 or writes.shape != (2, reads.shape[2], reads.shape[1]):
            raise ValueError(
                f"encoder {tuple(reads.shape)} and decoder {tuple(writes.shape)} are not of two models"
            )
        width = reads.shape[1]
        flat = torch.cat([reads[0].T, reads[1].T], dim=1)
        return (
            flat,
            bias,
            torch.cat([writes[0], writes[1]], dim=1),
            state["decoder.bias"].reshape(-1),
            (width, width),
        )
    width = reads.shape[1]
    split = d_in or (width // 2, width - width // 2)
    if sum(split) != width:
        raise ValueError(f"widths {split} do not add up to {width} channels")
    base = state["b_dec"] if "b_dec" in state else state["bias"]
    # Their encoder reads its input less the decoder's bias; here the encoder's bias takes that in.
    inner = (bias.double() - reads.double() @ base.double()).float()
    return reads, inner, writes.T, base, split


def _scoring(activation: Activation, layout: Layout, trainer: Json) -> Scoring:
    if activation == "batch_topk" and layout == "crosscoder":
        kind = str(trainer.get("code_normalization", "CROSSCODER")).rpartition(".")[2].upper()
        if kind not in ("CROSSCODER", "NONE"):
            raise BadInput(f"code normalisation {kind} is not supported", hint="CROSSCODER or NONE")
        return "decoder_norm" if kind == "CROSSCODER" else "value"
    return "value"
