"""Which features fire: the k largest of each sample, or the k times batch largest of the batch."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor


@dataclass(frozen=True, slots=True)
class Active:
    """The entries that fire, in row-major order: sample, feature and value, [p] each."""

    rows: Int[Tensor, "p"]
    features: Int[Tensor, "p"]
    values: Float[Tensor, "p"]


def fired(values: Float[Tensor, "n f"], mask: Bool[Tensor, "n f"]) -> Active:
    """The entries of a mask in row-major order."""
    flat = mask.view(-1).nonzero().view(-1)
    size = values.shape[1]
    rows = torch.div(flat, size, rounding_mode="floor")
    return Active(rows, flat - rows * size, values.reshape(-1)[flat])


def top_k(values: Float[Tensor, "n f"], weights: Float[Tensor, "f"] | None, k: int) -> Bool[Tensor, "n f"]:
    """Where each sample's k largest of ``values * weights`` lie; entries of 0 never fire.

    ``values`` are not below 0.
    """
    scores = values if weights is None else values * weights
    found = scores.topk(k, dim=-1, sorted=False)
    mask = torch.zeros_like(values, dtype=torch.bool)
    # topk fills up with zeros where fewer than k are above 0; those must not fire.
    return mask.scatter_(1, found.indices, found.values > 0)


def batch_top_k(
    values: Float[Tensor, "n f"],
    weights: Float[Tensor, "f"] | None,
    count: int,
    guess: float = 0.0,
) -> tuple[Active, float]:
    """The ``count`` largest of ``values * weights`` over the whole batch, and the smallest score kept.

    ``values`` are not below 0; entries of 0 never fire, so fewer may. ``guess`` only makes it faster: a
    score that fewer than ``count`` entries are expected to lie above is looked at no further; if it was
    too high, all entries are looked at again. Of equal scores at the cut the first in row-major order stay.

    Source: arXiv:2504.02922 (scores weighted by decoder norms).
    """
    weight = values.new_ones(values.shape[1]) if weights is None else weights
    found = fired(values, values > guess / weight.clamp_min(1e-30))
    if len(found.rows) < count and guess > 0:
        found = fired(values, values * weight > 0)
    scores = found.values * weight[found.features]
    if len(scores) <= count:
        return found, float(scores.min()) if len(scores) else 0.0
    # One value instead of a sort of the whole batch; ties at it are settled below.
    cut = torch.kthvalue(scores, len(scores) - count + 1).values
    keep = scores >= cut
    extra = int(keep.sum()) - count
    if extra > 0:
        # Entries lie in row-major order, so dropping the last ties is the same choice on every device.
        ties = (scores == cut).nonzero().view(-1)
        keep[ties[len(ties) - extra :]] = False
    return Active(found.rows[keep], found.features[keep], found.values[keep]), float(cut)
