"""Drafters of other projects as ours, and ours as theirs: DeepSpec and speculators."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Collection, Sequence
from pathlib import Path
from typing import Any, Final, Literal, get_args

import torch
from safetensors import SafetensorError
from safetensors.torch import load, save_file
from torch import Tensor, nn

from refork.errors import BadInput, CannotDo, DiskFull, WrongWeights
from refork.policies.local import LocalPolicy
from refork.types import Json
from refork_methods.speculate.config import DraftConfig, draft_config
from refork_methods.speculate.files import read_json, write_json
from refork_methods.speculate.model import Drafter, build_draft

# The transformer part of a foreign drafter's config: widths, heads, positions, window.
#
# Read by transformers' own config classes: a config that was written as differences leaves out their
# defaults.

KEPT_BOOKS: Final = (
    *("architectures", "auto_map", "dtype", "torch_dtype", "model_type", "transformers_version"),
    *("_name_or_path", "name_or_path", "use_cache", "rope_theta", "rope_scaling", "tie_word_embeddings"),
)
"""Fields of any config that say nothing about what the drafter computes, or are read under another name."""


def read_shape(raw: Json, where: str | None, ignore: Collection[str]) -> tuple[Json, int | None]:
    """Widths, heads and positions of the transformer part, and its window where all its layers have one."""
    from transformers import AutoConfig

    kind = raw.get("model_type", "qwen3")
    if kind == "gemma4_text":
        return _read_gemma(raw, where, ignore), None
    if kind not in ("qwen3", "llama"):
        raise CannotDo(f"drafters built of {kind!r} layers have no counterpart here", where=where)
    plain = AutoConfig.for_model(kind)
    refuse_unknown(raw, (*plain.to_dict(), *KEPT_BOOKS), where, ignore)
    config: Any = AutoConfig.for_model(kind, **{k: v for k, v in raw.items() if k != "model_type"})
    rope = config.rope_parameters or {}
    if rope.get("rope_type", "default") != "default" or "rope_theta" not in rope:
        raise CannotDo(f"rotary positions of type {rope.get('rope_type')!r} are not known here", where=where)
    for name, wanted in (("hidden_act", "silu"), ("attention_bias", False), ("mlp_bias", False)):
        if getattr(config, name, wanted) != wanted:
            raise CannotDo(f"{name} is {getattr(config, name)!r}, ours is {wanted!r}", where=where)
    types = set(getattr(config, "layer_types", None) or ["full_attention"])
    if len(types) > 1 or not types <= {"full_attention", "sliding_attention"}:
        raise CannotDo(f"layers that attend differently ({', '.join(sorted(types))})", where=where)
    fields = {
        "hidden": config.hidden_size,
        "layers": config.num_hidden_layers,
        "heads": config.num_attention_heads,
        "kv_heads": config.num_key_value_heads,
        "head_dim": getattr(config, "head_dim", None) or config.hidden_size // config.num_attention_heads,
        "intermediate": config.intermediate_size,
        "vocabulary": config.vocab_size,
        "qk_norm": kind == "qwen3",
        "rope_theta": float(rope["rope_theta"]),
        "norm_eps": float(config.rms_norm_eps),
        "max_positions": config.max_position_embeddings,
    }
    return fields, config.sliding_window if types == {"sliding_attention"} else None


#: Fields of a Gemma 4 config that older versions of transformers write, and newer ones keep layer by layer.
_GLOBAL: Final = ("global_head_dim", "num_global_key_value_heads", "per_layer_config")
#: What a drafter of Gemma 4's layers must not have, and what it is without it.
_PLAIN_GEMMA: Final[Json] = {
    "hidden_activation": "gelu_pytorch_tanh", "attention_bias": False, "enable_moe_block": False,
    "hidden_size_per_layer_input": 0, "num_kv_shared_layers": 0,
}  # fmt: skip


def _read_gemma(raw: Json, where: str | None, ignore: Collection[str]) -> Json:
    """Widths, heads and positions of layers as Gemma 4's that see their whole context."""
    from transformers import AutoConfig

    refuse_unknown(
        raw, (*AutoConfig.for_model("gemma4_text").to_dict(), *KEPT_BOOKS, *_GLOBAL), where, ignore
    )
    config: Any = AutoConfig.for_model("gemma4_text", **{k: v for k, v in raw.items() if k != "model_type"})
    for name, wanted in _PLAIN_GEMMA.items():
        if getattr(config, name) != wanted:
            raise CannotDo(f"{name} is {getattr(config, name)!r}, ours is {wanted!r}", where=where)
    if set(config.layer_types) != {"full_attention"}:
        raise CannotDo(
            f"layers that attend differently ({', '.join(sorted(set(config.layer_types)))})", where=where
        )
    rope = config.rope_parameters["full_attention"]
    if rope["rope_type"] not in ("default", "proportional") or rope.get("factor", 1.0) != 1.0:
        raise CannotDo(f"rotary positions of type {rope['rope_type']!r} are not known here", where=where)
    if hasattr(config, "per_layer_config"):
        layer = config.per_layer_config[0]
        kv_heads, head_dim = layer.num_key_value_heads, layer.head_dim
    else:
        own = config.num_global_key_value_heads if config.attention_k_eq_v else None
        kv_heads, head_dim = own or config.num_key_value_heads, config.global_head_dim
    return {
        "family": "gemma4",
        "hidden": config.hidden_size,
        "layers": config.num_hidden_layers,
        "heads": config.num_attention_heads,
        "kv_heads": kv_heads,
        "head_dim": head_dim,
        "intermediate": config.intermediate_size,
        "vocabulary": config.vocab_size,
        "shared_values": config.attention_k_eq_v,
        "rotary": rope.get("partial_rotary_factor", 1.0) if rope["rope_type"] == "proportional" else 1.0,
        "rope_theta": float(rope["rope_theta"]),
        "norm_eps": float(config.rms_norm_eps),
        "max_positions": config.max_position_embeddings,
    }


