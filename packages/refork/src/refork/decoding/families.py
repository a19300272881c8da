"""Attention layers that do not go through transformers' attention interface, and what stands in for them.

Each stand-in is the layer's own forward up to its queries, keys and values, which are handed to the
decoder's attention. It lies on the instance while a pass runs, as the packed linear layers do; the model is
left as it was.
"""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, final

import torch
from torch import Tensor, nn

from refork.decoding import attention
from refork.decoding.alone import Bias
from refork.decoding.attention import How, Rule
from refork.errors import CannotDo

Instead = tuple[nn.Module, str, Callable[..., Any]]
"""A module, the name of one of its methods, and what runs in its place."""


@final
class StandIns:
    """What runs in place of some modules' own methods during a pass."""

    def __init__(self, model: nn.Module) -> None:
        self._found: list[Instead] = []
        self.switch: int | None = None
        """The longest context that is computed as a short one, where longer ones are computed otherwise."""
        biases: dict[str, Bias] = {}
        for module in model.modules():
            make = _FAMILIES.get(type(module).__name__)
            # The name alone may be anybody's; the module it comes from may not.
            if make is not None and type(module).__module__.startswith("transformers.models."):
                self._found += [(module, name, method) for name, method in make(module, biases).items()]
            elif getattr(module, "rope_type", None) == "longrope":
                self._long_context(module)
        self.by_place = any(type(module).__name__ in _PLACELESS for module, _, _ in self._found)
        """Whether attention itself adds what depends on positions, so that the model asks for none."""

    def _long_context(self, module: Any) -> None:
        """Rotary frequencies of one set for contexts up to a length, and of another for longer ones.

        The model chooses by the furthest position of a whole batch. Here every row has its own context.
        Classes that choose in another way are left as they are, and so refused when they are tried.
        """
        wrapped = getattr(type(module).forward, "__wrapped__", None)
        # Decorators take on the name of what they decorate; their code does not.
        code = getattr(wrapped, "__code__", None)
        if code is None or code.co_qualname != "dynamic_rope_update.<locals>.wrapper":
            return
        from transformers.modeling_rope_utils import ROPE_INIT_FUNCTIONS

        switch = int(module.config.rope_parameters["original_max_position_embeddings"])
        if self.switch not in (None, switch):
            raise CannotDo("its rotary frequencies change at two lengths")
        self.switch = switch
        plain = inspect.unwrap(type(module).forward)
        short = module.original_inv_freq
        # As the model itself has it: the scale of either set is the one of the module.
        stretched, _ = ROPE_INIT_FUNCTIONS["longrope"](module.config, short.device, seq_len=switch + 1)

        def forward(x: Tensor, position_ids: Tensor) -> Any:
            before = module.inv_freq
            try:
                module.inv_freq = short.to(x.device)
                near = plain(module, x, position_ids)
                module.inv_freq = stretched.to(x.device)
                far = plain(module, x, position_ids)
            finally:
                module.inv_freq = before
            step = attention.current()
            beyond = step.positions >= switch if step.beyond is None else step.beyond
            return tuple(torch.where(beyond[:, None], b, a) for a, b in zip(near, far, strict=True))

        self._found.append((module, "forward", forward))

    @contextmanager
    def attached(self) -> Iterator[None]:
        """While inside, they run."""
        for module, name, method in self._found:
            module.__dict__[name] = method
        try:
            yield
        finally:
            for module, name, _ in self._found:
                module.__dict__.pop(name, None)


def _rule(mask: Any, module: nn.Module) -> Rule:
    if not isinstance(mask, Rule):
        raise CannotDo(f"{type(module).__name__} attends with a mask of its own making")
    return mask


def _falcon(module: Any, biases: dict[str, Bias]) -> Mapping[str, Callable[..., Any]]:
    """Falcon: rotary or ALiBi; one key head for all, one for some heads, or one for each."""
    from transformers.models.falcon.modeling_falcon import apply_rotary_pos_emb, build_alibi_tensor

    bias = _once(biases, "falcon", lambda: _falcon_bias(module, build_alibi_tensor))
    shared = module.num_heads // module.num_kv_heads if module.new_decoder_architecture else 1

    def forward(
        hidden_states: Tensor,
        alibi: Tensor | None,
        attention_mask: Any,
        position_embeddings: Any = None,
        **_: Any,
    ) -> tuple[Tensor, None]:
        parts = module._split_heads(module.query_key_value(hidden_states))
        query, key, value = (part.transpose(1, 2) for part in parts)
        # The newer architecture writes each key head once for every query head that reads it.
        key, value = key[:, ::shared], value[:, ::shared]
        if alibi is None:
            query, key = apply_rotary_pos_emb(query, key, *position_embeddings)
        how = How(_rule(attention_mask, module), bias=None if alibi is None else bias)
        heads = query, key, value
        found = attention.attend(module, module.layer_idx, heads, module.inv_norm_factor, how)
        return module.dense(found.flatten(2)), None

    return {"forward": forward}


def _falcon_bias(module: Any, build: Callable[..., Tensor]) -> Bias:
    """ALiBi as Falcon has it: products of slopes and positions in bfloat16, then scaled as the scores are."""
    device, heads = module.dense.weight.device, module.num_heads
    slopes = build(torch.ones((1, 2), dtype=torch.long, device=device), heads, torch.float32)[:, 0, 1]
    slopes = slopes.bfloat16()
    scale = math.sqrt(module.head_dim)

    def bias(columns: Tensor, _: Tensor) -> Tensor:
        return (slopes[:, None, None] * columns).float() / scale

    return bias


