"""Attention of draft blocks: every slot sees the context before its anchor and its own block, both ways.

Two forms of one distribution. Packed: many anchors of each sequence over that sequence's context, for
training.
Cached: one block per row over keys and values kept from earlier rounds, for drafting. No block is ever
among another's columns, so none can see another.
"""

from __future__ import annotations

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor
from torch.nn import functional as F


def rotate(
    x: Float[Tensor, "*n h s e"], positions: Int[Tensor, "*n s"], frequencies: Float[Tensor, "half"]
) -> Float[Tensor, "*n h s e"]:
    """Queries or keys turned by their absolute positions (rotary embedding, halves as in Llama)."""
    angles = positions[..., None, :, None].float() * frequencies
    cos, sin = angles.cos(), angles.sin()
    low, high = x.float().chunk(2, -1)
    return torch.cat([low * cos - high * sin, high * cos + low * sin], -1).to(x.dtype)


def visible(anchors: Int[Tensor, "s a"], length: int, window: int | None) -> Bool[Tensor, "s a t"]:
    """Context positions 0 .. length - 1 that each anchor's block sees: strictly before it, in its window."""
    places = torch.arange(length, device=anchors.device)
    found = places < anchors[..., None]
    return found if window is None else found & (places >= anchors[..., None] - window)


def attend_packed(
    query: Float[Tensor, "rows h s e"],
    key: Float[Tensor, "rows kv s e"],
    value: Float[Tensor, "rows kv s e"],
    context: tuple[Float[Tensor, "n kv t e"], Float[Tensor, "n kv t e"]],
    visible: Bool[Tensor, "n a t"],
) -> Float[Tensor, "rows h s e"]:
    """Attention of ``a`` blocks in each of n sequences (rows = n a), ``visible`` as :func:`visible` gives it.

    Memory: rows x h x s x (t + s) scores.
    """
    n, a, t = visible.shape
    rows, heads, s, e = query.shape
    kv = key.shape[1]
    tall = heads // kv * s
    folded = query.reshape(rows, kv, tall, e) * e**-0.5
    across = folded.view(n, a, kv, tall, e).transpose(1, 2).reshape(n, kv, a * tall, e)
    before = (across @ context[0].transpose(-1, -2)).view(n, kv, a, tall, t).transpose(1, 2)
    before = before.masked_fill(~visible[:, :, None, None], -torch.inf)
    inside = (folded @ key.transpose(-1, -2)).view(n, a, kv, tall, s)
    # A block's own slots are never masked, so no row is all -inf, also where its anchor has no context.
    weights = torch.softmax(torch.cat([before, inside], -1).float(), -1).to(value.dtype)
    early = weights[..., :t].transpose(1, 2).reshape(n, kv, a * tall, t) @ context[1]
    late = weights[..., t:].reshape(rows, kv, tall, s) @ value
    out = early.view(n, kv, a, tall, e).transpose(1, 2).reshape(rows, kv, tall, e) + late
    return out.reshape(rows, heads, s, e)


def attend_cached(
    query: Float[Tensor, "rows h s e"],
    key: Float[Tensor, "rows kv s e"],
    value: Float[Tensor, "rows kv s e"],
    context: tuple[Float[Tensor, "rows kv t e"], Float[Tensor, "rows kv t e"]],
    visible: Bool[Tensor, "rows t"] | None = None,
) -> Float[Tensor, "rows h s e"]:
    """Attention of one block per row over its cached context; ``visible`` None: all of it is seen."""
    rows, heads, s, e = query.shape
    kv = key.shape[1]
    mask = None
    if visible is not None:
        own = torch.ones(rows, s, dtype=torch.bool, device=visible.device)
        mask = torch.cat([visible, own], 1)[:, None, None]
    # Nothing is causal inside a block, so heads that share keys are only more queries.
    folded = query.reshape(rows, kv, heads // kv * s, e)
    found = F.scaled_dot_product_attention(
        folded, torch.cat([context[0], key], 2), torch.cat([context[1], value], 2), attn_mask=mask
    )
    return found.reshape(rows, heads, s, e)
