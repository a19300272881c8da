"""Designs of cue experiments: every binary pair, random ones, and pairs that only concave rules can tell."""

from __future__ import annotations

import itertools
from collections.abc import Sequence

import numpy as np

from refork.errors import BadInput
from refork_methods.theory.cues.experiment import TOP, CueExperiment


def every_binary_pair(validities: Sequence[float]) -> CueExperiment:
    """All unordered pairs of different binary options: 120 at four cues. Raises BadInput beyond six cues."""
    if len(validities) > 6:
        raise BadInput(f"{len(validities)} cues have too many pairs to show", hint="at most six")
    options = list(itertools.product((0, 1), repeat=len(validities)))
    pairs = list(itertools.combinations(options, 2))
    return CueExperiment.of(validities, [a for a, _ in pairs], [b for _, b in pairs])


def random_design(
    rng: np.random.Generator, *, cues: tuple[int, int] = (3, 6), pairs: int = 8, top: int = 1
) -> CueExperiment:
    """A random design: cues and validities in [0.5, 1] uniform, pairs of different options.

    ``cues`` are the fewest and the most; ``top`` is the highest rating. Raises BadInput for a bad range.
    """
    if not 1 <= cues[0] <= cues[1] or pairs < 1 or not 1 <= top <= TOP:
        raise BadInput(f"no design has {cues} cues, {pairs} pairs and ratings up to {top}")
    count = int(rng.integers(cues[0], cues[1] + 1))
    validities = np.round(np.sort(rng.uniform(0.5, 1, count))[::-1], 2)
    a: list[list[int]] = []
    b: list[list[int]] = []
    while len(a) < pairs:
        one, other = rng.integers(0, top + 1, (2, count))
        if (one != other).any():
            a.append(one.tolist())
            b.append(other.tolist())
    return CueExperiment.of(validities.tolist(), a, b)


def steep_and_flat(
    validities: Sequence[float], first: int, second: int, *, low: int, high: int, step: int
) -> CueExperiment:
    """Two pairs whose option A gains ``step`` at a low rating and B the same at a high one, of two cues.

    The two cues change places in the second pair: every rule that is linear in the ratings chooses A in
    half of the two together, whatever its weights and temperature; a rule of falling returns more often.

    Raises: BadInput for equal cues, or ratings that are not ``low + step <= high`` within the scale.
    Source: arXiv:2606.26448 (code).
    """
    cues = range(len(validities))
    if first not in cues or second not in cues or first == second:
        raise BadInput(f"cues {first} and {second} of {len(validities)}", hint="two different ones, from 0")
    if step < 1 or low < 0 or low + step > high or high + step > TOP:
        raise BadInput(f"no steps of {step} from {low} and from {high} up to {TOP}")
    a, b = [], []
    for at_low, at_high in ((first, second), (second, first)):
        base = [low] * len(validities)
        base[at_high] = high
        steep, flat = list(base), list(base)
        steep[at_low] += step
        flat[at_high] += step
        a.append(steep)
        b.append(flat)
    return CueExperiment.of(validities, a, b)
