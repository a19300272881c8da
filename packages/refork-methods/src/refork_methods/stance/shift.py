"""The curve that a constant added to the refusal logit traces: attack success against over-refusal.

A prompt that is refused with chance q is refused with ``sigmoid(logit q + c)`` after a shift by c. Every c
gives one point: attack success ``1 - mean`` over harmful prompts, over-refusal the mean over benign ones.
With logistic noise e, refusing is ``logit q + e > -c``: the curve is the ROC curve of the score ``logit q +
e``. So a shift moves along one curve and keeps its area, which has a closed form.

Chances are only seen as k refusals of n answers. Put in directly, 0 of n could never be shifted, and every
other count would bend the curve; so the distribution of q in each pool is estimated first, as the mixture of
binomials that makes the counts likeliest.

Source: the plane is arXiv 2606.25013's; the curve, its area and the estimate are our own.
"""

from __future__ import annotations

from typing import Final

import numpy as np
from jaxtyping import Float, Shaped
from numpy.typing import NDArray

from refork.errors import BadInput
from refork.stats.mixture import binomial_likelihood, mixture_distributions
from refork.stats.results import Array

Floats = NDArray[np.float64]

# The ends are finite, so that a prompt that never refused can still be shifted.
#: Logits at which the distribution of q may have mass.
GRID: Final = np.linspace(-9.0, 9.0, 73)
#: Shifts that draw a curve from end to end.
SHIFTS: Final = np.linspace(-16.0, 16.0, 321)


def shifted(q: Shaped[Array, "prompts"], shift: float) -> Float[Array, "prompts"]:
    """Chances of refusal after ``shift`` is added to their logits; 0 and 1 stay.

    Raises: BadInput for chances outside [0, 1].
    """
    from scipy.special import expit, logit

    return np.asarray(expit(logit(_chances(q)) + shift), dtype=np.float64)


def _chances(q: Shaped[Array, "prompts"]) -> Floats:
    chance = np.asarray(q, dtype=np.float64)
    if chance.ndim != 1 or not chance.size or not ((chance >= 0) & (chance <= 1)).all():
        raise BadInput("chances of refusal must lie in [0, 1], one per prompt, at least one")
    return chance


def shift_area(harmful: Shaped[Array, "harmful"], benign: Shaped[Array, "benign"]) -> float:
    """Area under the ROC curve that shifts trace, in closed form; the same from wherever the shift starts.

    The chance that ``logit q + e`` of a harmful prompt is above that of a benign one, e logistic. With d the
    difference of logits and a = exp(d), a pair counts ``a (a - 1 - d) / (a - 1)^2``.

    Raises: BadInput for chances of exactly 0 or 1, which no shift moves.
    """
    from scipy.special import logit

    chances = [_chances(harmful), _chances(benign)]
    if any(((q == 0) | (q == 1)).any() for q in chances):
        raise BadInput("a chance of exactly 0 or 1 has no logit to shift", where="shift area")
    d = logit(chances[0])[:, None] - logit(chances[1])[None, :]
    return float(logistic_above(d).mean())


def logistic_above(d: Shaped[Array, "..."]) -> Float[Array, "..."]:
    """P(e' - e < d) for independent standard logistic e and e'."""
    # By symmetry at -|d|, where nothing overflows; near 0 by its series, where the quotient is 0 / 0.
    x = -np.abs(np.asarray(d, dtype=np.float64))
    a = np.exp(x)
    with np.errstate(invalid="ignore", divide="ignore"):
        low = a * (a - 1 - x) / (a - 1) ** 2
    low = np.where(np.abs(x) < 1e-3, 0.5 + x / 6, low)
    return np.asarray(np.where(np.asarray(d) > 0, 1 - low, low), dtype=np.float64)


def chance_distributions(
    refused: Shaped[Array, "prompts"],
    answers: Shaped[Array, "prompts"],
    times: Shaped[Array, "resamples prompts"] | None = None,
) -> Float[Array, "resamples grid"]:
    """Weights on ``GRID`` of the distribution of q that makes a pool's counts likeliest, a row per resample.

    ``times``: how often each prompt is in each resample; None for the pool itself, one row.

    Raises: BadInput for impossible counts.
    """
    pairs = np.stack([np.asarray(refused, dtype=np.float64), np.asarray(answers, dtype=np.float64)], axis=1)
    kinds, where = np.unique(pairs, axis=0, return_inverse=True)
    # NumPy 2.0 alone gives this inverse a second dimension.
    member = where.reshape(-1)[:, None] == np.arange(len(kinds))
    drawn = np.ones((1, len(pairs))) if times is None else np.asarray(times, dtype=np.float64)
    return mixture_distributions(binomial_likelihood(kinds[:, 0], kinds[:, 1], GRID), drawn @ member)
