"""Tiny random models of every causal architecture that the installed transformers can build from a config.

Windows, chunks and scaling borders are far smaller than the sequences that are compared, so that they matter.
A config takes what it knows of ``SIZES`` and what ``SPECIAL`` says of its kind.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from typing import Any, Final

import torch

WINDOW: Final = 12
VOCABULARY: Final = 101
LARGEST: Final = 12_000_000
"""Parameters above which a config is taken to have kept some of its own sizes."""

SIZES: Final[dict[str, Any]] = {
    **dict.fromkeys(("hidden_size", "n_embd", "d_model", "embed_dim", "dim", "word_embed_proj_dim"), 64),
    **dict.fromkeys(("intermediate_size", "ffn_dim", "n_inner", "decoder_ffn_dim", "ffn_hidden_size"), 96),
    **dict.fromkeys(("num_hidden_layers", "n_layer", "n_layers", "num_layers", "decoder_layers"), 4),
    **dict.fromkeys(("num_attention_heads", "n_head", "n_heads", "decoder_attention_heads"), 4),
    **dict.fromkeys(("encoder_layers", "encoder_attention_heads"), 1),
    **dict.fromkeys(("max_position_embeddings", "n_positions", "max_seq_len"), 512),
    **dict.fromkeys(
        ("sliding_window", "attention_chunk_size", "window_size", "attention_window_size"), WINDOW
    ),
    **dict.fromkeys(("local_attention", "sliding_window_size", "floor_scale"), WINDOW),
    **dict.fromkeys(("moe_intermediate_size", "shared_expert_intermediate_size"), 32),
    **dict.fromkeys(("num_experts", "n_routed_experts", "num_local_experts"), 4),
    **dict.fromkeys(("n_group", "topk_group", "first_k_dense_replace", "mamba_n_groups"), 1),
    **dict.fromkeys(("q_lora_rank", "kv_lora_rank", "v_head_dim", "head_dim"), 16),
    **dict.fromkeys(("mamba_d_state", "mamba_dt_rank", "state_size", "ssm_state_size", "mamba_n_heads"), 8),
    **dict.fromkeys(("qk_rope_head_dim", "qk_nope_head_dim", "rotary_dim", "mamba_num_heads"), 8),
    **dict.fromkeys(("mamba_d_head", "mamba_head_dim"), 16),
    **dict.fromkeys(("mamba_expand", "num_experts_per_tok", "num_key_value_heads"), 2),
    "vocab_size": VOCABULARY,
    "mamba_chunk_size": 8,
    "bos_token_id": 1,
    "eos_token_id": 2,
    "pad_token_id": 0,
    "initializer_range": 0.1,
}

_ROPE_8: Final = {"head_dim": 8}
_INDEXED: Final = {
    "head_dim": 8, "num_key_value_heads": 4, "index_topk": 8, "index_n_heads": 2, "index_head_dim": 16
}  # fmt: skip
_PLAIN_ROPE: Final = {"rope_type": "default", "rope_theta": 1e4}
_MIXED: Final = ["sliding_attention", "full_attention"] * 2
_PER_LAYER: Final = {
    "hidden_size_per_layer_input": 8,
    "vocab_size_per_layer_input": 101,
    "layer_types": _MIXED,
}
_HALF: Final = [1.0] * 8

SPECIAL: Final[dict[str, dict[str, Any]]] = {
    "axk1": _ROPE_8,
    "axk2": _INDEXED,
    "bailing_hybrid": {"layer_types": ["linear_attention", "full_attention"] * 2},
    "bamba": {"attn_layer_indices": [1, 3]},
    "cohere_compass_text": {
        "layer_types": _MIXED,
        "rope_parameters": {"full_attention": _PLAIN_ROPE, "sliding_attention": _PLAIN_ROPE},
    },
    "dbrx": {
        "attn_config": {"kv_n_heads": 2, "rope_theta": 1e4, "clip_qkv": 8.0},
        "ffn_config": {"ffn_hidden_size": 32, "moe_num_experts": 4, "moe_top_k": 2},
    },
    "deepseek_v3": _ROPE_8,
    "deepseek_v32": _INDEXED,
    "dots1": {"n_shared_experts": 1},
    "falcon_h1": {"mamba_d_ssm": 128},
    "gemma3n_text": _PER_LAYER | {"num_kv_shared_layers": 0, "laurel_rank": 8},
    "gemma4_text": _PER_LAYER | {"head_dim": 16, "num_kv_shared_layers": 0},
    "glm4_moe_lite": _ROPE_8,
    "glm_moe_dsa": _INDEXED,
    "gpt_neo": {"attention_types": [[["global", "local"], 2]]},
    "granitemoehybrid": {"layer_types": ["mamba", "attention"] * 2},
    "jamba": {"attn_layer_period": 2, "attn_layer_offset": 1, "expert_layer_period": 2},
    "kimi_linear": {
        "layer_types": ["linear_attention", "full_attention"] * 2, "linear_head_dim": 16,
        "linear_num_heads": 4, "num_key_value_heads": 4, "num_experts_per_token": 2,
    },
    "lfm2_moe": {"layer_types": ["conv", "full_attention"] * 2, "num_dense_layers": 1},
    "longcat_flash": _ROPE_8,
    "mamba2": {"num_heads": 8, "head_dim": 16, "n_groups": 1, "chunk_size": 8},
    "prophetnet": {
        "num_encoder_layers": 1, "num_decoder_layers": 2, "num_encoder_attention_heads": 4,
        "num_decoder_attention_heads": 4, "encoder_ffn_dim": 96,
    },
    "qwen4_exp_text": {
        "indexer_n_heads": 2, "indexer_kv_heads": 1, "indexer_head_dim": 16, "indexer_budget": 16,
        "indexer_compress_ratio": 4, "ple_embed_dim": 64, "ngram_vocab_size_base": 100,
        "layer_types": ["linear_attention", "indexed_attention"] * 2, "linear_key_head_dim": 8,
        "linear_value_head_dim": 8, "linear_num_key_heads": 2, "linear_num_value_heads": 4,
    },
    "reformer": {
        "is_decoder": True, "axial_pos_shape": [16, 32], "axial_pos_embds_dim": [32, 32],
        "attn_layers": ["local", "local"], "local_attn_chunk_length": 8, "feed_forward_size": 96,
        "attention_head_size": 16, "max_position_embeddings": 512,
    },
    "roc_bert": {
        "is_decoder": True, "pronunciation_embed_dim": 16, "pronunciation_vocab_size": 101,
        "shape_embed_dim": 16, "shape_vocab_size": 101,
    },
    "xmod": {"default_language": "en_XX", "is_decoder": True},
    "youtu": _ROPE_8,
    "zamba": {
        "layers_block_type": ["linear_attention", "hybrid"] * 2, "attention_head_dim": 32,
        "num_key_value_heads": 4, "mamba_dt_rank": 4,
    },
    "zaya": {"num_experts_per_tok": 1},
    "mpt": {"no_bias": True},
}  # fmt: skip

VARIANTS: Final[dict[str, tuple[str, dict[str, Any]]]] = {
    "phi3, longrope": (
        "phi3",
        {
            "original_max_position_embeddings": 20,
            "rope_parameters": {
                "rope_type": "longrope", "rope_theta": 1e4, "original_max_position_embeddings": 20,
                "short_factor": _HALF, "long_factor": [3.0] * 8,
            },
        },
    ),
    "llama, llama3 scaling": (
        "llama",
        {
            "rope_parameters": {
                "rope_type": "llama3", "rope_theta": 1e4, "factor": 4.0, "low_freq_factor": 1.0,
                "high_freq_factor": 4.0, "original_max_position_embeddings": 24,
            }
        },
    ),
    "llama, yarn": (
        "llama",
        {
            "rope_parameters": {
                "rope_type": "yarn", "rope_theta": 1e4, "factor": 4.0, "original_max_position_embeddings": 24
            }
        },
    ),
    "qwen2, windows": (
        "qwen2",
        {
            "use_sliding_window": True, "max_window_layers": 2,
            "layer_types": ["full_attention", "sliding_attention"] * 2,
        },
    ),
    "mpt, clipped": ("mpt", {"attn_config": {"clip_qkv": 0.5, "alibi": True}}),
    "falcon, alibi": ("falcon", {"alibi": True}),
    "gpt2, scaled by layer": ("gpt2", {"scale_attn_by_inverse_layer_idx": True}),
}  # fmt: skip
"""Settings of an architecture that change what its attention does."""

COMPOSITE: Final = frozenset({
    "blt", "dots3_note", "emu3", "fuyu", "gemma3", "gemma3n", "gemma4", "gemma4_unified", "git", "got_ocr2",
    "llama4", "mllama", "moss_transcribe_diarize", "musicgen", "musicgen_melody", "phi4_multimodal",
    "qwen3_5", "qwen3_5_moe", "qwen4_exp",
})  # fmt: skip
"""Kinds whose config joins several models (pictures, sound); a text model in one is a kind of its own."""


def kinds() -> list[str]:
    """Model types, one for each class of model."""
    from transformers.models.auto.modeling_auto import MODEL_FOR_CAUSAL_LM_MAPPING_NAMES as NAMES

    first: dict[str, str] = {}
    for kind, name in sorted(NAMES.items(), key=lambda pair: len(pair[0])):
        # Of several names of one class the shortest is its own: llama, not internlm3.
        if kind not in COMPOSITE:
            first.setdefault(name, kind)
    return sorted([*first.values(), *VARIANTS])


def build(kind: str) -> Any:
    """A tiny random model of a kind, the same weights every time. Raises what its code raises."""
    from transformers import CONFIG_MAPPING, MODEL_FOR_CAUSAL_LM_MAPPING
    from transformers.utils import logging

    logging.set_verbosity_error()
    name, extra = VARIANTS.get(kind, (kind, {}))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        made = CONFIG_MAPPING[name]
        config = _config(made, SPECIAL.get(name, {}) | extra)
        if getattr(config, "is_decoder", None) is False and not getattr(config, "is_encoder_decoder", False):
            config.is_decoder = True
        model_class = MODEL_FOR_CAUSAL_LM_MAPPING[type(config)]
        with torch.device("meta"):
            size = sum(p.numel() for p in model_class(config).parameters())
        if size > LARGEST:
            raise ValueError(f"{size} parameters: its sizes are its own")
        torch.manual_seed(0)
        return model_class(config).eval()


def _config(made: Any, special: dict[str, Any]) -> Any:
    """A config of a class with what it knows of the sizes; what it will not take is left as it is."""
    known = dict(_known(made())) | special
    while True:
        try:
            return made(**known)
        except Exception as error:
            refused = next((key for key in known if key not in special and f"`{key}`" in str(error)), None)
            refused = refused or next((k for k in known if k not in special and f"'{k}'" in str(error)), None)
            if refused is None:
                raise
            del known[refused]


def _known(plain: Any) -> Iterator[tuple[str, Any]]:
    for key, value in SIZES.items():
        if type(plain).model_type == "xlnet" and key == "max_position_embeddings":
            continue  # it has no such limit, and says so by an error
        try:
            getattr(plain, key)
        except Exception:  # absent, or each layer's own
            continue
        held = getattr(type(plain), key, None)
        if not (isinstance(held, property) and held.fset is None):
            yield key, value
