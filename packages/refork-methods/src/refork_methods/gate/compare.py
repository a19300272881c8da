"""A replayed policy beside every simple rule, and its promises beside what happened."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import TypeVar, final

import numpy as np

from refork.decide import BestRule, against_rules, brier, calibration_error
from refork.decide.calibrate import Reliability, reliability
from refork.errors import BadInput
from refork.stats import benjamini_hochberg, paired_difference
from refork.stats.power import detectable_difference
from refork.stats.results import Interval
from refork_methods.gate.evaluate import worth
from refork_methods.gate.model import CriticModel, Prices, Rate
from refork_methods.gate.policy import Policy, Verify
from refork_methods.gate.problem import in_floats
from refork_methods.gate.replay import Replay

Key = TypeVar("Key")


@final
@dataclass(frozen=True, slots=True)
class Comparison:
    """A policy minus the best simple rule and minus always-verify, paired over instances.

    ``p`` tests no difference to the best rule. ``detectable`` is the smallest difference to it that this
    many instances show in four of five such samples.
    """

    policy: str
    best: BestRule
    p: float
    detectable: float
    instances: int


def compare(
    replays: Mapping[str, Replay],
    policy: str,
    rng: np.random.Generator,
    *,
    others: tuple[str, ...] = (),
    reference: str = "always_verify",
    level: float = 0.95,
    resamples: int = 1000,
) -> Comparison:
    """Put one replayed policy beside the others as rules (without ``others``), always-verify among them.

    Instances are resampled whole, so several episodes of one stay together.

    Raises: BadInput for a policy or reference that was not replayed, other instances, or fewer than two.
    Source: arXiv:2606.24453 (1000 resamples, 95 %); it reports the gap to always-verify only.
    """
    if policy not in replays:
        raise BadInput(f"{policy!r} was not replayed", hint=f"one of {', '.join(replays)}")
    mine = replays[policy]
    rules = {name: one for name, one in replays.items() if name != policy and name not in others}
    for name, one in rules.items():
        if one.instances != mine.instances:
            raise BadInput(f"{name} and {policy} were replayed on different instances")
    utilities = {name: one.utilities for name, one in rules.items()}
    best = against_rules(
        mine.utilities, utilities, rng, reference=reference, level=level, resamples=resamples
    )
    rule = utilities[best.rule]
    return Comparison(
        policy,
        best,
        paired_difference(rule, mine.utilities, level).p,
        detectable_difference(mine.utilities - rule, level=level),
        len(mine.instances),
    )


@final
@dataclass(frozen=True, slots=True)
class Cell:
    """One of many comparisons: its p adjusted for their number, and whether it stands."""

    comparison: Comparison
    p_adjusted: float
    found: bool


def adjust(cells: Mapping[Key, Comparison], rate: float = 0.05) -> dict[Key, Cell]:
    """Comparisons of many cells at a false discovery rate. Raises BadInput for none."""
    if not cells:
        raise BadInput("there is no comparison to adjust")
    adjusted = benjamini_hochberg(np.array([one.p for one in cells.values()]), rate)
    return {
        name: Cell(one, float(p), bool(found))
        for (name, one), p, found in zip(cells.items(), adjusted.p, adjusted.rejected, strict=True)
    }


@final
@dataclass(frozen=True, slots=True)
class CalibrationCheck:
    """Whether a policy earns what its model says, and whether its beliefs come true.

    ``z``: (realised - predicted) over the standard error of the realised mean; None for one instance.
    ``z_fitted`` adds the spread of the prediction over the model's posterior, where it was asked for.
    ``ece`` and ``brier`` are of the beliefs in the candidates visited.
    """

    realised: Interval
    predicted: float
    z: float | None
    spread: float | None
    z_fitted: float | None
    ece: float
    brier: float
    reliability: tuple[Reliability, ...]


def check_calibration(
    found: Replay,
    policy: Policy,
    model: CriticModel,
    prices: Prices,
    *,
    horizon: int = 3,
    verify: Verify = "terminal",
    posterior_draws: int = 0,
    seed: int = 0,
) -> CalibrationCheck:
    """Hold a replay against the value that the model predicts for its policy, by exact enumeration.

    Raises: BadInput as :func:`refork_methods.gate.evaluate.worth`.
    """
    predicted = worth(policy, in_floats(model, prices, horizon, verify))
    spread = None
    if posterior_draws > 1:
        rng = np.random.default_rng(seed)
        values = [
            worth(policy, in_floats(drawn(model, rng), prices, horizon, verify))
            for _ in range(posterior_draws)
        ]
        spread = float(np.std(values, ddof=1))
    return check_prediction(found, predicted, spread)


def check_prediction(found: Replay, predicted: float, spread: float | None = None) -> CalibrationCheck:
    """Hold a replay against a predicted mean utility; ``spread`` is the prediction's own standard error."""
    gap, error = found.mean().estimate - predicted, found.error
    known = error > 0
    outcomes = found.right.astype(np.float64)
    return CalibrationCheck(
        found.mean(),
        predicted,
        gap / error if known else None,
        spread,
        None if spread is None or not known else gap / float(np.hypot(error, spread)),
        calibration_error(found.beliefs, outcomes),
        brier(found.beliefs, outcomes),
        tuple(reliability(found.beliefs, outcomes)),
    )


def drawn(model: CriticModel, rng: np.random.Generator) -> CriticModel:
    """A model whose rates are one draw from the posterior; rates that are given stay."""

    def rate(of: Rate) -> float:
        if isinstance(of, float | int):
            return float(of)
        return float(rng.beta(of.successes + of.a, of.trials - of.successes + of.b))

    critics = tuple(replace(c, alpha=rate(c.alpha), beta=rate(c.beta)) for c in model.critics)
    kernel = replace(model.kernel, fix=rate(model.kernel.fix), breaks=rate(model.kernel.breaks))
    return replace(model, prior=rate(model.prior), critics=critics, kernel=kernel)
