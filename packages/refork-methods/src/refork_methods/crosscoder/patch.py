"""Reconstruction patch: a model goes on from what the crosscoder says of its state instead of the state."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

import torch
from jaxtyping import Float
from torch import Tensor

from refork.decoding.states import Edit, Layer
from refork.errors import BadInput, CannotDo
from refork_methods.crosscoder.model import CrossCoder
from refork_methods.crosscoder.normalizer import Normalizer
from refork_methods.crosscoder.paired import Pairs, delta_edit, trained_layer
from refork_methods.crosscoder.partition import Side


@torch.no_grad()
def reconstruct(
    model: CrossCoder,
    pairs: Pairs,
    which: Side = "A",
    *,
    scaled: Sequence[int] = (),
    alpha: float = 1.0,
) -> Float[Tensor, "n d"]:
    """A model's states rebuilt from the features of both, raw units.

    Features in ``scaled`` are multiplied by ``alpha`` before they are decoded.

    Raises:
        BadInput: a feature that does not exist, states that do not fit, a model without statistics.
    """
    values = model.encode(pairs.a, pairs.b)
    if scaled:
        check_features(model, scaled)
        values = values.clone()
        values[:, list(scaled)] *= alpha
    both = model.decode(values)
    return both[0 if which == "A" else 1]


def patch_edit(
    model: CrossCoder,
    pairs: Pairs,
    which: Side = "A",
    *,
    layer: Layer | None = None,
    phase: Literal["prefill", "decode"] = "prefill",
    scaled: Sequence[int] = (),
    alpha: float = 1.0,
) -> Edit:
    """The edit that replaces prompts' states by their reconstruction, once, at prefill.

    Where, is what the pairs were read at: the last token of each prompt, as in the paper, or all of them.
    ``scaled`` and ``alpha`` as in :func:`reconstruct`.

    Raises:
        BadInput: another layer than the crosscoder's, features or states that do not fit.
        CannotDo: while tokens are drawn, since the other model has no state for them.

    Source: arXiv:2606.26474, reconstruction patch; there the states are fed in raw although the weights were
    trained on standardised ones. Here raw units go in and come out (see :func:`mismatched` for theirs).
    """
    if phase == "decode":
        raise CannotDo(
            "features of a token need both models' states of it, and while one model draws, the other "
            "has not read the token",
            where="crosscoder patch",
            hint="patch at prefill, or replace a projection, which needs one model only: projection_edit",
        )
    where = trained_layer(model, which, layer)
    rebuilt = reconstruct(model, pairs, which, scaled=scaled, alpha=alpha)
    return delta_edit(where, pairs, which, rebuilt - pairs.of(which), "patch")


@torch.no_grad()
def mismatched(model: CrossCoder) -> CrossCoder:
    """The same weights without their normaliser: what a patch does when units are forgotten, as an ablation.

    Source: arXiv:2606.26474, released evaluation code (our reading of it).
    """
    copy = CrossCoder(
        model.d_in, model.dict_size, model.k, model.activation, model.partition,
        scoring=model.scoring, origin=model.origin,
    )  # fmt: skip
    # Before load_state_dict, which refuses a buffer of another length than the fresh model's empty one.
    copy.frozen = model.frozen.clone()
    copy.load_state_dict(model.state_dict())
    copy.set_normalizer(Normalizer.identity(sum(model.d_in)))
    return copy


def check_features(model: CrossCoder, features: Sequence[int]) -> None:
    """Raise BadInput for no features, or one that the dictionary does not have."""
    if not len(features):
        raise BadInput("no feature is chosen", where="crosscoder")
    for feature in features:
        if not 0 <= feature < model.dict_size:
            raise BadInput(
                f"there is no feature {feature}",
                where="crosscoder",
                hint=f"features are 0 to {model.dict_size - 1}",
            )
