"""Paired activations whose concepts are known: shared ones, and ones that only one model has.

Source: our own.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from jaxtyping import Float
from numpy.typing import NDArray

from refork.errors import BadInput
from refork.types import Json
from refork_methods.crosscoder.model import CrossCoder
from refork_methods.crosscoder.sources import ArrayPairs

Floats = NDArray[np.float32]
Ints = NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class PlantedWorld:
    """Concept directions of both models, unit length [c, d] each; 0 where a model lacks the concept.

    Concepts lie in the order shared, A only, B only. Each is present in a sample with probability ``rate``,
    with a strength uniform in [0.5, 1.5], the same in both models.
    """

    a: Float[Floats, "c d"]
    b: Float[Floats, "c d"]
    shared: int
    a_only: int
    b_only: int
    rate: float

    def sample(self, count: int, seed: int) -> ArrayPairs:
        """Pairs of activations of both models."""
        rng = np.random.default_rng(seed)
        shape = (count, len(self.a))
        strength = (rng.random(shape) < self.rate) * rng.uniform(0.5, 1.5, shape)
        return ArrayPairs(strength.astype(np.float32) @ self.a, strength.astype(np.float32) @ self.b)


def planted_world(
    d: int = 32,
    shared: int = 40,
    a_only: int = 4,
    b_only: int = 4,
    cosine: float = 0.96,
    rate: float = 0.05,
    seed: int = 0,
) -> PlantedWorld:
    """Random concepts; shared ones point alike in both models, with about this cosine.

    Raises: BadInput for a cosine outside [0, 1] or no concepts.
    """
    if not 0 <= cosine <= 1 or min(shared, a_only, b_only) < 0 or shared + a_only + b_only < 1:
        raise BadInput("a planted world needs concepts and a cosine in [0, 1]", where="planted world")
    rng = np.random.default_rng(seed)
    base = _unit(rng.standard_normal((shared, d)))
    turned = _unit(cosine * base + np.sqrt(1 - cosine**2) * _unit(rng.standard_normal((shared, d))))
    only_a, only_b = _unit(rng.standard_normal((a_only, d))), _unit(rng.standard_normal((b_only, d)))
    a = np.concatenate([base, only_a, np.zeros((b_only, d))])
    b = np.concatenate([turned, np.zeros((a_only, d)), only_b])
    return PlantedWorld(a.astype(np.float32), b.astype(np.float32), shared, a_only, b_only, rate)


@dataclass(frozen=True, slots=True)
class Recall:
    """How a crosscoder found a planted world's concepts.

    ``recall``: share of the A-only concepts that some feature with relative norm above 0.9 points along
    (cosine above 0.9 in A). ``captured``: share of the found ones whose feature lies in the A-exclusive
    block; None where there is no such block or nothing was found. ``feature``: the best feature of each
    A-only concept.
    """

    recall: float
    captured: float | None
    fve: float
    l0: float
    feature: Ints
    cosine: Floats
    relative_norm: Floats

    def to_json(self) -> Json:
        """As plain JSON."""
        return {
            "recall": self.recall,
            "captured": self.captured,
            "fve": self.fve,
            "l0": self.l0,
            "feature": self.feature.tolist(),
            "cosine": [round(float(c), 4) for c in self.cosine],
            "relative_norm": [round(float(c), 4) for c in self.relative_norm],
        }


@torch.no_grad()
def recall(model: CrossCoder, world: PlantedWorld, held_out: ArrayPairs) -> Recall:
    """Recall of A-only concepts, and fraction of variance explained on held-out pairs."""
    from refork_methods.crosscoder.classes import fraction_of_variance, relative_norm

    directions = model.directions("A").cpu().numpy()
    lengths = np.linalg.norm(directions, axis=1)
    unit = directions / np.maximum(lengths, 1e-12)[:, None]
    wanted = world.a[world.shared : world.shared + world.a_only]
    share = relative_norm(model)
    fits = (wanted @ unit.T) * (share > 0.9)
    best = fits.argmax(axis=1)
    cosine = fits[np.arange(len(wanted)), best]
    found = cosine > 0.9
    block = model.blocks["A"]
    inside = (best >= block.start) & (best < block.stop)
    a, b = (torch.from_numpy(x) for x in held_out.chunk(0))
    values = model.encode(a, b)
    return Recall(
        recall=float(found.mean()),
        captured=float(inside[found].mean()) if found.any() and block.stop > block.start else None,
        fve=fraction_of_variance(model, held_out),
        l0=float((values > 0).sum(dim=1).float().mean()),
        feature=best.astype(np.int64),
        cosine=cosine.astype(np.float32),
        relative_norm=share[best].astype(np.float32),
    )


def _unit(rows: NDArray[np.float64]) -> NDArray[np.float64]:
    return np.asarray(rows / np.linalg.norm(rows, axis=1, keepdims=True))