def _write_gemma(config: DraftConfig) -> Json:
    turned = {
        "rope_type": "proportional",
        "partial_rotary_factor": config.rotary,
        "rope_theta": config.rope_theta,
    }
    return {
        "model_type": "gemma4_text",
        "hidden_size": config.hidden,
        "num_hidden_layers": config.layers,
        "layer_types": ["full_attention"] * config.layers,
        "num_attention_heads": config.heads,
        "num_key_value_heads": config.kv_heads,
        "head_dim": config.head_dim,
        "num_global_key_value_heads": config.kv_heads,
        "global_head_dim": config.head_dim,
        "attention_k_eq_v": config.shared_values,
        "intermediate_size": config.intermediate,
        "vocab_size": config.vocabulary,
        "rope_parameters": {
            "full_attention": turned,
            "sliding_attention": {"rope_type": "default", "rope_theta": 10000.0},
        },
        "rms_norm_eps": config.norm_eps,
        "max_position_embeddings": config.max_positions or 131072,
        "tie_word_embeddings": False,
        "dtype": "float32",
        **_PLAIN_GEMMA,
    }


def write_shape(config: DraftConfig) -> Json:
    """The transformer part of a foreign config."""
    if config.family == "gemma4":
        return _write_gemma(config)
    layer = "full_attention" if config.window is None else "sliding_attention"
    return {
        "model_type": "qwen3" if config.qk_norm else "llama",
        "hidden_size": config.hidden,
        "num_hidden_layers": config.layers,
        "num_attention_heads": config.heads,
        "num_key_value_heads": config.kv_heads,
        "head_dim": config.head_dim,
        "intermediate_size": config.intermediate,
        "vocab_size": config.vocabulary,
        "hidden_act": "silu",
        "attention_bias": False,
        "rope_parameters": {"rope_type": "default", "rope_theta": config.rope_theta},
        "rms_norm_eps": config.norm_eps,
        "max_position_embeddings": config.max_positions or 32768,
        "tie_word_embeddings": False,
        "dtype": "float32",
        **(
            {
                "layer_types": [layer] * config.layers,
                "use_sliding_window": config.window is not None,
                "sliding_window": config.window,
            }
            if config.qk_norm
            else {"mlp_bias": False}
        ),
    }


def refuse_unknown(config: Json, known: Collection[str], where: str | None, ignore: Collection[str]) -> None:
    """Refuse fields whose meaning is not known; one that is unset says nothing."""
    for name, value in config.items():
        if name not in known and name not in ignore and value is not None and value is not False:
            raise CannotDo(
                f"the config has a field {name!r} that is not known here",
                where=where,
                hint="it may change what the drafter computes; if it does not, name it as one to ignore",
            )


