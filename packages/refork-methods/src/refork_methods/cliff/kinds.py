"""Three kinds of cliff by how sure the policy was and whether it took its first choice. Pure.

Source: arXiv 2606.25524. The entropy there runs over the 20 likeliest tokens and is not renormalised, so it
is a lower bound; here that is said with every value.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import ArrayLike

from refork.errors import BadInput

Kind = Literal["deterministic", "uncertain", "sampled-off", "other"]

TOP_K = 20
#: Entropy of a coin that falls one way in 99 of 100 throws, in nats: 0.0560.
SURE = -0.99 * math.log(0.99) - 0.01 * math.log(0.01)
#: Log-probs this near share a rank.
TIE = 1e-9


@dataclass(frozen=True, slots=True)
class Entropy:
    """Entropy in nats; ``lower_bound`` where only the likeliest tokens were counted."""

    nats: float
    lower_bound: bool


def top_entropy(logprobs: ArrayLike, top_k: int | None = TOP_K, *, full: bool = False) -> Entropy:
    """Entropy over the ``top_k`` likeliest tokens, not renormalised (None: over all that are given).

    ``logprobs`` [k]: natural logs at temperature 1, of the whole vocabulary or of its likeliest tokens.
    ``full`` asks for the entropy of the whole distribution.

    Raises: BadInput where ``full`` is asked of tokens that do not carry the whole probability.
    """
    distribution = np.sort(np.asarray(logprobs))[::-1]
    if not len(distribution) or np.isnan(distribution).any() or distribution[0] > 1e-6:
        raise BadInput("log-probs must be there, at most 0 and not NaN", where="entropy")
    counted = distribution[:top_k]
    # An impossible token adds nothing to the entropy, but 0 * -inf is NaN.
    counted = counted[np.isfinite(counted)]
    whole = bool(np.exp(counted).sum() > 1 - 1e-6)
    if full and not whole:
        raise BadInput(
            f"the {len(counted)} likeliest tokens hold {np.exp(counted).sum():.4f} of the probability: "
            "their entropy is a lower bound, not the entropy",
            where="entropy",
            hint="take the bound (full=False), or give the log-probs of the whole vocabulary",
        )
    # Adding 0.0 turns the -0.0 of a sure token into 0.0.
    return Entropy(float(-(np.exp(counted) * counted).sum()) + 0.0, not whole)


def token_rank(logprobs: ArrayLike, own: float, tie: float = TIE) -> int:
    """Rank of a token with log-prob ``own`` among all, 1 the greedy choice; equals share a rank."""
    return 1 + int((np.asarray(logprobs) > own + tie).sum())


def cliff_kind(entropy: float, rank: int, sure: float = SURE) -> Kind:
    """The kind of a cliff from the entropy before it (nats) and the token's rank.

    ``deterministic``: the policy was sure and took its first choice. ``uncertain``: it was not sure, and
    took it. ``sampled-off``: it was not sure and took another. ``other``: sure, yet another was drawn.
    """
    # Asked this way round, NaN is refused too.
    if rank < 1 or not entropy >= 0:
        raise BadInput(f"entropy {entropy!r} and rank {rank!r} are not possible", where="cliff kind")
    if rank == 1:
        return "deterministic" if entropy <= sure else "uncertain"
    return "sampled-off" if entropy > sure else "other"
