"""Theories of choice between gambles, as score differences on arrays.

Amounts are divided by the experiment's largest, so that one inverse temperature fits all designs (ours).
"""

from __future__ import annotations

from typing import Final

import numpy as np
from jaxtyping import Float

from refork.stats.results import Array
from refork_methods.theory.chooser import Gap, Rule
from refork_methods.theory.gambles.experiment import DOMAIN, GambleExperiment
from refork_methods.theory.priors import Fixed, Parameters, Prior, Uniform

_SOFTMAX: Final[dict[str, Prior]] = {"beta": Uniform(0.1, 20), "lapse": Uniform(0, 0.5)}
#: Part of the greatest gain by which outcomes, and of 1 by which chances, must differ to decide.
ASPIRATION: Final = 0.1


def _for_all(gap: Array, parameters: Parameters) -> Float[Array, "people stimuli"]:
    alike: Float[Array, "people stimuli"] = np.broadcast_to(gap, (parameters["beta"].shape[0], gap.shape[0]))
    return alike


def _expected_value(e: GambleExperiment, p: Parameters) -> Float[Array, "people stimuli"]:
    outcomes, chances = e.arrays()
    mean = (outcomes * chances).sum(axis=2) / e.scale
    return _for_all(mean[:, 1] - mean[:, 0], p)


def value(x: Array, alpha: Array, loss: Array) -> Array:
    """Value of an amount: ``x^alpha`` of a gain, ``-loss * (-x)^alpha`` of a loss.

    Source: Tversky and Kahneman, Advances in prospect theory (1992), with one curvature for both.
    """
    size = np.abs(x) ** alpha
    worth: Array = np.where(x >= 0, size, -loss * size)
    return worth


def weighting(p: Array, gamma: Array) -> Array:
    """Weight of a chance, ``p^g / (p^g + (1-p)^g)^(1/g)``: 0 at 0, 1 at 1, p itself at g = 1.

    Source: Tversky and Kahneman, Advances in prospect theory (1992).
    """
    up, down = p**gamma, (1 - p) ** gamma
    return np.asarray(up / (up + down) ** (1 / gamma))


def decision_weights(
    outcomes: Float[Array, "... branches"], chances: Float[Array, "... branches"], gamma: Array, delta: Array
) -> Float[Array, "... branches"]:
    """Weights of branches sorted by outcome, worst first: cumulative from the best gain and the worst loss.

    ``gamma`` bends the chances of gains, ``delta`` those of losses. They sum to 1 where all outcomes have
    one sign.

    Source: Tversky and Kahneman, Advances in prospect theory (1992).
    """
    at_least = np.clip(np.cumsum(chances[..., ::-1], axis=-1)[..., ::-1], 0, 1)
    at_most = np.clip(np.cumsum(chances, axis=-1), 0, 1)
    # A sum a rounding short of 1 would be weighed as much as 1e-5 short of it.
    at_least[..., 0] = at_most[..., -1] = 1.0
    none = np.zeros_like(chances[..., :1])
    better = np.concatenate([at_least[..., 1:], none], axis=-1)
    worse = np.concatenate([none, at_most[..., :-1]], axis=-1)
    gains = weighting(at_least, gamma) - weighting(better, gamma)
    losses = weighting(at_most, delta) - weighting(worse, delta)
    weights: Float[Array, "... branches"] = np.where(outcomes >= 0, gains, losses)
    return weights


def _prospect(e: GambleExperiment, p: Parameters) -> Float[Array, "people stimuli"]:
    outcomes, chances = (part[None] for part in e.arrays())
    alpha, loss, gamma, delta = (p[name][:, None, None, None] for name in ("alpha", "loss", "gamma", "delta"))
    worth = value(outcomes / e.scale, alpha, loss) * decision_weights(outcomes, chances, gamma, delta)
    sums = worth.sum(axis=-1)
    gap: Float[Array, "people stimuli"] = sums[..., 1] - sums[..., 0]
    return gap


def _extreme(e: GambleExperiment, *, best: bool) -> Float[Array, "stimuli"]:
    outcomes, chances = e.arrays()
    real = np.where(chances > 0, outcomes, -np.inf if best else np.inf)
    ends = real.max(axis=2) if best else real.min(axis=2)
    signs: Float[Array, "stimuli"] = np.sign(ends[:, 1] - ends[:, 0])
    return signs