def need(config: Json, name: str, where: str | None) -> Any:
    """A field that must be there."""
    found = config.get(name)
    if found is None:
        raise BadInput(f"the config has no {name}", where=where)
    return found


# Config files of drafters in other projects' layouts, translated into ours and back: JSON in, JSON out.
#
# Two layouts: ``deepspec`` (flat fields beside those of a Qwen3 model) and ``speculators`` (the transformer's
# fields in a part of their own). They count target layers differently: ``deepspec`` names blocks, so that
# layer i is what block i gives and -1 the embedding; ours and ``speculators`` name hidden states, one more. A
# block of g drafted tokens is ``block_size`` g where the anchor's slot predicts, and g + 1 where it does not.
#
# Whatever could change what a drafter computes and has no field here is refused, by name.

Layout = Literal["deepspec", "speculators"]
LAYOUTS: Final[tuple[Layout, ...]] = get_args(Layout)

ANCHORS: Final = 512
"""``num_anchors`` of an exported ``deepspec`` config, whose class does not load without it."""

STEP_DECAY: Final = 0.8
"""``step_loss_decay`` of an exported ``deepspec`` eagle config, whose class does not load without it."""

_DEEPSPEC: Final = {
    ("dspark", "llama"): "Qwen3DSparkModel",
    ("dspark", "gemma4"): "Gemma4DSparkModel",
    ("eagle", "llama"): "Qwen3Eagle3Model",
    ("eagle", "gemma4"): "Gemma4Eagle3Model",
}
_HEADS: Final = {"vanilla": "markov", "gated": "gated", "rnn": "rnn"}
_THEIR_HEADS: Final = {ours: theirs for theirs, ours in _HEADS.items()}
_ALGORITHM: Final = {
    "deepspec": (
        *("block_size", "target_layer_ids", "mask_token_id", "num_target_layers", "num_anchors"),
        *("markov_rank", "markov_head_type", "enable_confidence_head", "confidence_head_with_markov"),
        *("ttt_length", "step_loss_decay", "draft_num_hidden_layers", "target_model_name_or_path"),
        *("target_model_type", "target_text_model_type"),
    ),
    "speculators": (
        *("speculators_model_type", "speculators_version", "speculators_config", "transformer_layer_config"),
        *("block_size", "aux_hidden_state_layer_ids", "mask_token_id", "sample_from_anchor", "markov_rank"),
        *("sliding_window_non_causal", "draft_vocab_size", "target_hidden_size", "markov_head_type"),
        *("enable_confidence_head", "confidence_head_with_markov", "eagle_aux_hidden_state_layer_ids"),
        *("norm_before_residual", "norm_before_fc", "fc_norm", "norm_output", "embed_requires_grad"),
    ),
}


def layout_of(config: Json, where: str | None = None) -> Layout:
    """Which layout a ``config.json`` is in.

    Raises:
        BadInput: none of them.
    """
    if "speculators_model_type" in config:
        return "speculators"
    if "target_layer_ids" in config and ("num_anchors" in config or "ttt_length" in config):
        return "deepspec"
    raise BadInput(
        "this is no drafter in a layout that is known",
        where=where,
        hint=f"layouts: {', '.join(LAYOUTS)}",
    )


def read_fields(config: Json, where: str | None = None, ignore: Collection[str] = ()) -> Json:
    """The fields of a :class:`DraftConfig` that a foreign ``config.json`` tells.

    ``target_depth`` is among them only where the layout keeps it; ``ignore`` names fields to be passed over
    although they are not known here.

    Raises:
        BadInput: a field that is missing, or no known layout.
        CannotDo: a field, or a value of one, that our drafters have no counterpart of.
    """
    layout = layout_of(config, where)
    if layout == "speculators":
        return _read_speculators(config, where, ignore)
    transformer = {k: v for k, v in config.items() if k not in _ALGORITHM[layout]}
    shape, sliding = read_shape(transformer, where, ignore)
    if sliding is not None:
        raise CannotDo(f"windows of the {layout} layout move with each slot, ours stand still", where=where)
    return shape | _read_deepspec(config, shape, where)


