"""Directions of hidden states: arrays in, arrays out."""

from __future__ import annotations

import numpy as np
from jaxtyping import Float

from refork.errors import BadInput
from refork.types import FloatArray


def difference_of_means(
    positive: Float[FloatArray, "n width"], negative: Float[FloatArray, "m width"]
) -> Float[FloatArray, " width"]:
    """The mean of one set of states minus the mean of another, in the units of the states.

    Raises:
        BadInput: an empty set, widths that differ, or equal means.

    Source: arXiv:2406.11717, section 2.3; not normalised here, so that scale 1 moves one mean to the other.
    """
    if positive.ndim != 2 or negative.ndim != 2 or positive.shape[1] != negative.shape[1]:
        raise BadInput(f"states of shapes {positive.shape} and {negative.shape}", hint="both are [n, width]")
    if not len(positive) or not len(negative):
        raise BadInput("a mean of no states", hint="give states of both kinds")
    # float64: the two means may be close, and float32 sums would lose the digits in which they differ.
    difference = positive.mean(axis=0, dtype=np.float64) - negative.mean(axis=0, dtype=np.float64)
    if not np.linalg.norm(difference):
        raise BadInput("both means are equal, so there is no direction between them")
    return np.asarray(difference, dtype=np.float32)


def random_directions(
    count: int, like: Float[FloatArray, " width"], seed: int = 0
) -> Float[FloatArray, "count width"]:
    """Directions drawn evenly from the sphere, each as long as ``like``: the control of every steering."""
    drawn = np.random.default_rng(seed).normal(size=(count, len(like)))
    drawn = drawn * np.linalg.norm(like) / np.linalg.norm(drawn, axis=1, keepdims=True)
    return np.asarray(drawn, dtype=np.float32).reshape(count, -1)
