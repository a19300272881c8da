"""Steering by single features: more or less of what one feature adds to a model's own state."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from jaxtyping import Float
from torch import Tensor

from refork.decoding.states import Edit, Layer
from refork.errors import BadInput, CannotDo
from refork_methods.crosscoder.model import CrossCoder
from refork_methods.crosscoder.paired import Pairs, delta_edit, trained_layer
from refork_methods.crosscoder.partition import Side
from refork_methods.crosscoder.patch import check_features
from refork_methods.steer import ClampDirection


@torch.no_grad()
def steering_delta(
    values: Float[Tensor, "n s"], directions: Float[Tensor, "s d"], alpha: float
) -> Float[Tensor, "n d"]:
    """What scaling features by ``alpha`` adds to a state: ``sum_i (alpha - 1) f_i d_i``.

    ``alpha`` 1 adds exactly 0 and 0 takes the features out. ``values`` are after TopK, so a feature that
    did not fire on a row adds nothing there.

    Source: arXiv:2606.26474, targeted steering.
    """
    return (alpha - 1.0) * (values @ directions)


@torch.no_grad()
def clamp_delta(
    values: Float[Tensor, "n s"], directions: Float[Tensor, "s d"], level: float
) -> Float[Tensor, "n d"]:
    """What setting features to ``level`` adds to a state: ``sum_i (level - f_i) d_i``, fired or not."""
    return (level - values) @ directions


def check_writes(model: CrossCoder, features: Sequence[int], which: Side) -> None:
    """Refuse features that cannot change a model: an effect of 0.0 would be an identity, not a finding.

    Raises:
        BadInput: no such feature.
        CannotDo: the decoder of one is zero for this model.
    """
    check_features(model, features)
    norms = model.directions(which).detach().norm(dim=1)
    silent = [feature for feature in features if float(norms[feature]) == 0.0]
    if silent:
        block = next(name for name, at in model.blocks.items() if at.start <= silent[0] < at.stop)
        other = "B" if which == "A" else "A"
        why = (
            f"it is in the block exclusive to {block}"
            if block == other
            else f"the crosscoder learned nothing for {which} there"
        )
        raise CannotDo(
            f"feature {silent[0]} writes nothing into model {which}: {why}, so steering it changes no token, "
            "whatever it means",
            where="crosscoder steer",
            hint=f"steer {other} with it, or choose a feature whose decoder for {which} is not zero",
        )


@torch.no_grad()
def steer_edit(
    model: CrossCoder,
    pairs: Pairs,
    features: Sequence[int],
    which: Side = "A",
    *,
    alpha: float | None = None,
    clamp: float | None = None,
    layer: Layer | None = None,
) -> Edit:
    """The edit that scales features by ``alpha``, or sets them to ``clamp``, at prefill.

    Added to the state itself, so the reconstruction's error plays no part. Positions are those of the pairs.

    Raises:
        BadInput: not exactly one of ``alpha`` and ``clamp``, another layer than the crosscoder's, no such
        feature. CannotDo: a feature that writes nothing into this model.

    Source: arXiv:2606.26474, targeted steering and its clamp variant.
    """
    if (alpha is None) == (clamp is None):
        raise BadInput("give exactly one of alpha and clamp", where="crosscoder steer")
    where = trained_layer(model, which, layer)
    check_writes(model, features, which)
    chosen = list(features)
    values = model.encode(pairs.a, pairs.b)[:, chosen]
    directions = model.directions(which)[chosen]
    if alpha is not None:
        return delta_edit(where, pairs, which, steering_delta(values, directions, alpha), f"steer x{alpha:g}")
    assert clamp is not None
    return delta_edit(where, pairs, which, clamp_delta(values, directions, clamp), f"clamp {clamp:g}")


def projection_edit(
    model: CrossCoder, feature: int, value: float, which: Side = "A", *, layer: Layer | None = None
) -> Edit:
    """The edit that sets the projection on a feature's decoder to ``value``, at every position and phase.

    ``value`` is in units of the raw states along the normed direction. Needs no states of the other model.

    Raises:
        BadInput, CannotDo: as :func:`steer_edit`.

    Source: arXiv:2606.26474, projection replacement.
    """
    where = trained_layer(model, which, layer)
    check_writes(model, [feature], which)
    direction = model.directions(which)[feature].detach().cpu().numpy()
    return ClampDirection(where, direction, value).edit()
