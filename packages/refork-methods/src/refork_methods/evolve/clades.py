"""Clades of an archive: a node together with everything that was bred from it.

A node is judged by its clade, because a workspace is worth what its descendants become. Counts are pooled
into new arrays at every call: pooling in place counts outcomes twice when it is done twice.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from jaxtyping import Bool, Float, Int
from numpy.typing import NDArray

from refork.errors import BadInput
from refork.stats.results import Array
from refork_methods.evolve.belief import counts


def check_parents(parents: Sequence[int]) -> NDArray[np.int64]:
    """Parents as int64 [nodes], -1 for the root, which comes first; raises BadInput for anything else."""
    array = np.asarray(parents, dtype=np.int64).reshape(-1)
    if array.size == 0 or array[0] != -1:
        raise BadInput("the archive's first node is its root; its parent is -1")
    late = (array[1:] < 0) | (array[1:] >= np.arange(1, array.size))
    if late.any():
        node = int(np.flatnonzero(late)[0]) + 1
        raise BadInput(
            f"node {node} names parent {array[node]}; a parent comes before its children, and one root is all"
        )
    return array


def clade_counts(
    parents: Sequence[int], successes: Int[Array, "nodes"], failures: Int[Array, "nodes"]
) -> tuple[Int[Array, "nodes"], Int[Array, "nodes"]]:
    """Successes and failures of each node's clade: its own and those of all its descendants.

    Raises: BadInput where a parent does not come before its child, or counts are none or of another length.
    Source: arXiv:2606.26294 (CMP), after arXiv:2510.21614; pooled into fresh arrays, which the latter's
    code does not.
    """
    up = check_parents(parents)
    pooled = np.stack([counts(successes, "successes"), counts(failures, "failures")])
    if pooled.shape[1:] != up.shape:
        raise BadInput(f"{pooled.shape[1]} counts for {up.size} nodes")
    # Plain integers: an array's single elements cost twenty times as much to touch.
    above, columns = up.tolist(), pooled.tolist()
    for column in columns:
        # Backwards: a child's count is complete before it goes to its parent, which comes before it.
        for node in range(up.size - 1, 0, -1):
            column[above[node]] += column[node]
    found = np.array(columns, dtype=np.int64)
    return found[0], found[1]


def metaproductivity(
    parents: Sequence[int], successes: Int[Array, "nodes"], failures: Int[Array, "nodes"]
) -> Float[Array, "nodes"]:
    """Share of successes in each node's clade (CMP); NaN where nothing of the clade was measured.

    Source: arXiv:2606.26294.
    """
    good, bad = clade_counts(parents, successes, failures)
    total = (good + bad).astype(np.float64)
    found = np.full(total.shape, np.nan)
    np.divide(good, total, out=found, where=total > 0)
    return found


def thompson(
    parents: Sequence[int],
    successes: Int[Array, "nodes"],
    failures: Int[Array, "nodes"],
    rng: np.random.Generator,
    allowed: Bool[Array, "nodes"] | None = None,
) -> int:
    """The node with the largest draw of Beta(1 + S, 1 + F) over its clade's counts.

    ``allowed`` leaves nodes out of the choice; their outcomes still count for their ancestors, and a draw
    is spent on every node, so that leaving one out moves no other node's draw.

    Raises: BadInput where no node is allowed.
    Source: arXiv:2606.26294, Algorithm 1.
    """
    good, bad = clade_counts(parents, successes, failures)
    draws = rng.beta(1.0 + good, 1.0 + bad)
    if allowed is not None:
        if np.shape(allowed) != draws.shape or not np.any(allowed):
            raise BadInput("no node may be chosen", hint="name at least one allowed node")
        # Below every draw of a Beta.
        draws = np.where(allowed, draws, -1.0)
    return int(draws.argmax())
