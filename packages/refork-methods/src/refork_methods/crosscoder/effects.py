"""Interventions measured: patches beside forgotten units, steering beside random directions of its norm."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from jaxtyping import Float
from numpy.typing import NDArray
from torch import Tensor

from refork import stats
from refork.errors import BadInput
from refork.policies.local import LocalPolicy
from refork.progress import Progress, silent
from refork.types import Json
from refork_methods.crosscoder.model import CrossCoder
from refork_methods.crosscoder.paired import Pairs, delta_edit, trained_layer
from refork_methods.crosscoder.partition import Side
from refork_methods.crosscoder.patch import mismatched, patch_edit, reconstruct
from refork_methods.crosscoder.steer import check_writes, steering_delta
from refork_methods.crosscoder.sweep import Cell, Sweep, difference_p, same_norm
from refork_methods.crosscoder.trials import Gain, Outcomes, Trials, gain
from refork_methods.steer import random_directions

Floats = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class PatchEffect:
    """One model with its prompts' states rebuilt: mean scores, variance explained, gains at both token caps.

    ``mismatched``: the same weights fed and read in raw units without their normaliser. ``holm_p``: of the
    two patches' McNemar tests, in the order patched, mismatched.
    """

    which: Side
    clean: float
    patched: float
    mismatched: float
    fve: float
    gain: Gain
    mismatched_gain: Gain
    holm_p: tuple[float, float]
    prompts: int


def patch_effect(
    model: CrossCoder, policy: LocalPolicy, pairs: Pairs, trials: Trials, which: Side = "A"
) -> PatchEffect:
    """What the reconstruction patch does to a model's scores, and what it does with units forgotten.

    Raises:
        BadInput: as :func:`~refork_methods.crosscoder.patch.patch_edit`.
    """
    clean = trials.run(policy)
    patched = trials.run(policy.edited(patch_edit(model, pairs, which)))
    wrong = trials.run(policy.edited(patch_edit(mismatched(model), pairs, which)))
    adjusted = stats.holm(np.array([difference_p(clean.long, arm.long) for arm in (patched, wrong)])).p
    return PatchEffect(
        which, float(clean.long.mean()), float(patched.long.mean()), float(wrong.long.mean()),
        explained(pairs.of(which), reconstruct(model, pairs, which)), gain(clean, patched), gain(clean,
        wrong), (float(adjusted[0]), float(adjusted[1])), len(clean.long),
    )  # fmt: skip


def explained(states: Float[Tensor, "n d"], rebuilt: Float[Tensor, "n d"]) -> float:
    """Fraction of the squared deviation from the mean that a reconstruction explains, raw units."""
    spread = (states - states.mean(dim=0)).square().sum()
    return float(1 - (states - rebuilt).square().sum() / spread)


@dataclass(frozen=True, slots=True, eq=False)
class Steering:
    """What a steering experiment shares: crosscoder, model, its prompts' states, prompts and scorer."""

    model: CrossCoder
    policy: LocalPolicy
    pairs: Pairs
    trials: Trials
    which: Side = "A"

    def delta(self, features: Sequence[int], alpha: float) -> Float[Tensor, "n d"]:
        """What scaling features adds to each prompt's state.

        Raises:
            BadInput, CannotDo: no such feature, or one that writes nothing into this model.
        """
        check_writes(self.model, features, self.which)
        with torch.no_grad():
            values = self.model.encode(self.pairs.a, self.pairs.b)[:, list(features)]
            return steering_delta(values, self.model.directions(self.which)[list(features)], alpha)

    def under(self, delta: Float[Tensor, "n d"], rows: slice = slice(None)) -> Outcomes:
        """Scores with a change added to the prompts' states; ``rows``: on some of the prompts only."""
        layer = trained_layer(self.model, self.which)
        part = Pairs(self.pairs.a[rows], self.pairs.b[rows], self.pairs.positions)
        start, stop, _ = rows.indices(len(self.trials.prompts))
        edit = delta_edit(layer, part, self.which, delta[rows], "steer")
        return self.trials.part(start, stop).run(self.policy.edited(edit))

    def clean(self, rows: slice = slice(None)) -> Outcomes:
        """Scores without any change."""
        start, stop, _ = rows.indices(len(self.trials.prompts))
        return self.trials.part(start, stop).run(self.policy)

    def sweep(
        self,
        cells: Sequence[tuple[str, Sequence[int], float]],
        rows: slice = slice(None),
        progress: Progress = silent,
    ) -> Sweep:
        """Scores of cells (name, features, alpha) on the same prompts as the clean model's."""
        clean = self.clean(rows).long
        found = []
        for number, (name, features, alpha) in enumerate(cells):
            progress("steering", number, len(cells))
            scores = self.under(self.delta(features, alpha), rows).long
            found.append(Cell(name, tuple(features), alpha, scores))
        progress("steering", len(cells), len(cells))
        return Sweep(clean, tuple(found))

    def randoms(
        self,
        delta: Float[Tensor, "n d"],
        count: int = 50,
        seed: int = 0,
        rows: slice = slice(None),
        progress: Progress = silent,
    ) -> Float[Floats, "count n"]:
        """Scores with random directions that have the norm of ``delta`` on every prompt."""
        width = np.ones(delta.shape[1], dtype=np.float32)
        drawn = []
        for number, direction in enumerate(random_directions(count, width, seed)):
            progress("random directions", number, count)
            drawn.append(self.under(self.like(delta, direction), rows).long)
        progress("random directions", count, count)
        return np.stack(drawn)

    def like(
        self, delta: Float[Tensor, "n d"], direction: Float[NDArray[np.float32], "d"]
    ) -> Float[Tensor, "n d"]:
        """A direction with the norm of ``delta`` on every prompt."""
        found = same_norm(delta.double().numpy(), np.asarray(direction, dtype=np.float64))
        return torch.from_numpy(found.astype(np.float32))


