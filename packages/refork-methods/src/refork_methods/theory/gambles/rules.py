"""Theories of choice between gambles: what is compared, values of amounts, weights of chances.

Amounts are divided by the experiment's largest, so that one inverse temperature fits all designs (ours).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

import numpy as np
from jaxtyping import Float

from refork.stats.results import Array
from refork_methods.theory.chooser import Gap, Rule
from refork_methods.theory.gambles.experiment import DOMAIN, GambleExperiment, random_gambles
from refork_methods.theory.grammar import LAPSES, STRENGTHS, Axis, Domain, Form, Grammar, Part
from refork_methods.theory.priors import Fixed, Parameters, Prior, Uniform

COMPARED: Final = Axis("compared", ("sums", "worst", "best", "most-likely"))
VALUES: Final = Axis("value", ("linear", "curved", "loss-averse", "prospect"))
CHANCES: Final = Axis("chances", ("plain", "bent"))
_PRIORS: Final[dict[str, Prior]] = {
    "alpha": Uniform(0.3, 1.2),
    "loss": Uniform(0.5, 4),
    "gamma": Uniform(0.3, 1.2),
    "delta": Uniform(0.3, 1.2),
}
_FREE: Final = {"linear": (), "curved": ("alpha",), "loss-averse": ("loss",), "prospect": ("alpha", "loss")}
_WORDS: Final = {
    "sums": "People take the gamble with the greater sum of values times weights.",
    "worst": "People take the gamble whose worst outcome is better.",
    "best": "People take the gamble whose best outcome is better.",
    "most-likely": "People take the gamble whose most likely outcome is better.",
}
_VALUE_WORDS: Final = {
    "linear": "",
    "curved": " Amounts count less and less.",
    "loss-averse": " Losses loom larger than gains.",
    "prospect": " Amounts count less and less, and losses loom larger than gains.",
}
_WORTH: Final = """\
def worth(x, p):
    size = abs(x) ** {power}
    return size if x >= 0 else -{loss} * size


"""
_BENT: Final = """\
def bend(p, g):
    p = min(1.0, max(0.0, p))
    return p ** g / (p ** g + (1 - p) ** g) ** (1 / g)


def total(gamble, scale, parameters):
    branches, found = sorted(gamble), 0.0
    for i, (x, p) in enumerate(branches):
        if x >= 0:
            least = 1.0 if i == 0 else sum(q for _, q in branches[i:])
            part = bend(least, parameters['gamma'])
            part -= bend(sum(q for _, q in branches[i + 1:]), parameters['gamma'])
        else:
            most = 1.0 if i + 1 == len(branches) else sum(q for _, q in branches[:i + 1])
            part = bend(most, parameters['delta'])
            part -= bend(sum(q for _, q in branches[:i]), parameters['delta'])
        found += worth(x / scale, parameters) * part
    return found


"""
_PLAIN: Final = """\
def total(gamble, scale, parameters):
    return sum(worth(x / scale, parameters) * p for x, p in gamble)


