"""A small organism as a GGUF file in float32, its tokenizer and chat template included, for llama.cpp."""

from __future__ import annotations

import json
import struct
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from safetensors.numpy import load_file

_LAYER = {
    "input_layernorm": "attn_norm",
    "self_attn.q_proj": "attn_q",
    "self_attn.k_proj": "attn_k",
    "self_attn.v_proj": "attn_v",
    "self_attn.o_proj": "attn_output",
    "post_attention_layernorm": "ffn_norm",
    "mlp.gate_proj": "ffn_gate",
    "mlp.up_proj": "ffn_up",
    "mlp.down_proj": "ffn_down",
}
_WHOLE = {"model.embed_tokens": "token_embd", "model.norm": "output_norm", "lm_head": "output"}
_ALIGNMENT = 32
_NORMAL, _CONTROL = 1, 3


def write_gguf(folder: Path, file: Path) -> Path:
    """The Llama in a folder of Hugging Face files, as one GGUF file."""
    config = json.loads((folder / "config.json").read_text())
    tensors = _tensors(load_file(folder / "model.safetensors"), config)
    pairs = _shape(config) | _tokenizer(folder)
    head = [b"GGUF", struct.pack("<IQQ", 3, len(tensors), len(pairs))]
    head += [_text(key) + _value(value) for key, value in pairs.items()]
    at, data = 0, []
    for name, tensor in tensors.items():
        sizes = tensor.shape[::-1]
        head.append(_text(name) + struct.pack(f"<I{len(sizes)}QIQ", len(sizes), *sizes, 0, at))
        data.append(_padded(tensor.tobytes()))
        at += len(data[-1])
    file.write_bytes(_padded(b"".join(head)) + b"".join(data))
    return file


def _tensors(weights: dict[str, NDArray[Any]], config: dict[str, Any]) -> dict[str, NDArray[np.float32]]:
    heads = config["num_attention_heads"]
    names = dict(_WHOLE) | {
        f"model.layers.{layer}.{mine}": f"blk.{layer}.{theirs}"
        for layer in range(config["num_hidden_layers"])
        for mine, theirs in _LAYER.items()
    }
    found = {}
    for mine, theirs in names.items():
        # A tied output has no weights of its own.
        w = weights.get(f"{mine}.weight", weights["model.embed_tokens.weight"]).astype("<f4")
        if theirs.endswith(("attn_q", "attn_k")):
            # Rotary pairs lie side by side there.
            w = w.reshape(heads, 2, -1, w.shape[1]).swapaxes(1, 2).reshape(-1, w.shape[1])
        found[f"{theirs}.weight"] = np.ascontiguousarray(w)
    return found


def _shape(config: dict[str, Any]) -> dict[str, Any]:
    heads = config["num_attention_heads"]
    return {
        "general.architecture": "llama",
        "llama.block_count": config["num_hidden_layers"],
        "llama.context_length": config["max_position_embeddings"],
        "llama.embedding_length": config["hidden_size"],
        "llama.feed_forward_length": config["intermediate_size"],
        "llama.attention.head_count": heads,
        "llama.attention.head_count_kv": heads,
        "llama.attention.layer_norm_rms_epsilon": float(config["rms_norm_eps"]),
        "llama.rope.freq_base": float(config["rope_parameters"]["rope_theta"]),
        "llama.rope.dimension_count": config["hidden_size"] // heads,
        "llama.vocab_size": config["vocab_size"],
    }


def _tokenizer(folder: Path) -> dict[str, Any]:
    given = json.loads((folder / "tokenizer.json").read_text())
    special = {one["content"] for one in given["added_tokens"] if one["special"]}
    vocabulary = sorted(given["model"]["vocab"], key=given["model"]["vocab"].get)
    end = json.loads((folder / "tokenizer_config.json").read_text())["eos_token"]
    return {
        "tokenizer.ggml.model": "gpt2",
        # The one whose whole words win over merges, as here. It cuts like ours but for words behind signs.
        "tokenizer.ggml.pre": "llama-bpe",
        # Bytes are written as letters: the space and the line's end are the two that differ here.
        "tokenizer.ggml.tokens": [t.replace(" ", "\u0120").replace("\n", "\u010a") for t in vocabulary],
        "tokenizer.ggml.token_type": [_CONTROL if t in special else _NORMAL for t in vocabulary],
        # It wants a merge; this one makes no token.
        "tokenizer.ggml.merges": ["~ ~"],
        "tokenizer.ggml.eos_token_id": vocabulary.index(end),
        "tokenizer.ggml.add_bos_token": False,
        "tokenizer.chat_template": (folder / "chat_template.jinja").read_text(),
    }


def _padded(data: bytes) -> bytes:
    return data + b"\0" * (-len(data) % _ALIGNMENT)


def _text(text: str) -> bytes:
    raw = text.encode()
    return struct.pack("<Q", len(raw)) + raw


def _value(value: Any) -> bytes:
    """A value behind the number of its type."""
    kind, raw = _plain(value) if not isinstance(value, list) else (9, _array(value))
    return struct.pack("<I", kind) + raw


def _array(values: Sequence[Any]) -> bytes:
    if isinstance(values[0], int):
        return struct.pack(f"<IQ{len(values)}i", 5, len(values), *values)
    return struct.pack("<IQ", 8, len(values)) + b"".join(map(_text, values))


def _plain(value: Any) -> tuple[int, bytes]:
    if isinstance(value, bool):
        return 7, struct.pack("<?", value)
    if isinstance(value, int):
        return 4, struct.pack("<I", value)
    if isinstance(value, float):
        return 6, struct.pack("<f", value)
    return 8, _text(value)
