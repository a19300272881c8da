"""What an experiment is to a theory: a list of two-option stimuli, shown to people in shuffled order."""

from __future__ import annotations

from typing import Final, Protocol, runtime_checkable

import numpy as np
from jaxtyping import Int

from refork.errors import BadInput
from refork.stats.results import Array
from refork.types import Json

#: Trials that one person is shown, as far as whole repetitions go.
TRIALS: Final = 96
#: One stream of random numbers for each purpose, so that a change of one leaves the others as they are.
_STREAMS: Final = {"parameters": 0, "orders": 1, "choices": 2, "lapses": 3, "people": 4, "starts": 5}


@runtime_checkable
class Experiment(Protocol):
    """A design of one domain. Options are A (0) and B (1)."""

    @property
    def domain(self) -> str:
        """Name of the domain."""
        ...

    @property
    def stimuli(self) -> int:
        """How many distinct pairs of options there are."""
        ...

    def context(self) -> Json:
        """What priors may name: whole-experiment facts, as plain numbers and lists."""
        ...

    def stimulus(self, index: int) -> Json:
        """What a theory's code is shown of one pair, as plain JSON."""
        ...

    def to_json(self) -> Json:
        """The design as plain JSON."""
        ...


def generator(seed: int, stream: str) -> np.random.Generator:
    """The random numbers of one purpose under a seed. Raises BadInput for a negative seed."""
    if seed < 0:
        raise BadInput(f"the seed is {seed}; it must be 0 or more")
    # A spawn key, not a second word of entropy: SeedSequence pads with zeros, so (seed, 0) is the stream of
    # the seed alone, which designs are drawn from.
    return np.random.Generator(np.random.PCG64(np.random.SeedSequence(seed, spawn_key=(_STREAMS[stream],))))


def repeats(stimuli: int, trials: int = TRIALS) -> int:
    """How often each of the stimuli is shown: whole repetitions within ``trials``, at least one.

    Raises: BadInput for no stimulus. Source: arXiv:2606.26448.
    """
    if stimuli < 1:
        raise BadInput("an experiment needs at least one stimulus")
    return max(1, trials // stimuli)


def trial_orders(
    experiment: Experiment, people: int, seed: int, *, shared: bool = False, trials: int = TRIALS
) -> Int[Array, "people shown"]:
    """Which stimulus each person sees in each trial: all repetitions, shuffled by the seed.

    ``shared`` shows everybody the same order. Person i's order does not depend on how many people there are.

    Raises: BadInput for no people.
    """
    if people < 1:
        raise BadInput(f"{people} people", hint="at least one")
    block = np.tile(np.arange(experiment.stimuli), repeats(experiment.stimuli, trials))
    rng = generator(seed, "orders")
    if shared:
        return np.tile(rng.permutation(block), (people, 1))
    return np.stack([rng.permutation(block) for _ in range(people)])