"""
_PICK: Final = {
    "worst": "min(x for x, p in gamble if p > 0)",
    "best": "max(x for x, p in gamble if p > 0)",
    "most-likely": "max((p, x) for x, p in gamble)[1]",
}


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
    # A cumulative sum a rounding above 1 would make 1 - p negative, and its power NaN.
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


def _sums(chances: str) -> Gap:
    def gap(e: GambleExperiment, p: Parameters) -> Float[Array, "people stimuli"]:
        outcomes, odds = (part[None] for part in e.arrays())
        people = len(p["beta"])
        ones = np.ones(people)
        # A parameter that the form leaves out is 1, at which it changes nothing.
        alpha, loss, gamma, delta = (
            p.get(name, ones)[:, None, None, None] for name in ("alpha", "loss", "gamma", "delta")
        )
        weights = decision_weights(outcomes, odds, gamma, delta) if chances == "bent" else odds
        worth = (value(outcomes / e.scale, alpha, loss) * weights).sum(axis=-1)
        found = worth[..., 1] - worth[..., 0]
        alike: Float[Array, "people stimuli"] = np.broadcast_to(found, (people, e.stimuli))
        return alike

    return gap


def _order(shown: Float[Array, "stimuli 2"], p: Parameters) -> Float[Array, "people stimuli"]:
    """Which side shows more, and no matter how much."""
    signs = np.sign(shown[:, 1] - shown[:, 0])
    alike: Float[Array, "people stimuli"] = np.broadcast_to(signs, (len(p["beta"]), len(signs)))
    return alike


def _worst(e: GambleExperiment, p: Parameters) -> Float[Array, "people stimuli"]:
    outcomes, chances = e.arrays()
    return _order(np.where(chances > 0, outcomes, np.inf).min(axis=2), p)


def _best(e: GambleExperiment, p: Parameters) -> Float[Array, "people stimuli"]:
    outcomes, chances = e.arrays()
    return _order(np.where(chances > 0, outcomes, -np.inf).max(axis=2), p)


def _most_likely(e: GambleExperiment, p: Parameters) -> Float[Array, "people stimuli"]:
    outcomes, chances = e.arrays()
    # Of equally likely outcomes the best: branches are sorted, so the last of the most likely.
    place = outcomes.shape[2] - 1 - np.argmax(chances[..., ::-1], axis=2)
    return _order(np.take_along_axis(outcomes, place[..., None], axis=2)[..., 0], p)


_COMPARES: Final[Mapping[str, Gap]] = {"worst": _worst, "best": _best, "most-likely": _most_likely}


def _part(form: Form) -> Part | None:
    compared, value, chances = form
    softmax: dict[str, Prior] = {"beta": STRENGTHS["any"], "lapse": LAPSES["some"]}
    if compared in _COMPARES:
        if (value, chances) != ("linear", "plain"):
            return None  # only the order of amounts counts
        picked = f"def pick(gamble):\n    return {_PICK[compared]}\n\n\n"
        body = "    a, b = pick(stimulus['a']), pick(stimulus['b'])\n    gap = float((b > a) - (a > b))\n"
        return Part(
            Rule("-".join(form), DOMAIN, softmax, _COMPARES[compared]), _WORDS[compared], picked, body
        )
    free = (*_FREE[value], *(("gamma", "delta") if chances == "bent" else ()))
    words = (
        _WORDS["sums"] + _VALUE_WORDS[value] + (" Small chances weigh too much." if chances == "bent" else "")
    )
    worth = _WORTH.format(
        power="p['alpha']" if "alpha" in free else "1", loss="p['loss']" if "loss" in free else "1"
    )
    body = (
        "    scale = stimulus['scale']\n"
        "    gap = total(stimulus['b'], scale, parameters) - total(stimulus['a'], scale, parameters)\n"
    )
    priors = {**{name: _PRIORS[name] for name in free}, **softmax}
    rule = Rule("-".join(form), DOMAIN, priors, _sums(chances), words=words)
    return Part(rule, words, worth + (_BENT if chances == "bent" else _PLAIN), body)


_TAIL: Final = ("none", "any", "some")
#: Sums under 4 values by 2 weightings of chances, and 3 heuristics; by 3 histories and 9 models.
GRAMMAR: Final = Grammar(
    DOMAIN,
    (COMPARED, VALUES, CHANCES),
    _part,
    known={
        "expected-value": ("sums", "linear", "plain", *_TAIL),
        "prospect-theory": ("sums", "prospect", "bent", *_TAIL),
        "maximin": ("worst", "linear", "plain", *_TAIL),
        "maximax": ("best", "linear", "plain", *_TAIL),
        "most-likely": ("most-likely", "linear", "plain", *_TAIL),
    },
)
#: All theories by name; a fair coin is not ranked.
RULES: Final = {
    **{name: GRAMMAR.rule(form, name) for name, form in GRAMMAR.known.items()},
    "random": Rule("random", DOMAIN, {"beta": Fixed(0), "lapse": Fixed(0)}, _sums("plain")),
}
RANKED: Final = tuple(RULES[name] for name in GRAMMAR.known)
#: Pairs of a random design: four repetitions of each within 96 trials.
PAIRS: Final = 24
WORDS: Final = """\
People choose between two gambles, A and B. A stimulus is a dictionary with `a` and `b`, each a list of
[outcome, chance] whose chances sum to 1, and `scale`, the largest amount in the experiment. Priors may name
`scale`. An experiment is {"a": [[[100, 0.5], [0, 0.5]], ...], "b": [[[40, 1.0]], ...]}: one gamble on each
side for each pair; amounts below 0 are losses."""


GAMBLES: Final = Domain(
    DOMAIN, RULES, RANKED, GRAMMAR, lambda rng: random_gambles(rng, PAIRS), GambleExperiment.from_json, WORDS
)
