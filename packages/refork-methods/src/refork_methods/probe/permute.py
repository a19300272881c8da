"""Labels shuffled between prompts, as blocks."""

from __future__ import annotations

import numpy as np
from jaxtyping import Int
from numpy.typing import NDArray

from refork.errors import BadInput
from refork.stats.results import Array


def permutations_of(
    labels: Int[Array, "rows"], owners: Int[Array, "rows"], count: int, rng: np.random.Generator
) -> Int[Array, "count rows"]:
    """``count`` shuffled copies of the labels, each prompt taking over the whole row of labels of another.

    Prompts change labels only with prompts of as many rows; with one row each this is a free shuffle.

    Raises: BadInput where more than half of the rows belong to prompts that nobody could change with.
    """
    blocks: dict[int, list[NDArray[np.int64]]] = {}
    order = np.argsort(owners, kind="stable")
    for rows in np.split(order, np.flatnonzero(np.diff(owners[order])) + 1):
        blocks.setdefault(len(rows), []).append(rows)
    fixed = sum(size for size, group in blocks.items() if len(group) == 1)
    if 2 * fixed > len(labels):
        raise BadInput(
            "prompts have so different numbers of rollouts that labels cannot be shuffled between them",
            where="permutation null",
            hint="take one rollout, or equally many, of every prompt",
        )
    found = np.repeat(labels[None], count, axis=0)
    for group in blocks.values():
        rows = np.stack(group)
        for copy in found:
            copy[rows] = labels[rows[rng.permutation(len(rows))]]
    return found
