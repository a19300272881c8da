"""What is exactly true of the planted distributions: refusals given the prompt, variances at every cut.

``V`` is 4 q (1 - q) averaged over what was thought before the cut: 1 for a fair coin, 0 where it is settled.
Forced: the thinking is closed at the cut and the answer drawn. Free: the thinking goes on from the cut.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, Protocol, final

import numpy as np
from jaxtyping import Float
from numpy.typing import NDArray

from refork.errors import BadInput
from refork.policies.base import NextDistribution, Policy
from refork.types import IntArray, token_array
from refork.worlds.base import Task
from refork.worlds.dice import Dice
from refork_testbed.worlds.refusal.distribution import CLOSE, OPEN, WORDS, RefusalDistribution, turn
from refork_testbed.worlds.refusal.prompts import LEAN, LEVELS, SPREAD, refusal_chances
from refork_testbed.worlds.refusal.world import RefusalWorld

Array = NDArray[np.float64]
Mode = Literal["forced", "free"]


def free_refusal(distribution: RefusalDistribution, chance: float, thought: Sequence[str]) -> float:
    """Exact chance of a refusal when an open thinking goes on from these words by its own distribution."""
    if distribution.rule == "P":
        return chance
    settled = distribution.refusal(chance, thought)
    if distribution.rule == "C":
        return settled
    if not thought:
        return 0.5
    # Whether the stance has turned after n more words is a coin of (1 - (1 - 2 h)^n) / 2.
    kept = _decay(distribution, len(thought))
    return 0.5 + kept * (settled - 0.5)


def variance(distribution: RefusalDistribution, chance: float, kept_words: int, mode: Mode) -> float:
    """Exact V of one request at a cut that keeps this many stance words, closed there or going on.

    Raises: BadInput for a cut outside 0 .. ``steps``.
    """
    if not 0 <= kept_words <= distribution.steps:
        raise BadInput(
            f"a cut keeps 0 to {distribution.steps} words, not {kept_words}", where="refusal distribution"
        )
    if distribution.rule == "P":
        return 4 * chance * (1 - chance)
    if distribution.rule == "C":
        return 1.0 if kept_words <= distribution.commit else 0.0
    if kept_words == 0:
        return 1.0
    return 0.0 if mode == "forced" else 1 - _decay(distribution, kept_words) ** 2


def mean_variance(
    distribution: RefusalDistribution, chances: Sequence[float], share: float, mode: Mode
) -> float:
    """Exact mean V over equally likely requests whose traces are cut at this share of their own length.

    A cut keeps ``max(1, floor(share * length))`` stance words of a trace; ``early`` makes lengths differ.

    Raises: BadInput for a share outside (0, 1].
    """
    if not 0 < share <= 1:
        raise BadInput(f"a cut is at a share in (0, 1], not {share}", where="refusal distribution")
    total = 0.0
    for length, weight in enumerate(lengths(distribution)):
        if weight > 0:
            kept = max(1, int(np.floor(share * length + 1e-9)))
            total += weight * float(np.mean([variance(distribution, q, kept, mode) for q in chances]))
    return total


def lengths(distribution: RefusalDistribution, after: int = 1) -> list[float]:
    """Probability of every length of a thinking, 0 to ``steps``, given that it is open after so many words.

    ``after`` 0 counts as 1: the first word is always said.
    """
    start = max(1, after)
    going = (1 - distribution.early) ** np.arange(distribution.steps - start + 1)
    chances = np.zeros(distribution.steps + 1)
    chances[start:] = going * distribution.early
    chances[distribution.steps] = going[-1]
    return [float(p) for p in chances]


def _decay(distribution: RefusalDistribution, kept: int) -> float:
    """E[(1 - 2 h)^n] over the number n of stance words still to come after ``kept_words`` of them."""
    more = np.arange(distribution.steps + 1) - kept
    return float(
        np.sum(np.array(lengths(distribution, kept)) * (1 - 2 * distribution.flip) ** np.maximum(more, 0))
    )


def prompt_chances(distribution: RefusalDistribution, spread: float = SPREAD) -> Float[Array, "levels"]:
    """Exact chance of a refusal given the request, of each of the 64 equally likely levels.

    What any probe of the prompt can tell is a function of these: AUROC* in P, 1/2 in D and C.
    """
    chances = np.array(refusal_chances(spread))
    return chances if distribution.rule == "P" else np.full(len(chances), 0.5)


def level_weights(intent: str) -> list[float]:
    """Probability of each level among the requests of one intent."""
    upper = LEAN if intent == "harmful" else 1 - LEAN
    half = LEVELS // 2
    return [(1 - upper) / half] * half + [upper / half] * half


def performative_share(distribution: RefusalDistribution) -> float:
    """Share of stance changes at which the forced answer does not move (a ratio of expected counts).

    P: all of them. D: none, every change turns the answer. C: all but the one, if any, that brings in the
    word that decides: it counts unless every word before leaned the same way or neither.

    Raises: BadInput with ``early``, or where stance never changes.
    """
    if distribution.early or distribution.steps < 2:
        raise BadInput(
            "the closed form is for thinking of one length, two words or more", where="refusal distribution"
        )
    if distribution.rule != "C":
        return float(distribution.rule == "P")
    # Words lean one way with 0.4 each: neighbours among those that lean differ with probability 1/2.
    changes = 0.8 * (distribution.steps - 1) / 2
    return 1 - (1 - 0.6**distribution.commit) / changes


# How far a policy's own distribution is from the planted one, token by token.


class KnowsItsDistribution(Policy, NextDistribution, Protocol):
    """A policy that can say the whole distribution of its next token."""


@final
@dataclass(frozen=True, slots=True)
class Calibration:
    """Total variation between a policy's next token and the planted distribution's, one value a prefix.

    ``thinking``: while it thinks; ``answer``: after a whole thinking; ``forced``: after a closing by hand, at
    a random word.
    """

    thinking: Float[Array, "prefixes"]
    answer: Float[Array, "traces"]
    forced: Float[Array, "traces"]


def calibration(policy: KnowsItsDistribution, world: RefusalWorld, tasks: Sequence[Task]) -> Calibration:
    """Deviations of a policy from the world's distribution, on one turn of each task drawn from that.

    The probability of tokens that are no words of the distribution counts as error.
    """
    ids = {word: int(policy.encode(word if word == OPEN else f" {word}")[0]) for word in WORDS}
    prefixes: list[IntArray] = []
    distributions: list[dict[str, float]] = []
    kinds: list[str] = []
    for task in tasks:
        dice = Dice("calibration", 0, task.id)
        chance = world.chance(task)
        said = turn(world.distribution, chance, dice.uniform).split()
        close = said.index(CLOSE)
        start = policy.render([], token_array([]), [{"role": "user", "content": task.prompt}]).tokens
        cut = 2 + dice.below(close - 1)
        ways = [("thinking", said[:place]) for place in range(close + 1)]
        for kind, words in [*ways, ("answer", said[: close + 1]), ("forced", [*said[:cut], CLOSE])]:
            prefixes.append(token_array([*start, *(ids[word] for word in words)]))
            distributions.append(world.distribution.next_word(chance, words))
            kinds.append(kind)
    found = policy.next_logprobs(prefixes)
    errors = np.array(
        [_distance(row, distribution, ids) for row, distribution in zip(found, distributions, strict=True)]
    )
    names = np.array(kinds)
    return Calibration(*(errors[names == kind] for kind in ("thinking", "answer", "forced")))


def _distance(logprobs: NDArray[np.float32], distribution: dict[str, float], ids: dict[str, int]) -> float:
    """Total variation between a policy's distribution over its vocabulary and the planted one over words."""
    wanted = np.zeros(len(logprobs))
    for word, p in distribution.items():
        wanted[ids[word]] += p
    return float(np.abs(np.exp(logprobs.astype(np.float64)) - wanted).sum() / 2)
