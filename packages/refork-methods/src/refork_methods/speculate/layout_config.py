"""Config files of drafters in other projects' layouts, translated into ours and back: JSON in, JSON out.

Three layouts: ``deepspec`` (flat fields beside those of a Qwen3 model), ``speculators`` (the transformer's
fields in a part of their own) and ``dflash`` (a ``dflash_config`` part). They count target layers
differently: ``deepspec`` and ``dflash`` name blocks, so that layer i is what block i gives and -1 the
embedding; ours and ``speculators`` name hidden states, one more. A block of g drafted tokens is
``block_size`` g where the anchor's slot predicts, and g + 1 where it does not.

Whatever could change what a drafter computes and has no field here is refused, by name.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Final, Literal, get_args

from refork.errors import BadInput, CannotDo
from refork.types import Json
from refork_methods.speculate.config import DraftConfig
from refork_methods.speculate.layout_shape import (
    KEPT_BOOKS,
    need,
    read_shape,
    refuse_unknown,
    write_shape,
)

Layout = Literal["deepspec", "speculators", "dflash"]
LAYOUTS: Final[tuple[Layout, ...]] = get_args(Layout)

ANCHORS: Final = 512
"""``num_anchors`` of an exported ``deepspec`` config, whose class does not load without it."""

_HEADS: Final = {"vanilla": "markov", "gated": "gated", "rnn": "rnn"}
_THEIR_HEADS: Final = {ours: theirs for theirs, ours in _HEADS.items()}
_ALGORITHM: Final = {
    "deepspec": (
        *("block_size", "target_layer_ids", "mask_token_id", "num_target_layers", "num_anchors"),
        *("markov_rank", "markov_head_type", "enable_confidence_head", "confidence_head_with_markov"),
    ),
    "speculators": (
        *("speculators_model_type", "speculators_version", "speculators_config", "transformer_layer_config"),
        *("block_size", "aux_hidden_state_layer_ids", "mask_token_id", "sample_from_anchor", "markov_rank"),
        *("sliding_window_non_causal", "draft_vocab_size", "target_hidden_size", "markov_head_type"),
        *("enable_confidence_head", "confidence_head_with_markov", "eagle_aux_hidden_state_layer_ids"),
        *("norm_before_residual", "norm_before_fc", "fc_norm", "norm_output", "embed_requires_grad"),
    ),
    "dflash": ("block_size", "dflash_config", "num_target_layers", "mask_token_id"),
}
_DFLASH_PART: Final = ("block_size", "mask_token_id", "target_layer_ids", "input_embedding_scale")


def layout_of(config: Json, where: str | None = None) -> Layout:
    """Which layout a ``config.json`` is in.

    Raises:
        BadInput: none of them.
    """
    if "speculators_model_type" in config:
        return "speculators"
    if "dflash_config" in config:
        return "dflash"
    if "target_layer_ids" in config and "num_anchors" in config:
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
    return shape | (_read_deepspec if layout == "deepspec" else _read_dflash)(config, where)


def write_fields(config: DraftConfig, layout: Layout, verifier: str | None, names: Sequence[str]) -> Json:
    """A drafter's ``config.json`` in another layout.

    ``verifier`` is the target's name or path and ``names`` its architectures, where the layout keeps them.

    Raises:
        CannotDo: the layout has no field for what this drafter is.
    """
    if layout not in LAYOUTS:
        raise BadInput(f"there is no layout {layout!r}", hint=f"layouts: {', '.join(LAYOUTS)}")
    if config.kind == "eagle":
        return _write_eagle(config, layout, verifier, names)
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
    return (_write_deepspec if layout == "deepspec" else _write_dflash)(config)


def _read_deepspec(config: Json, where: str | None) -> Json:
    names = config.get("architectures") or ["Qwen3DSparkModel"]
    if names != ["Qwen3DSparkModel"]:
        raise CannotDo(f"architecture {names[0]!r} has other norms than ours", where=where)
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
            hint="export this drafter to speculators" + ("" if config.sequential else " or dflash"),
        )
    return {
        **write_shape(config),
        "architectures": ["Qwen3DSparkModel"],
        "num_target_layers": config.target_depth,
        "block_size": config.block,
        "mask_token_id": config.mask_token,
        "target_layer_ids": [i - 1 for i in config.target_layers],
        "num_anchors": ANCHORS,
        **_write_heads(config),
    }


def _read_dflash(config: Json, where: str | None) -> Json:
    part = config["dflash_config"]
    unknown = sorted(set(part) - set(_DFLASH_PART))
    if unknown:
        raise CannotDo(f"dflash_config has a field {unknown[0]!r} that is not known here", where=where)
    if part.get("input_embedding_scale", 1.0) != 1.0:
        raise CannotDo("this drafter scales its embeddings, ours do not", where=where)
    both = config | part
    return {
        "kind": "dflash",
        "block": need(both, "block_size", where) - 1,
        "target_layers": tuple(i + 1 for i in need(part, "target_layer_ids", where)),
        "mask_token": need(both, "mask_token_id", where),
        **({"target_depth": config["num_target_layers"]} if "num_target_layers" in config else {}),
        **_NO_HEADS,
    }


def _write_dflash(config: DraftConfig) -> Json:
    if config.kind != "dflash" or config.sequential or config.confidence:
        raise CannotDo(
            "the dflash layout has parallel drafters only, without heads, whose anchor slot predicts nothing",
            hint="export this drafter to speculators",
        )
    return {
        **write_shape(config),
        "architectures": ["DFlashDraftModel"],
        "num_target_layers": config.target_depth,
        "block_size": config.block + 1,
        "dflash_config": {
            "mask_token_id": config.mask_token,
            "target_layer_ids": [i - 1 for i in config.target_layers],
        },
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


def _write_eagle(config: DraftConfig, layout: Layout, verifier: str | None, names: Sequence[str]) -> Json:
    if layout != "speculators":
        raise CannotDo(
            f"the {layout} layout of eagle drafters is not known here", hint="export to speculators"
        )
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