def _maximin(e: GambleExperiment, p: Parameters) -> Float[Array, "people stimuli"]:
    return _for_all(_extreme(e, best=False), p)


def _maximax(e: GambleExperiment, p: Parameters) -> Float[Array, "people stimuli"]:
    return _for_all(_extreme(e, best=True), p)


def _most_likely(e: GambleExperiment, p: Parameters) -> Float[Array, "people stimuli"]:
    outcomes, chances = e.arrays()
    # Of equally likely outcomes the best: branches are sorted, so the last of the most likely.
    width = outcomes.shape[2]
    place = width - 1 - np.argmax(chances[..., ::-1], axis=2)
    chosen = np.take_along_axis(outcomes, place[..., None], axis=2)[..., 0]
    return _for_all(np.sign(chosen[:, 1] - chosen[:, 0]), p)


def priority(e: GambleExperiment) -> Float[Array, "stimuli"]:
    """+1 where the priority heuristic takes B, -1 where it takes A, 0 where it cannot tell.

    It looks at the worst outcomes, their chances, then the best outcomes, and stops at the first reason
    that is large enough; losses are the mirror image.

    Source: Brandstaetter, Gigerenzer and Hertwig, The priority heuristic (2006); aspiration levels are not
    rounded to prominent numbers, which is ours.
    """
    outcomes, chances = e.arrays()
    return np.asarray([_reasons(outcomes[i], chances[i]) for i in range(e.stimuli)])


def _reasons(outcomes: Float[Array, "2 branches"], chances: Float[Array, "2 branches"]) -> float:
    mirrored = bool((outcomes[chances > 0] <= 0).all())
    x = -outcomes if mirrored else outcomes
    first, last = [], []
    for side in range(2):
        real = chances[side] > 0
        low, high = float(x[side][real].min()), float(x[side][real].max())
        first.append((low, float(chances[side][x[side] == low].sum())))
        last.append(high)
    sign = -1.0 if mirrored else 1.0
    top = max(abs(one) for one in (*last, *(low for low, _ in first)))
    if abs(first[1][0] - first[0][0]) >= ASPIRATION * top:
        return sign * float(np.sign(first[1][0] - first[0][0]))
    if abs(first[1][1] - first[0][1]) >= ASPIRATION:  # the lower chance of the worst gain
        return sign * float(np.sign(first[0][1] - first[1][1]))
    return sign * float(np.sign(last[1] - last[0]))


def _priority(e: GambleExperiment, p: Parameters) -> Float[Array, "people stimuli"]:
    return _for_all(priority(e), p)


def _nothing(e: GambleExperiment, p: Parameters) -> Float[Array, "people stimuli"]:
    return _for_all(np.zeros(e.stimuli), p)


def expected_value() -> Rule:
    """Outcomes times chances."""
    return Rule("expected-value", DOMAIN, dict(_SOFTMAX), _expected_value)


def prospect_theory() -> Rule:
    """Cumulative prospect theory: curved values, losses that loom larger, bent chances."""
    priors: dict[str, Prior] = {
        "alpha": Uniform(0.3, 1.2),
        "loss": Uniform(0.5, 4),
        "gamma": Uniform(0.3, 1.2),
        "delta": Uniform(0.3, 1.2),
        **_SOFTMAX,
    }
    return Rule("prospect-theory", DOMAIN, priors, _prospect)


def _heuristic(name: str, gap: Gap) -> Rule:
    return Rule(name, DOMAIN, dict(_SOFTMAX), gap)


def heuristics() -> tuple[Rule, ...]:
    """Maximin, maximax, the better most likely outcome, and the priority heuristic."""
    return (
        _heuristic("maximin", _maximin),
        _heuristic("maximax", _maximax),
        _heuristic("most-likely", _most_likely),
        _heuristic("priority", _priority),
    )


def random_choice() -> Rule:
    """A fair coin."""
    return Rule("random", DOMAIN, {"beta": Fixed(0), "lapse": Fixed(0)}, _nothing)


def standard_rules() -> tuple[Rule, ...]:
    """Expected value, prospect theory and the heuristics."""
    return expected_value(), prospect_theory(), *heuristics()
