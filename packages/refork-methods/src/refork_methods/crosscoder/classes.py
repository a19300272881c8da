"""Whose a feature is: relative decoder norm, and latent scaling, which tests what the norm says."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

import numpy as np
import torch
from jaxtyping import Float
from numpy.typing import NDArray
from torch import Tensor

from refork.errors import BadInput
from refork_methods.crosscoder.model import CrossCoder
from refork_methods.crosscoder.partition import Side
from refork_methods.crosscoder.sources import Source

Floats = NDArray[np.float64]
Class = Literal["A only", "B only", "shared"]

#: A relative norm above the one is A's alone, below the other B's alone.
A_ONLY, B_ONLY = 0.9, 0.1


def relative_norm(model: CrossCoder) -> Float[Floats, "f"]:
    """``|W_dec[A]| / (|W_dec[A]| + |W_dec[B]|)`` of each feature; NaN for one that writes nothing.

    On the normaliser's scale: a model with larger activations is not thereby richer.

    Source: the sparse crosscoders of Lindsey et al. (Transformer Circuits, 2024).
    """
    norms = model.decoder_norms().double().cpu().numpy()
    total = norms.sum(axis=1)
    with np.errstate(invalid="ignore"):
        return np.asarray(np.where(total > 0, norms[:, 0] / total, np.nan))


def norm_classes(share: Float[Floats, "f"], a_only: float = A_ONLY, b_only: float = B_ONLY) -> list[Class]:
    """Class of each feature by its relative norm, ``shared`` where that is NaN.

    Raises: BadInput for borders the wrong way round.
    """
    if not 0 <= b_only < a_only <= 1:
        raise BadInput(f"the borders {b_only:g} and {a_only:g} are no split of [0, 1]", where="classes")
    return ["A only" if r > a_only else "B only" if r < b_only else "shared" for r in share.tolist()]


@dataclass(frozen=True, slots=True)
class LatentScaling:
    """How much of each model's activations a feature explains, as the best factor b on what it writes.

    All are taken along the feature's decoder of one model (``which``), so that a feature the other model
    carries too shows there. ``error_a`` [f]: b fitted to A's error with this feature taken out of the
    reconstruction; ``rebuilt_a``: fitted to A's reconstruction; ``error_b`` and ``rebuilt_b``: to B's. NaN
    where the feature never fires or writes nothing.
    """

    error_a: Floats
    error_b: Floats
    rebuilt_a: Floats
    rebuilt_b: Floats

    def ratio(self, target: Literal["error", "rebuilt"] = "error", which: Side = "A") -> Float[Floats, "f"]:
        """B of the other model over b of ``which``: near 0 for what one carries, near 1 for what both do."""
        a, b = (self.error_a, self.error_b) if target == "error" else (self.rebuilt_a, self.rebuilt_b)
        own, other = (a, b) if which == "A" else (b, a)
        with np.errstate(invalid="ignore", divide="ignore"):
            return np.asarray(np.where(np.abs(own) > 1e-12, other / own, np.nan))


@torch.no_grad()
def latent_scaling(model: CrossCoder, source: Source, which: Side = "A") -> LatentScaling:
    """Latent scaling of every feature along its decoder of one model, over all pairs of a source.

    Raises: BadInput where widths differ: directions of one model then mean nothing in the other.
    """
    if model.d_in[0] != model.d_in[1]:
        raise BadInput(
            f"latent scaling compares one direction in both models; their widths are {model.d_in}",
            where="latent scaling",
        )
    size = model.dict_size
    direction = model.W_dec[:, model.side(which)].double()
    weight = torch.zeros(size, dtype=torch.float64)
    over = {name: torch.zeros(size, dtype=torch.float64) for name in ("ea", "eb", "ra", "rb")}
    for z, values in encoded_chunks(model, source):
        f, rebuilt = values.double(), (values @ model.W_dec).double()
        weight += (f**2).sum(dim=0)
        for name, side in (("a", "A"), ("b", "B")):
            at = model.side(side)  # type: ignore[arg-type]
            written = rebuilt[:, at]
            error = z[:, at].double() - model.b_dec[at].double() - written
            own = ((f**2).sum(dim=0)) * (model.W_dec[:, at].double() * direction).sum(dim=1)
            over["r" + name] += ((f.T @ written) * direction).sum(dim=1)
            # Taking feature i out of the reconstruction adds f_i d_i back to the error.
            over["e" + name] += ((f.T @ error) * direction).sum(dim=1) + own
    below = (weight * (direction**2).sum(dim=1)).numpy()
    return LatentScaling(*(_ratio(over[n].numpy(), below) for n in ("ea", "eb", "ra", "rb")))


@torch.no_grad()
def fraction_of_variance(model: CrossCoder, source: Source) -> float:
    """``1 - squared error / squared deviation from the channel means``, over both models' channels.

    On the normaliser's scale, where every channel counts alike.
    """
    error, count = 0.0, 0
    total, square = torch.zeros(sum(model.d_in), dtype=torch.float64), 0.0
    for z, values in encoded_chunks(model, source):
        error += float((z - values @ model.W_dec - model.b_dec).double().square().sum())
        total += z.double().sum(dim=0)
        square += float(z.double().square().sum())
        count += len(z)
    spread = square - float((total**2).sum()) / count
    return 1 - error / spread


@torch.no_grad()
def encoded_chunks(model: CrossCoder, source: Source, rows: int = 4_096) -> Iterator[tuple[Tensor, Tensor]]:
    """Pairs on the normaliser's scale and their feature values, at most ``rows`` at a time."""
    for which in range(len(source.sizes)):
        a, b = (torch.from_numpy(np.asarray(x, dtype=np.float32)) for x in source.chunk(which))
        for start in range(0, len(a), rows):
            part = a[start : start + rows], b[start : start + rows]
            yield model.normalize(*part), model.encode(*part)


def _ratio(over: Floats, below: Floats) -> Floats:
    with np.errstate(invalid="ignore", divide="ignore"):
        return np.asarray(np.where(below > 0, over / below, np.nan))