def _bloom(module: Any, biases: dict[str, Bias]) -> Mapping[str, Callable[..., Any]]:
    """BLOOM: ALiBi."""
    from transformers.models.bloom.modeling_bloom import _get_alibi_slopes

    if module.pretraining_tp > 1 and module.slow_but_exact:
        raise CannotDo("its products are summed in slices (slow_but_exact)")
    slopes = _get_alibi_slopes(module.num_heads, module.dense.weight.device)
    bias = _once(biases, "bloom", lambda: lambda columns, _: slopes[:, None, None] * columns)

    def forward(
        hidden_states: Tensor, residual: Tensor, alibi: Tensor, attention_mask: Any, **_: Any
    ) -> tuple[Tensor, None]:
        heads = module._reshape(module.query_key_value(hidden_states))
        how = How(_rule(attention_mask, module), bias=bias)
        found = attention.attend(module, module.layer_idx, heads, module.inv_norm_factor, how)
        return residual + module.dense(found.flatten(2)), None

    return {"forward": forward}


def _mpt(module: Any, biases: dict[str, Bias]) -> Mapping[str, Callable[..., Any]]:
    """MPT: ALiBi, counted from the query."""
    from transformers.models.mpt.modeling_mpt import build_mpt_alibi_tensor

    device = module.out_proj.weight.device
    # Of two positions the library's table holds -1 and 0 times the slope.
    slopes: Tensor = -build_mpt_alibi_tensor(module.n_heads, 2, device=device)[:, 0, 0]

    def relative(columns: Tensor, positions: Tensor) -> Tensor:
        return slopes[:, None, None] * (columns - positions[:, None])

    bias = _once(biases, "mpt", lambda: relative)

    def forward(
        hidden_states: Tensor, position_bias: Tensor | None, attention_mask: Any = None, **_: Any
    ) -> tuple[Tensor, None]:
        mixed = module.Wqkv(hidden_states)
        if module.clip_qkv:
            mixed = mixed.clamp(min=-module.clip_qkv, max=module.clip_qkv)
        parts = mixed.view(*mixed.shape[:2], 3, module.n_heads, module.head_dim).permute(2, 0, 3, 1, 4)
        heads = parts[0], parts[1], parts[2]
        how = How(_rule(attention_mask, module), bias=None if position_bias is None else bias)
        found = attention.attend(module, module.layer_idx, heads, module.softmax_scale, how)
        return module.out_proj(found.flatten(2)), None

    return {"forward": forward}


def _inner(scale: Callable[[Any], float], window: Callable[[Any], int | None]) -> Callable[..., Any]:
    """GPT-J, CodeGen and GPT-Neo: only ``_attn`` stands between a layer's heads and its output."""

    def make(module: Any, _: Any) -> Mapping[str, Callable[..., Any]]:
        layer = module.layer_idx if hasattr(module, "layer_idx") else module.layer_id
        size, width = scale(module), window(module)

        def attn(
            query: Tensor, key: Tensor, value: Tensor, attention_mask: Any = None
        ) -> tuple[Tensor, None]:
            rule = _rule(attention_mask, module)
            if width is not None:
                rule = Rule(width if rule.window is None else min(width, rule.window), rule.chunk)
            heads = query.to(value.dtype), key.to(value.dtype), value
            return attention.attend(module, layer, heads, size, How(rule)).transpose(1, 2), None

        return {"_attn": attn}

    return make


@final
class _Positions:
    """What a layer asks how many tokens came before those of a pass; it keeps nothing."""

    def get_seq_length(self, _: int = 0) -> Tensor:
        """How far each token of the pass is behind its row: a layer adds the rows to it."""
        found = attention.current().positions
        return found - torch.arange(len(found), device=found.device)

    def update(self, key: Tensor, value: Tensor, *_: Any) -> tuple[Tensor, Tensor]:
        """The keys and values of the pass themselves."""
        return key, value


def _llama4(module: Any, _: dict[str, Bias]) -> Mapping[str, Callable[..., Any]]:
    """Llama 4: layers without rotary positions scale their queries by place, which they count in rows."""
    if not module.attn_temperature_tuning or module.use_rope:
        return {}

    def forward(*args: Any, **given: Any) -> Any:
        return type(module).forward(module, *args, **{**given, "past_key_values": _Positions()})

    return {"forward": forward}


def _once(biases: dict[str, Bias], name: str, make: Callable[[], Bias]) -> Bias:
    """One bias for all layers of a model, so that a pass computes it once."""
    if name not in biases:
        biases[name] = make()
    return biases[name]


_FAMILIES: dict[str, Callable[[Any, dict[str, Bias]], Mapping[str, Callable[..., Any]]]] = {
    "FalconAttention": _falcon,
    "BloomAttention": _bloom,
    "MptAttention": _mpt,
    "Llama4TextAttention": _llama4,
    "GPTJAttention": _inner(lambda m: 1 / m.scale_attn, lambda _: None),
    "CodeGenAttention": _inner(lambda m: 1 / m.scale_attn, lambda _: None),
    "GPTNeoSelfAttention": _inner(
        lambda _: 1.0, lambda m: m.config.window_size if m.attention_type == "local" else None
    ),
}

_PLACELESS = frozenset({"BloomAttention", "MptAttention"})
