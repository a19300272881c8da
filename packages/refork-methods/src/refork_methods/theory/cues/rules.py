"""Theories of choice from cues, as score differences on arrays.

Priors are those published; ``beta`` is the inverse temperature and ``lapse`` the share of blind choices.
Cues of equal validity are searched in the order in which they are listed.

Source: arXiv:2606.26448 (code).
"""

from __future__ import annotations

from typing import Final

import numpy as np
from jaxtyping import Float

from refork.stats.results import Array
from refork_methods.theory.chooser import History, Rule
from refork_methods.theory.cues.experiment import DOMAIN, CueExperiment
from refork_methods.theory.priors import Fixed, Parameters, Prior, Uniform

_LAPSE: Final = Uniform(0, 0.5)
_SOFTMAX: Final[dict[str, Prior]] = {"beta": Uniform(0.1, 20), "lapse": _LAPSE}


def _for_all(gap: Array, parameters: Parameters) -> Float[Array, "people stimuli"]:
    people = parameters["beta"].shape[0]
    alike: Float[Array, "people stimuli"] = np.broadcast_to(gap, (people, gap.shape[0]))
    return alike


def first_difference(e: CueExperiment, *, worst_first: bool = False) -> Float[Array, "stimuli"]:
    """+1 where B is better in the first cue that differs, -1 where A is, 0 where none does."""
    weights = e.weights()
    order = np.argsort(weights if worst_first else -weights, kind="stable")
    signs = np.sign(e.differences()[:, order])
    first: Float[Array, "stimuli"] = signs[np.arange(e.stimuli), np.argmax(signs != 0, axis=1)]
    return first


def _take_the_best(e: CueExperiment, p: Parameters) -> Float[Array, "people stimuli"]:
    return _for_all(first_difference(e), p)


def _take_the_worst(e: CueExperiment, p: Parameters) -> Float[Array, "people stimuli"]:
    return _for_all(first_difference(e, worst_first=True), p)


def _tallying(e: CueExperiment, p: Parameters) -> Float[Array, "people stimuli"]:
    return _for_all(np.sign(e.differences()).sum(axis=1), p)


def _anti_majority(e: CueExperiment, p: Parameters) -> Float[Array, "people stimuli"]:
    return -_tallying(e, p)


def _single_cue(e: CueExperiment, p: Parameters) -> Float[Array, "people stimuli"]:
    worst = int(np.argmin(e.weights()[::-1]))  # of equal ones the last listed
    return _for_all(np.sign(e.differences()[:, len(e.validities) - 1 - worst]), p)


def _wadd(e: CueExperiment, p: Parameters) -> Float[Array, "people stimuli"]:
    gap: Float[Array, "people stimuli"] = (p["w"] * e.weights()) @ e.differences().T
    return gap


def _equal_weight(e: CueExperiment, p: Parameters) -> Float[Array, "people stimuli"]:
    return _for_all(e.differences() @ e.weights(), p)


def _dial(e: CueExperiment, p: Parameters) -> Float[Array, "people stimuli"]:
    gap: Float[Array, "people stimuli"] = (e.weights() ** p["g"][:, None]) @ e.differences().T
    return gap


def concave(x: Array, a: Array, s: Array) -> Array:
    """Utility ``(x + s)^a - s^a``: 0 at 0, and steeper at low ratings where a < 1."""
    utility: Array = (x + s) ** a - s**a
    return utility


def _shares(e: CueExperiment) -> Float[Array, "cues"]:
    weights = e.weights()
    shares: Float[Array, "cues"] = weights / weights.sum()
    return shares


def _diminishing(e: CueExperiment, p: Parameters) -> Float[Array, "people stimuli"]:
    a, s = (p[name][:, None, None, None] for name in ("a", "s"))
    utility = concave(e.ratings()[None], a, s) @ _shares(e)
    gap: Float[Array, "people stimuli"] = utility[..., 1] - utility[..., 0]
    return gap


def _satisficing(e: CueExperiment, p: Parameters) -> Float[Array, "people stimuli"]:
    enough = e.ratings()[None] >= p["threshold"][:, None, None, None]
    utility = enough.astype(np.float64) @ _shares(e)
    gap: Float[Array, "people stimuli"] = utility[..., 1] - utility[..., 0]
    return gap


def _nothing(e: CueExperiment, p: Parameters) -> Float[Array, "people stimuli"]:
    return _for_all(np.zeros(e.stimuli), p)


def take_the_best() -> Rule:
    """The most valid cue that tells the options apart decides alone."""
    return Rule("take-the-best", DOMAIN, dict(_SOFTMAX), _take_the_best)


def tallying() -> Rule:
    """The option that wins more cues, whatever their validity."""
    return Rule("tallying", DOMAIN, dict(_SOFTMAX), _tallying)


def wadd() -> Rule:
    """Weighted additive: ratings times validities times a personal weight of each cue, w in U[0, 1]."""
    return Rule("wadd", DOMAIN, {"w": Uniform(0, 1, "n_features"), **_SOFTMAX}, _wadd)


def equal_weight() -> Rule:
    """Weighted additive by the validities alone: every personal weight is 1."""
    return Rule("equal-weight", DOMAIN, dict(_SOFTMAX), _equal_weight)


def dial() -> Rule:
    """Validities to a power g: Tallying at 0 (binary cues), additive at 1, Take-the-Best when large."""
    return Rule("dial", DOMAIN, {"g": Uniform(0, 10), "beta": Uniform(0.1, 15), "lapse": _LAPSE}, _dial)


def diminishing_wadd() -> Rule:
    """Additive in a concave utility of the ratings, by validities that sum to 1."""
    priors = {"a": Uniform(0.1, 1), "s": Uniform(0.1, 5), **_SOFTMAX}
    return Rule("diminishing-wadd", DOMAIN, priors, _diminishing)


def satisficing_wadd() -> Rule:
    """Additive in whether a rating reaches a personal threshold, by validities that sum to 1."""
    return Rule("satisficing-wadd", DOMAIN, {"threshold": Uniform(0, 10), **_SOFTMAX}, _satisficing)


def random_choice() -> Rule:
    """A fair coin."""
    return Rule("random", DOMAIN, {"beta": Fixed(0), "lapse": Fixed(0)}, _nothing)


def _order_only(name: str, history: History) -> Rule:
    return Rule(name, DOMAIN, dict(_SOFTMAX), _nothing, history)


def stress_rules() -> tuple[Rule, ...]:
    """Generators that no sensible person follows, to test what a search can find.

    Two depend on the order of trials alone: their rates are a coin's, and only a measure of order sees them.
    """
    return (
        _order_only("alternation", "alternate"),
        _order_only("perseveration", "repeat"),
        Rule("take-the-worst", DOMAIN, dict(_SOFTMAX), _take_the_worst),
        Rule("single-cue", DOMAIN, dict(_SOFTMAX), _single_cue),
        Rule("anti-majority", DOMAIN, dict(_SOFTMAX), _anti_majority),
    )


def standard_rules() -> tuple[Rule, ...]:
    """The five theories that are ranked on human choices."""
    return take_the_best(), tallying(), wadd(), dial(), diminishing_wadd()