def write_fields(config: DraftConfig, layout: Layout, verifier: str | None, names: Sequence[str]) -> Json:
    """A drafter's ``config.json`` in another layout.

    ``verifier`` is the target's name or path and ``names`` its architectures, where the layout keeps them.

    Raises:
        CannotDo: the layout has no field for what this drafter is.
    """
    if layout not in LAYOUTS:
        raise BadInput(f"there is no layout {layout!r}", hint=f"layouts: {', '.join(LAYOUTS)}")
    if config.family == "gemma4" and layout != "deepspec":
        raise CannotDo(f"drafters of Gemma 4's layers have no {layout} layout", hint="export to deepspec")
    if config.kind == "eagle" and layout == "speculators":
        return _write_eagle(config, verifier, names)
    if config.kind == "eagle":
        return _write_deepspec_eagle(config)
    if config.mask_token is None:
        raise CannotDo(
            "this drafter learned a mask row of its own, which other layouts cannot hold",
            hint="train it with mask_token, the id of a token that the target never says",
        )
    if not config.qk_norm:
        raise CannotDo(
            f"block drafters of the {layout} layout norm their queries and keys, this one does not"
        )
    if layout == "speculators":
        return _write_speculators(config, verifier, names)
    if config.window is not None:
        raise CannotDo(f"windows of the {layout} layout move with each slot, ours stand still")
    return _write_deepspec(config)


def _read_deepspec(config: Json, shape: Json, where: str | None) -> Json:
    kind = "eagle" if "ttt_length" in config else "dspark"
    wanted = _DEEPSPEC[kind, shape.get("family", "llama")]
    names = config.get("architectures") or [wanted]
    if names != [wanted]:
        raise CannotDo(
            f"architecture {names[0]!r} does not belong to such a config: {wanted} does", where=where
        )
    if kind == "eagle":
        if shape["layers"] != 1:
            raise CannotDo("an eagle drafter has one layer here", where=where)
        return {
            "kind": "eagle",
            "block": need(config, "ttt_length", where),
            "target_layers": (0, *(i + 1 for i in need(config, "target_layer_ids", where))),
            "target_depth": need(config, "num_target_layers", where),
            **_NO_HEADS,
        }
    return {
        "kind": "dspark",
        "block": need(config, "block_size", where),
        "target_layers": tuple(i + 1 for i in need(config, "target_layer_ids", where)),
        "mask_token": need(config, "mask_token_id", where),
        "target_depth": need(config, "num_target_layers", where),
        **_read_heads(config, where),
    }


def _write_deepspec(config: DraftConfig) -> Json:
    if config.kind != "dspark":
        raise CannotDo(
            "in the deepspec layout every slot predicts, the anchor's too",
            hint="export this drafter to speculators",
        )
    return {
        **write_shape(config),
        "architectures": [_DEEPSPEC["dspark", config.family]],
        "num_target_layers": config.target_depth,
        "block_size": config.block,
        "mask_token_id": config.mask_token,
        "target_layer_ids": [i - 1 for i in config.target_layers],
        "num_anchors": ANCHORS,
        **_write_heads(config),
    }


def _write_deepspec_eagle(config: DraftConfig) -> Json:
    if not config.qk_norm:
        raise CannotDo(
            "eagle drafters of the deepspec layout norm their queries and keys, this one does not",
            hint="train it with qk_norm=True, or export to speculators",
        )
    return {
        **write_shape(config),
        "architectures": [_DEEPSPEC["eagle", config.family]],
        "num_target_layers": config.target_depth,
        "target_layer_ids": [i - 1 for i in config.target_layers[1:]],
        "ttt_length": config.block,
        "step_loss_decay": STEP_DECAY,
        "draft_num_hidden_layers": config.layers,
    }


