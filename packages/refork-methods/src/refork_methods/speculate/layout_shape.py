"""The transformer part of a foreign drafter's config: widths, heads, positions, window.

Read by transformers' own config classes: a config that was written as differences leaves out their defaults.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Any, Final

from refork.errors import BadInput, CannotDo
from refork.types import Json
from refork_methods.speculate.config import DraftConfig

KEPT_BOOKS: Final = (
    *("architectures", "auto_map", "dtype", "torch_dtype", "model_type", "transformers_version"),
    *("_name_or_path", "name_or_path", "use_cache", "rope_theta", "rope_scaling", "tie_word_embeddings"),
)
"""Fields of any config that say nothing about what the drafter computes, or are read under another name."""


def read_shape(raw: Json, where: str | None, ignore: Collection[str]) -> tuple[Json, int | None]:
    """Widths, heads and positions of the transformer part, and its window where all its layers have one."""
    from transformers import AutoConfig

    kind = raw.get("model_type", "qwen3")
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


def write_shape(config: DraftConfig) -> Json:
    """The transformer part of a foreign config."""
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
