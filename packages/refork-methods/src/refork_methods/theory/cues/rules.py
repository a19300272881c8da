"""Theories of choice from cues: forms of a grammar, and the rules that no form says.

Priors are those published; ``beta`` is the inverse temperature and ``lapse`` the share of blind choices.
Cues of equal validity are searched in the order in which they are listed.

Source: arXiv:2606.26448 (code) for the theories and what they are made of; the model's axes are ours.
"""

from __future__ import annotations

from typing import Final

import numpy as np
from jaxtyping import Float

from refork.stats.results import Array
from refork_methods.theory.chooser import Gap, Rule
from refork_methods.theory.cues.designs import random_design
from refork_methods.theory.cues.experiment import DOMAIN, TOP, CueExperiment
from refork_methods.theory.grammar import LAPSES, STRENGTHS, Axis, Domain, Form, Grammar, Part
from refork_methods.theory.priors import Fixed, Parameters, Prior, Uniform

WEIGHTS: Final = Axis(
    "weights", ("equal", "validity", "power", "log-odds", "lexicographic", "personal", "none")
)
UTILITIES: Final = Axis("utility", ("identity", "power", "threshold"))
#: People read validities in whole percent: 1 says no more than 99.5 %, and log-odds of 1 would be infinite.
SUREST: Final = 0.995
_OWN: Final[dict[str, dict[str, Prior]]] = {
    "power-weights": {"g": Uniform(0, 10)},
    "personal": {"w": Uniform(0, 1, "n_features")},
    "power": {"a": Uniform(0.1, 1), "s": Uniform(0.1, 5)},
    "threshold": {"threshold": Uniform(0, TOP)},
}
_WORTH: Final = {
    "identity": "",
    "power": "def worth(x, p):\n    return (x + p['s']) ** p['a'] - p['s'] ** p['a']\n\n\n",
    "threshold": "def worth(x, p):\n    return 1.0 if x >= p['threshold'] else 0.0\n\n\n",
}
_WEIGHT: Final = {
    "equal": "1.0", "validity": "v", "power": "v ** parameters['g']", "personal": "v * parameters['w'][i]",
    "log-odds": f"math.log(min(v, {SUREST}) / (1 - min(v, {SUREST})))",
}  # fmt: skip
_WORDS: Final = {
    "equal": "People add up the ratings, and every cue counts alike.",
    "validity": "People add up the ratings, each times the validity of its cue.",
    "power": "People weigh cues by a power of their validity.",
    "log-odds": "People add up the ratings, each times the log-odds that its cue is right (Bayes' rule).",
    "lexicographic": "People look at the most valid cue that tells the options apart, and at nothing else.",
    "personal": "People add up the ratings, each times the validity of its cue and a weight of their own.",
    "none": "People do not look at the ratings at all.",
}
_VALUE: Final = {
    "identity": "",
    "power": " A point more counts less the higher the rating is.",
    "threshold": " A rating counts only if it reaches a limit of their own.",
}


def concave(x: Array, a: Array, s: Array) -> Array:
    """Utility ``(x + s)^a - s^a``: 0 at 0, and steeper at low ratings where a < 1."""
    utility: Array = (x + s) ** a - s**a
    return utility


def log_odds(v: Array) -> Array:
    """Log-odds that cues of these validities are right: with 0/1 ratings their sum is Bayes' rule.

    Cues count as independent given which option is better (naive Bayes), and the options as equally likely.
    """
    known = np.minimum(v, SUREST)
    odds: Array = np.log(known / (1 - known))
    return odds


def _worth(utility: str, e: CueExperiment, p: Parameters) -> Float[Array, "people stimuli cues"]:
    """Worth of B less that of A, cue by cue; one row stands for all where people do not differ."""
    ratings = e.ratings()[None]
    if utility == "power":
        a, s = (p[name][:, None, None, None] for name in ("a", "s"))
        ratings = concave(ratings, a, s)
    elif utility == "threshold":
        ratings = (ratings >= p["threshold"][:, None, None, None]).astype(np.float64)
    gaps: Float[Array, "people stimuli cues"] = ratings[:, :, 1] - ratings[:, :, 0]
    return gaps


def _gap(weights: str, utility: str) -> Gap:
    def gap(e: CueExperiment, p: Parameters) -> Float[Array, "people stimuli"]:
        worth, v = _worth(utility, e, p), e.weights()
        if weights == "lexicographic":
            # Where all cues tie argmax gives place 0, whose sign is 0: a coin decides.
            signs = np.sign(worth[..., np.argsort(-v, kind="stable")])
            first = np.argmax(signs != 0, axis=2)[..., None]
            found = np.take_along_axis(signs, first, axis=2)[..., 0]
        elif weights in ("power", "personal"):
            own = v ** p["g"][:, None] if weights == "power" else v * p["w"]
            found = (worth * own[:, None]).sum(axis=2)
        elif weights == "log-odds":
            found = worth @ log_odds(v)
        elif weights == "validity":
            found = worth @ (v if utility == "identity" else v / v.sum())
        else:
            found = worth @ np.full_like(v, weights == "equal")
        alike: Float[Array, "people stimuli"] = np.broadcast_to(found, (len(p["beta"]), e.stimuli))
        return alike

    return gap