def _read_speculators(config: Json, where: str | None, ignore: Collection[str]) -> Json:
    kind = config["speculators_model_type"]
    if kind not in ("dspark", "dflash", "eagle3"):
        raise CannotDo(f"drafters of type {kind!r} have no counterpart here", where=where)
    refuse_unknown(config, (*_ALGORITHM["speculators"], *KEPT_BOOKS), where, ignore)
    shape, sliding = read_shape(need(config, "transformer_layer_config", where), where, ignore)
    if config.get("draft_vocab_size", shape["vocabulary"]) != shape["vocabulary"]:
        raise CannotDo(
            f"this drafter knows {config['draft_vocab_size']} of {shape['vocabulary']} tokens", where=where
        )
    if config.get("target_hidden_size") not in (None, shape["hidden"]):
        raise CannotDo("this drafter has another width than its target", where=where)
    if kind == "eagle3":
        return shape | _read_eagle(config, shape, sliding, where)
    if sliding is not None and not config.get("sliding_window_non_causal", False):
        raise CannotDo("under this window a slot does not see the slots after it; ours do", where=where)
    from_anchor = config.get("sample_from_anchor", kind == "dspark")
    heads = _read_heads(config, where) if kind == "dspark" else _NO_HEADS
    if not from_anchor and heads["head"] == "rnn":
        raise CannotDo("this recurrent head starts one slot before the first drafted token", where=where)
    return shape | {
        "kind": "dspark" if from_anchor else "dflash",
        "block": need(config, "block_size", where) - (not from_anchor),
        "target_layers": tuple(need(config, "aux_hidden_state_layer_ids", where)),
        "mask_token": need(config, "mask_token_id", where),
        "window": sliding,
        **heads,
    }


def _write_speculators(config: DraftConfig, verifier: str | None, names: Sequence[str]) -> Json:
    from_anchor = config.kind == "dspark"
    if not from_anchor and config.sequential and config.head == "rnn":
        raise CannotDo("speculators would start this recurrent head one slot before the first drafted token")
    bare = not (from_anchor or config.sequential or config.confidence)
    return {
        **_speculators_frame(config, "dflash" if bare else "dspark", verifier, names),
        "architectures": ["DFlashDraftModel" if bare else "DSparkDraftModel"],
        "block_size": config.block + (not from_anchor),
        "aux_hidden_state_layer_ids": list(config.target_layers),
        "mask_token_id": config.mask_token,
        "sample_from_anchor": from_anchor,
        "sliding_window_non_causal": config.window is not None,
        **({} if bare else _write_heads(config)),
    }


def _read_eagle(config: Json, shape: Json, sliding: int | None, where: str | None) -> Json:
    for flag in ("norm_before_residual", "norm_before_fc", "fc_norm", "norm_output", "embed_requires_grad"):
        if config.get(flag):
            raise CannotDo(f"this drafter sets {flag}, which ours have no field for", where=where)
    if shape["layers"] != 1 or sliding is not None:
        raise CannotDo("an eagle drafter has one layer here, and sees its whole context", where=where)
    methods = (config.get("speculators_config") or {}).get("proposal_methods") or [{}]
    return {
        "kind": "eagle",
        "block": methods[0].get("speculative_tokens", 5),
        "target_layers": (0, *need(config, "eagle_aux_hidden_state_layer_ids", where)),
        **_NO_HEADS,
    }


def _write_eagle(config: DraftConfig, verifier: str | None, names: Sequence[str]) -> Json:
    if config.window is not None:
        raise CannotDo("windows of eagle drafters move with each step, ours stand still")
    return {
        **_speculators_frame(config, "eagle3", verifier, names),
        "architectures": ["Eagle3DraftModel"],
        "eagle_aux_hidden_state_layer_ids": list(config.target_layers[1:]),
        "norm_before_residual": False,
        "norm_before_fc": False,
    }


def _speculators_frame(config: DraftConfig, kind: str, verifier: str | None, names: Sequence[str]) -> Json:
    """What every ``speculators`` config has."""
    proposal = {"proposal_type": "greedy", "speculative_tokens": config.block}
    return {
        "speculators_model_type": kind,
        "speculators_config": {
            "algorithm": kind,
            "proposal_methods": [proposal],
            "default_proposal_method": "greedy",
            "verifier": {"name_or_path": verifier, "architectures": list(names)},
        },
        "transformer_layer_config": write_shape(config),
        "draft_vocab_size": config.vocabulary,
        "tie_word_embeddings": False,
    }


_NO_HEADS: Final[Json] = {"head": "none", "rank": 0, "confidence": False, "confidence_with_markov": False}


def _read_heads(config: Json, where: str | None) -> Json:
    rank = int(config.get("markov_rank", 256))
    kind = config.get("markov_head_type", "vanilla")
    if rank and kind not in _HEADS:
        raise CannotDo(f"head {kind!r} has no counterpart here", where=where)
    confidence = bool(config.get("enable_confidence_head", True))
    return {
        "rank": rank,
        "head": _HEADS[kind] if rank else "none",
        "confidence": confidence,
        "confidence_with_markov": confidence and bool(config.get("confidence_head_with_markov", True)),
    }


