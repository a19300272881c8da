"""Statistics that put both models' activations on one scale: per model and channel, kept inside the model."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
from jaxtyping import Float
from numpy.typing import NDArray

from refork.errors import BadInput

Floats = NDArray[np.float32]


@dataclass(frozen=True, slots=True)
class Normalizer:
    """``z = (x - mean) / scale``, channel by channel: A's channels, then B's; float32 [d_a + d_b] each.

    Raises: BadInput for lengths that differ, values that are not finite, or a scale that is not above 0.
    """

    mean: Floats
    scale: Floats

    def __post_init__(self) -> None:
        if self.mean.ndim != 1 or self.mean.shape != self.scale.shape:
            raise BadInput(
                f"mean {self.mean.shape} and scale {self.scale.shape} must be vectors of one length",
                where="normalizer",
            )
        if not (np.isfinite(self.mean).all() and np.isfinite(self.scale).all() and (self.scale > 0).all()):
            raise BadInput("means must be finite and scales above 0", where="normalizer")

    @staticmethod
    def identity(width: int) -> Normalizer:
        """Statistics that change nothing, for activations that are already on the scale of the weights."""
        return Normalizer(np.zeros(width, np.float32), np.ones(width, np.float32))


def fit_normalizer(
    chunks: Iterable[tuple[Float[Floats, "n a"], Float[Floats, "n b"]]],
) -> Normalizer:
    """Mean and standard deviation of every channel of each model over all chunks, in one pass.

    A channel that never varies keeps the scale 1.

    Raises: BadInput for no rows, or activations that are not finite.
    Source: Chan, Golub and LeVeque, Algorithms for computing the sample variance (1983), for merging;
    arXiv:2606.26474 scales each corpus by itself (its statistics are not stored with its weights), we
    scale all activations together and keep the statistics in the model.
    """
    count, mean, spread = 0, np.zeros(0), np.zeros(0)
    for a, b in chunks:
        x = np.concatenate([a, b], axis=1).astype(np.float64)
        if not len(x):
            continue
        if not np.isfinite(x).all():
            raise BadInput("activations hold values that are not finite", where="normalizer")
        # Chunks are merged by their own means: a running sum of squares would cancel for channels far from 0.
        here, off = x.mean(axis=0), 0.0
        inner = ((x - here) ** 2).sum(axis=0)
        if count == 0:
            count, mean, spread = len(x), here, inner
            continue
        off, total = here - mean, count + len(x)
        spread = spread + inner + off**2 * (count * len(x) / total)
        mean, count = mean + off * (len(x) / total), total
    if count == 0:
        raise BadInput("there are no activations to take statistics of", where="normalizer")
    scale = np.sqrt(spread / count)
    # Rounding leaves a constant channel with a spread that is tiny beside its level, not exactly 0.
    scale = np.where(scale > 1e-7 * np.maximum(1.0, np.abs(mean)), scale, 1.0)
    return Normalizer(mean.astype(np.float32), scale.astype(np.float32))
