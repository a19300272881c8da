"""Where blocks begin: anchors among supervised tokens, and which positions after them are learned.

Source: arXiv:2607.05147 and its code: random anchors whose own and next token are supervised, sorted; what
is learned of a block is the contiguous supervised beginning of it.
"""

from __future__ import annotations

import numpy as np
from jaxtyping import Bool, Int

from refork.errors import BadInput


def possible_anchors(supervised: Bool[np.ndarray, "n"]) -> Int[np.ndarray, "a"]:
    """Positions whose own and next token are both supervised."""
    return np.flatnonzero(supervised[:-1] & supervised[1:])


def sample_anchors(
    supervised: Bool[np.ndarray, "n"], count: int, rng: np.random.Generator
) -> Int[np.ndarray, "a"]:
    """At most ``count`` of the possible anchors, without repetition, sorted."""
    if count < 1:
        raise BadInput(f"{count} anchors; it must be at least 1", where="anchors")
    able = possible_anchors(supervised)
    if len(able) <= count:
        return able
    return np.sort(rng.choice(able, size=count, replace=False))


def block_mask(
    supervised: Bool[np.ndarray, "n"], anchors: Int[np.ndarray, "a"], block: int
) -> Bool[np.ndarray, "a g"]:
    """Which of the ``block`` tokens after each anchor are learned: up to the first that is not supervised."""
    places = anchors[:, None] + np.arange(1, block + 1)
    inside = places < len(supervised)
    found = inside & supervised[np.minimum(places, len(supervised) - 1)]
    return np.logical_and.accumulate(found, axis=1)


def block_tokens(
    tokens: Int[np.ndarray, "n"], anchors: Int[np.ndarray, "a"], block: int
) -> Int[np.ndarray, "a width"]:
    """The anchor and the ``block`` tokens after it, [a, block + 1]; beyond the end the last token again.

    Teacher forcing: the token before position k (from 1) is column k - 1, the one that is learned column k.
    """
    places = anchors[:, None] + np.arange(block + 1)
    return tokens[np.minimum(places, len(tokens) - 1)].astype(np.int64)