def _write_heads(config: DraftConfig) -> Json:
    return {
        "markov_rank": config.rank if config.sequential else 0,
        "markov_head_type": _THEIR_HEADS[config.head] if config.sequential else "vanilla",
        "enable_confidence_head": config.confidence,
        "confidence_head_with_markov": config.confidence_reads_token,
    }


# Drafters of other projects as ours, and ours as theirs: folders of DeepSpec and speculators.
#
# What is read is checked against the target it is to draft for; what a layout has no field for is refused,
# never dropped. Tensors go over bit for bit.
#
# Source: arXiv:2607.05147 and arXiv:2602.06036 (the networks); the layouts are those of
# deepseek-ai/DeepSpec and vllm-project/speculators 0.9.

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
    _check_ends(target, config)
    if config.family == "gemma4" and body.get("final_logit_softcapping") != _cap(target):
        raise WrongWeights(
            "this drafter was trained for a target that caps its logits otherwise", where=str(place)
        )
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
    _check_ends(target, draft.config)
    names = list(getattr(target.decoder.backbone.model.config, "architectures", None) or [])
    body = write_fields(draft.config, layout, verifier, names)
    if draft.config.family == "gemma4":
        body["final_logit_softcapping"] = _cap(target)
    tensors = {_theirs(name): part.detach().cpu().contiguous() for name, part in draft.state_dict().items()}
    if layout == "deepspec" or draft.config.kind == "eagle":
        # Clones, since the two may be tied, and safetensors refuses two names for one memory.
        tensors |= {_EMBEDDING: _embedding(target).clone(), _HEAD: _head(target).clone()}

    def write(made: Path) -> None:
        made.mkdir()
        save_file(tensors, made / _WEIGHTS, metadata={"format": "pt"})
        write_json(made / _CONFIG, body)

    write_whole(place, write)


def write_whole(folder: Path, write: Callable[[Path], None]) -> None:
    """A folder with all that ``write`` puts into it, or none.

    Raises:
        BadInput: it is there already, and holds something.
        DiskFull: it cannot be written.
    """
    refuse_taken(folder)
    try:
        folder.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=folder.parent, prefix=f".{folder.name}-") as scratch:
            made = Path(scratch) / "draft"
            write(made)
            # The rename replaces an empty folder; one that somebody filled meanwhile makes it fail.
            made.replace(folder)
    except OSError as error:
        raise DiskFull(f"the drafter could not be written: {error}", where=str(folder)) from error


def refuse_taken(folder: Path) -> None:
    """Refuse a folder that holds something."""
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise BadInput(
            "this folder holds something", where=str(folder), hint="name one that does not exist yet"
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


def _cap(target: LocalPolicy) -> float | None:
    cap: float | None = getattr(
        target.decoder.backbone.model.config.get_text_config(), "final_logit_softcapping", None
    )
    return cap


def _check_ends(target: LocalPolicy, config: DraftConfig) -> None:
    """Refuse a target that scales its embedding or its logits otherwise than the layout's classes do."""
    model: Any = target.decoder.backbone.model
    text = model.config.get_text_config()
    embedding, head = model.get_input_embeddings(), model.get_output_embeddings()
    gemma = config.family == "gemma4"
    scales = ("logits_scaling", "logit_scale", "embedding_multiplier")
    odd = [
        name
        for name in (scales if gemma else ("final_logit_softcapping", *scales))
        if getattr(text, name, None) not in (None, 1.0)
    ]
    if gemma:
        # Classes of this family multiply what they embed by the root of its width, and cap their logits.
        scale = getattr(embedding, "scalar_embed_scale", None)
        bare = scale is not None and abs(scale - embedding.embedding_dim**0.5) < 1e-6
    else:
        bare = type(embedding) is nn.Embedding
    if odd or not bare or not isinstance(head, nn.Linear) or head.bias is not None:
        raise CannotDo(
            f"{type(model).__name__} changes its embedding or its logits on the way"
            + (f" ({odd[0]})" if odd else "")
            + (" in another way than Gemma 4" if gemma else ""),
            hint="these layouts read bare weights of a target, so the drafter would see other inputs there",
        )
