"""How far a policy's own law is from the planted one, token by token."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol, final

import numpy as np
from jaxtyping import Float
from numpy.typing import NDArray

from refork.policies.base import NextDistribution, Policy
from refork.types import IntArray, token_array
from refork.worlds.base import Task
from refork.worlds.dice import Dice
from refork_testbed.worlds.refusal.distribution import CLOSE, OPEN, WORDS, turn
from refork_testbed.worlds.refusal.world import RefusalWorld

Array = NDArray[np.float64]


class KnowsItsDistribution(Policy, NextDistribution, Protocol):
    """A policy that can say the whole law of its next token."""


@final
@dataclass(frozen=True, slots=True)
class Calibration:
    """Total variation between a policy's next token and the planted law's, one value a prefix.

    ``thinking``: while it thinks; ``answer``: after a whole thinking; ``forced``: after a closing by hand, at
    a random word.
    """

    thinking: Float[Array, "prefixes"]
    answer: Float[Array, "traces"]
    forced: Float[Array, "traces"]


def calibration(
    policy: KnowsItsDistribution, world: RefusalWorld, tasks: Sequence[Task], seed: int = 0
) -> Calibration:
    """Deviations of a policy from the world's law, on one turn of each task drawn from that law.

    The probability of tokens that are no words of the law counts as error.
    """
    ids = {word: int(policy.encode(word if word == OPEN else f" {word}")[0]) for word in WORDS}
    prefixes: list[IntArray] = []
    distributions: list[dict[str, float]] = []
    kinds: list[str] = []
    for task in tasks:
        dice = Dice("calibration", seed, task.id)
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
    """Total variation between a policy's law over its vocabulary and the planted one over words."""
    wanted = np.zeros(len(logprobs))
    for word, p in distribution.items():
        wanted[ids[word]] += p
    return float(np.abs(np.exp(logprobs.astype(np.float64)) - wanted).sum() / 2)
