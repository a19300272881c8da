"""The grammar of theories of gambles: what is compared, values of amounts, weights of chances."""

from __future__ import annotations

from typing import Final

import numpy as np
from jaxtyping import Float

from refork.stats.results import Array
from refork_methods.theory.chooser import Gap, Rule
from refork_methods.theory.gambles import rules
from refork_methods.theory.gambles.experiment import DOMAIN, GambleExperiment
from refork_methods.theory.grammar import LAPSES, STRENGTHS, Axis, Form, Grammar, Part
from refork_methods.theory.priors import Parameters, Prior, Uniform

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
_RULES: Final = {"worst": 1, "best": 1, "most-likely": 1}
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


def _sums(value: str, chances: str) -> Gap:
    def gap(e: GambleExperiment, p: Parameters) -> Float[Array, "people stimuli"]:
        outcomes, odds = (part[None] for part in e.arrays())
        people = len(p["beta"])
        ones = np.ones(people)
        alpha, loss, gamma, delta = (
            p.get(name, ones)[:, None, None, None] for name in ("alpha", "loss", "gamma", "delta")
        )
        weights = rules.decision_weights(outcomes, odds, gamma, delta) if chances == "bent" else odds
        worth = (rules.value(outcomes / e.scale, alpha, loss) * weights).sum(axis=-1)
        found = worth[..., 1] - worth[..., 0]
        alike: Float[Array, "people stimuli"] = np.broadcast_to(found, (people, e.stimuli))
        return alike

    del value
    return gap


def _part(form: Form) -> Part | None:
    compared, value, chances = form
    softmax: dict[str, Prior] = {"beta": STRENGTHS["any"], "lapse": LAPSES["some"]}
    if compared in _RULES:
        if (value, chances) != ("linear", "plain"):
            return None  # only the order of amounts counts
        named = {"worst": "maximin", "best": "maximax", "most-likely": "most-likely"}[compared]
        gap = next(one.gap for one in rules.heuristics() if one.name == named)
        picked = f"def pick(gamble):\n    return {_PICK[compared]}\n\n\n"
        body = "    a, b = pick(stimulus['a']), pick(stimulus['b'])\n    gap = float((b > a) - (a > b))\n"
        return Part(Rule("-".join(form), DOMAIN, softmax, gap), _WORDS[compared], picked, body)
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
    rule = Rule("-".join(form), DOMAIN, priors, _sums(value, chances), words=words)
    return Part(rule, words, worth + (_BENT if chances == "bent" else _PLAIN), body)


def gamble_grammar() -> Grammar:
    """Sums under 4 values by 2 weightings of chances, and 3 heuristics; by 3 histories and 9 models."""
    tail = ("none", "any", "some")
    known = {
        "expected-value": ("sums", "linear", "plain", *tail),
        "prospect-theory": ("sums", "prospect", "bent", *tail),
        "maximin": ("worst", "linear", "plain", *tail),
        "maximax": ("best", "linear", "plain", *tail),
        "most-likely": ("most-likely", "linear", "plain", *tail),
    }
    return Grammar(DOMAIN, (COMPARED, VALUES, CHANCES), _part, known)
