"""The exact distribution of the next token at points of a tree, asked of the policy that made them."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from refork.errors import CannotDo
from refork.growing.selector import Candidates
from refork.policies.base import Policy
from refork.tree.tree import Tree
from refork.types import IntArray, token_array

#: One sequence is scored per token of the vocabulary; beyond this that is no longer sensible.
_MOST = 1024

Distributions = tuple[NDArray[np.float64], ...]


def next_distribution(policy: Policy, prefix: IntArray) -> NDArray[np.float64]:
    """Probabilities [vocabulary] of the next token after a prefix, at temperature 1.

    Raises CannotDo where the policy does not score sequences, or its vocabulary is larger than 1,024 tokens.
    """
    card = policy.card
    if not card.can("scores") or card.vocabulary is None or card.vocabulary > _MOST:
        raise CannotDo(
            f"{card.name!r} cannot tell the whole distribution of its next token",
            where="exact coverage",
            hint="entropy='unseen' needs only the log-probs of the sampled tokens",
        )
    sequences = [token_array([*prefix.tolist(), token]) for token in range(card.vocabulary)]
    logs = np.array([float(row[-1]) for row in policy.logprobs(sequences)], dtype=np.float64)
    return np.asarray(np.exp(logs), dtype=np.float64)


def next_distributions(tree: Tree, policy: Policy, known: Candidates) -> Distributions:
    """The law at every candidate, in their order; points with one possible token cost one question too.

    Raises: what :func:`next_distribution` raises.
    """
    points = [
        tree.at(node, None if token < 0 else int(token))
        for node, token in zip(known.node, known.token, strict=True)
    ]
    return tuple(next_distribution(policy, trajectory.tokens) for trajectory in tree.paths(points))