def _body(weights: str, utility: str) -> str:
    one, other = ("b", "a") if utility == "identity" else ("worth(b, parameters)", "worth(a, parameters)")
    if weights == "none":
        return "    gap = 0.0\n"
    head = "    gap, v, a, b = 0.0, stimulus['validities'], stimulus['a'], stimulus['b']\n"
    if weights == "lexicographic":
        one, other = (text.replace("(b", "(b[i]").replace("(a", "(a[i]") for text in (one, other))
        one, other = ("b[i]", "a[i]") if utility == "identity" else (one, other)
        return head + (
            "    for i in sorted(range(len(v)), key=lambda i: -v[i]):\n"
            f"        more = {one} - {other}\n"
            "        if more != 0:\n            gap = 1.0 if more > 0 else -1.0\n            break\n"
        )
    weight = _WEIGHT[weights] + (" / total" if weights == "validity" and utility != "identity" else "")
    return head + (
        "    total = sum(v)\n"
        "    for i, (v, a, b) in enumerate(zip(stimulus['validities'], stimulus['a'], stimulus['b'])):\n"
        f"        gap += {weight} * ({one} - {other})\n"
    )


def _part(form: Form) -> Part | None:
    weights, utility = form
    if weights == "none" and utility != "identity":
        return None
    priors: dict[str, Prior] = {
        **_OWN.get("power-weights" if weights == "power" else weights, {}),
        **_OWN.get(utility, {}),
        "beta": Uniform(0.1, 15) if weights == "power" else STRENGTHS["any"],
        "lapse": LAPSES["some"],
    }
    words = _WORDS[weights] + _VALUE[utility]
    rule = Rule("-".join(form), DOMAIN, priors, _gap(weights, utility), words=words)
    return Part(rule, words, _WORTH[utility], _body(weights, utility))


_TAIL: Final = ("none", "any", "some")
#: 6 weightings by 3 utilities, or no look at the cues, by 3 histories, by 9 models of each.
GRAMMAR: Final = Grammar(
    DOMAIN,
    (WEIGHTS, UTILITIES),
    _part,
    known={
        "take-the-best": ("lexicographic", "identity", *_TAIL),
        "tallying": ("equal", "identity", *_TAIL),
        "equal-weight": ("validity", "identity", *_TAIL),
        "wadd": ("personal", "identity", *_TAIL),
        "dial": ("power", "identity", *_TAIL),
        "naive-bayes": ("log-odds", "identity", *_TAIL),
        "diminishing-wadd": ("validity", "power", *_TAIL),
        "satisficing-wadd": ("validity", "threshold", *_TAIL),
        "alternation": ("none", "identity", "alternate", "any", "some"),
        "perseveration": ("none", "identity", "repeat", "any", "some"),
    },
)


def _alike(gap: Array, p: Parameters) -> Float[Array, "people stimuli"]:
    alike: Float[Array, "people stimuli"] = np.broadcast_to(gap, (len(p["beta"]), len(gap)))
    return alike


def _tallying(e: CueExperiment, p: Parameters) -> Float[Array, "people stimuli"]:
    # On graded ratings a cue still counts once, which the form of equal weights does not say.
    return _alike(np.sign(e.differences()).sum(axis=1), p)


def _anti_majority(e: CueExperiment, p: Parameters) -> Float[Array, "people stimuli"]:
    return -_tallying(e, p)


def _take_the_worst(e: CueExperiment, p: Parameters) -> Float[Array, "people stimuli"]:
    signs = np.sign(e.differences()[:, np.argsort(e.weights(), kind="stable")])
    return _alike(signs[np.arange(e.stimuli), np.argmax(signs != 0, axis=1)], p)


def _single_cue(e: CueExperiment, p: Parameters) -> Float[Array, "people stimuli"]:
    worst = int(np.argmin(e.weights()[::-1]))  # of equal ones the last listed
    return _alike(np.sign(e.differences()[:, len(e.validities) - 1 - worst]), p)


def _rule(name: str, gap: Gap) -> Rule:
    return Rule(name, DOMAIN, {"beta": STRENGTHS["any"], "lapse": LAPSES["some"]}, gap)


#: All theories by name.
RULES: Final = {
    **{name: GRAMMAR.rule(form, name) for name, form in GRAMMAR.known.items()},
    "tallying": _rule("tallying", _tallying),
    "random": Rule("random", DOMAIN, {"beta": Fixed(0), "lapse": Fixed(0)}, _gap("none", "identity")),
    "take-the-worst": _rule("take-the-worst", _take_the_worst),
    "single-cue": _rule("single-cue", _single_cue),
    "anti-majority": _rule("anti-majority", _anti_majority),
}
#: Generators that no sensible person follows, to test what a search can find. The first two depend on the
#: order of trials alone: their rates are a coin's, and only a measure of order sees them.
STRESS: Final = tuple(
    RULES[name] for name in ("alternation", "perseveration", "take-the-worst", "single-cue", "anti-majority")
)
#: Those that are ranked on human choices unless others are asked for.
RANKED: Final = tuple(
    RULES[name] for name in ("take-the-best", "tallying", "wadd", "naive-bayes", "dial", "diminishing-wadd")
)
WORDS: Final = """\
People choose between two options, A and B, that the same experts (cues) rate. A stimulus is a dictionary with
`validities` (chance that each expert is right, 0.5 to 1) and the whole ratings `a` and `b` of the options.
Priors may name `validities` and `n_features`. An experiment is
{"validities": [0.9, 0.8, 0.7], "trial_a_ratings": [[1, 0, 0], ...], "trial_b_ratings": [[0, 1, 1], ...]}:
one row of ratings, 0 to 10, for each pair."""


CUES: Final = Domain(DOMAIN, RULES, RANKED, GRAMMAR, random_design, CueExperiment.from_json, WORDS)