@dataclass(frozen=True, slots=True, eq=False)
class SteeringCurve:
    """Mean scores over strengths with 95 % Wilson or t bands, beside random directions of the same norm.

    ``random_low``, ``random_median`` and ``random_high``: 5th, 50th and 95th percentile of their mean
    scores; at alpha 1 there is nothing to add, and they are the clean score.
    """

    features: tuple[int, ...]
    alphas: tuple[float, ...]
    clean: float
    score: Floats
    low: Floats
    high: Floats
    random_low: Floats
    random_median: Floats
    random_high: Floats
    prompts: int
    directions: int
    clean_scores: Floats
    scores: Floats

    def sweep(self) -> Sweep:
        """The strengths as cells of a sweep, of which the best may be asked for with a guard."""
        named = zip(self.alphas, self.scores, strict=True)
        cells = [Cell(f"x{alpha:g}", self.features, alpha, scores) for alpha, scores in named]
        return Sweep(self.clean_scores, tuple(cells))

    def to_json(self) -> Json:
        """As plain JSON."""
        told: Json = {}
        for name in self.__slots__:
            value = getattr(self, name)
            if name not in ("clean_scores", "scores"):
                told[name] = value.tolist() if isinstance(value, np.ndarray) else value
        return told | {"features": list(self.features), "alphas": list(self.alphas)}


def steering_curve(
    steering: Steering,
    features: Sequence[int],
    alphas: Sequence[float],
    *,
    directions: int = 20,
    seed: int = 0,
    progress: Progress = silent,
) -> SteeringCurve:
    """Scores under a feature at every strength, and the band of random directions of the same norm.

    Raises:
        BadInput: no alphas, or fewer than 20 directions (their 95th percentile would be their largest).
        CannotDo: a feature that writes nothing into this model.
    """
    if not alphas or directions < 20:
        raise BadInput("a steering curve needs alphas and 20 random directions", where="crosscoder steer")
    base = steering.clean().long
    clean = float(base.mean())
    rows, bands, every = [], [], []
    for alpha in alphas:
        delta = steering.delta(features, alpha)
        scores = steering.under(delta).long
        every.append(scores)
        mean = stats.wilson(int(scores.sum()), len(scores)) if set(scores.tolist()) <= {0.0, 1.0} else None
        found = mean or stats.mean_interval(scores)
        rows.append((found.estimate, found.low, found.high))
        still = not bool(delta.any())
        means = np.full(directions, clean) if still else steering.randoms(
            delta, directions, seed, progress=progress
        ).mean(axis=1)  # fmt: skip
        bands.append(np.quantile(means, [0.05, 0.5, 0.95]))
    score, low, high = np.array(rows).T
    below, middle, above = np.array(bands).T
    return SteeringCurve(
        tuple(features), tuple(alphas), clean, score, low, high, below, middle, above,
        len(steering.trials.prompts), directions, base, np.stack(every),
    )  # fmt: skip
