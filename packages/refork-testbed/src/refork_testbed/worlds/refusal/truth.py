"""What is exactly true of the planted laws: refusals given the prompt, variances at every cut in both modes.

``V`` is 4 q (1 - q) averaged over what was thought before the cut: 1 for a fair coin, 0 where it is settled.
Forced: the thinking is closed at the cut and the answer drawn. Free: the thinking goes on from the cut.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

import numpy as np
from jaxtyping import Float
from numpy.typing import NDArray

from refork.errors import BadInput
from refork_testbed.worlds.refusal.law import RefusalLaw
from refork_testbed.worlds.refusal.prompts import LEAN, LEVELS, SPREAD, refusal_chances

Array = NDArray[np.float64]
Mode = Literal["forced", "free"]


def free_refusal(law: RefusalLaw, chance: float, thought: Sequence[str]) -> float:
    """Exact chance of a refusal when an open thinking goes on from these words by its own law."""
    if law.rule == "P":
        return chance
    settled = law.refusal(chance, thought)
    if law.rule == "C":
        return settled
    if not thought:
        return 0.5
    # Whether the stance has turned after n more words is a coin of (1 - (1 - 2 h)^n) / 2.
    kept = _decay(law, len(thought))
    return 0.5 + kept * (settled - 0.5)


def variance(law: RefusalLaw, chance: float, kept: int, mode: Mode) -> float:
    """Exact V of one request at a cut that keeps this many stance words, closed there or going on.

    Raises: BadInput for a cut outside 0 .. ``steps``.
    """
    if not 0 <= kept <= law.steps:
        raise BadInput(f"a cut keeps 0 to {law.steps} words, not {kept}", where="refusal law")
    if law.rule == "P":
        return 4 * chance * (1 - chance)
    if law.rule == "C":
        return 1.0 if kept <= law.commit else 0.0
    if kept == 0:
        return 1.0
    return 0.0 if mode == "forced" else 1 - _decay(law, kept) ** 2


def mean_variance(law: RefusalLaw, chances: Sequence[float], share: float, mode: Mode) -> float:
    """Exact mean V over equally likely requests whose traces are cut at this share of their own length.

    A cut keeps ``max(1, floor(share * length))`` stance words of a trace; ``early`` makes lengths differ.

    Raises: BadInput for a share outside (0, 1].
    """
    if not 0 < share <= 1:
        raise BadInput(f"a cut is at a share in (0, 1], not {share}", where="refusal law")
    total = 0.0
    for length, weight in enumerate(lengths(law)):
        if weight > 0:
            kept = max(1, int(np.floor(share * length + 1e-9)))
            total += weight * float(np.mean([variance(law, q, kept, mode) for q in chances]))
    return total


def lengths(law: RefusalLaw, after: int = 1) -> list[float]:
    """Probability of every length of a thinking, 0 to ``steps``, given that it is open after so many words.

    ``after`` 0 counts as 1: the first word is always said.
    """
    start = max(1, after)
    going = (1 - law.early) ** np.arange(law.steps - start + 1)
    chances = np.zeros(law.steps + 1)
    chances[start:] = going * law.early
    chances[law.steps] = going[-1]
    return [float(p) for p in chances]


def _decay(law: RefusalLaw, kept: int) -> float:
    """E[(1 - 2 h)^n] over the number n of stance words still to come after ``kept`` of them."""
    more = np.arange(law.steps + 1) - kept
    return float(np.sum(np.array(lengths(law, kept)) * (1 - 2 * law.flip) ** np.maximum(more, 0)))


def prompt_chances(law: RefusalLaw, spread: float = SPREAD) -> Float[Array, "levels"]:
    """Exact chance of a refusal given the request, of each of the 64 equally likely levels.

    What any probe of the prompt can tell is a function of these: AUROC* in P, 1/2 in D and C.
    """
    chances = np.array(refusal_chances(spread))
    return chances if law.rule == "P" else np.full(len(chances), 0.5)


def level_weights(intent: str) -> list[float]:
    """Probability of each level among the requests of one intent."""
    upper = LEAN if intent == "harmful" else 1 - LEAN
    half = LEVELS // 2
    return [(1 - upper) / half] * half + [upper / half] * half


def performative_share(law: RefusalLaw) -> float:
    """Share of stance changes at which the forced answer does not move (a ratio of expected counts).

    P: all of them. D: none, every change turns the answer. C: all but the one, if any, that brings in the
    word that decides: it counts unless every word before leaned the same way or neither.

    Raises: BadInput with ``early``, or where stance never changes.
    """
    if law.early or law.steps < 2:
        raise BadInput(
            "the closed form is for thinking of one length, two words or more", where="refusal law"
        )
    if law.rule != "C":
        return float(law.rule == "P")
    # Words lean one way with 0.4 each: neighbours among those that lean differ with probability 1/2.
    changes = 0.8 * (law.steps - 1) / 2
    return 1 - (1 - 0.6**law.commit) / changes
