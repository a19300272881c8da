"""What deciding otherwise would have earned: regret to the oracle, and the gap to the best simple rule."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from jaxtyping import Float, Int, Shaped

from refork.errors import BadInput
from refork.stats import Interval, paired_bootstrap, paired_difference
from refork.stats.results import Array, finite


@dataclass(frozen=True, slots=True)
class Regret:
    """Mean utilities of a choice on the same cases as its bounds.

    ``oracle`` takes the best option of each case, ``fixed`` the one option that is best over all (``best``,
    its index); ``regret`` is oracle minus chosen, with its interval over cases.
    """

    chosen: float
    oracle: float
    fixed: float
    best: int
    regret: Interval


def regret(
    utilities: Float[Array, "cases options"],
    chosen: Int[Array, cases],
    level: float = 0.95,
    *,
    groups: Int[Array, cases] | None = None,
) -> Regret:
    """How much each case lost by the option chosen for it; NaN marks an option that a case does not have.

    Cases of one of ``groups`` are not independent (turns of one task): every group counts once, by its mean,
    and the interval is over groups.

    Raises: BadInput for fewer than two cases or groups, a choice out of range or not open, a case without
    options, or no option that every case has.
    """
    table, picks = np.asarray(utilities, dtype=np.float64), np.asarray(chosen)
    if table.ndim != 2 or table.shape[0] != picks.size or table.shape[0] < 2:
        raise BadInput(f"utilities {table.shape} and {picks.size} choices do not fit")
    if np.isnan(table).all(axis=1).any():
        raise BadInput(
            "a case has no option at all", where=f"case {int(np.isnan(table).all(axis=1).argmax())}"
        )
    if picks.min() < 0 or picks.max() >= table.shape[1]:
        raise BadInput(f"a choice is outside 0 .. {table.shape[1] - 1}")
    got = table[np.arange(picks.size), picks]
    if np.isnan(got).any():
        raise BadInput(
            "a case was given an option it does not have", where=f"case {int(np.isnan(got).argmax())}"
        )
    whole = ~np.isnan(table).any(axis=0)
    if not whole.any():
        raise BadInput("no option is open in every case, so there is no fixed one to compare with")
    best_each, filled = np.nanmax(table, axis=1), np.where(np.isnan(table), 0.0, table)
    if groups is not None:
        if np.shape(groups) != picks.shape:
            raise BadInput(f"{np.size(groups)} groups for {picks.size} cases")
        place = np.unique(np.asarray(groups), return_inverse=True)[1]
        got, best_each = _group_means(got, place), _group_means(best_each, place)
        filled = np.stack([_group_means(column, place) for column in filled.T], axis=1)
    # An option that some case lacks cannot be the fixed one; its mean with zeros filled in must not win.
    means = np.where(whole, filled.mean(axis=0), -np.inf)
    best = int(means.argmax())
    lost = paired_difference(got, best_each, level).interval  # never without width
    return Regret(float(got.mean()), float(best_each.mean()), float(means[best]), best, lost)


def _group_means(values: np.ndarray, place: np.ndarray) -> np.ndarray:
    return np.asarray(np.bincount(place, values) / np.bincount(place))


@dataclass(frozen=True, slots=True)
class BestRule:
    """A policy beside simple rules on the same cases: ``rule`` is their best by mean, ``means`` has all.

    ``gap`` is policy minus that rule, paired over cases. The rule is picked in hindsight on these very
    cases, which favours it: the gap is conservative. ``reference`` is the gap to a rule asked for by name.
    """

    mean: float
    rule: str
    means: Mapping[str, float]
    gap: Interval
    reference: Interval | None = None


def against_rules(
    policy: Shaped[Array, "cases"],
    rules: Mapping[str, Shaped[Array, cases]],
    rng: np.random.Generator,
    *,
    reference: str | None = None,
    level: float = 0.95,
    resamples: int = 10_000,
) -> BestRule:
    """Put a policy's utilities beside those of every simple rule, and of ``reference`` by name.

    Raises: BadInput for no rules, unequal lengths, or a reference that is not among them.
    """
    mine = finite(policy, "utilities")
    if not rules:
        raise BadInput("there is no simple rule to compare with")
    if reference is not None and reference not in rules:
        raise BadInput(f"there is no rule {reference!r}", hint=f"one of {', '.join(sorted(rules))}")
    means = {name: float(finite(values, f"utilities of {name}").mean()) for name, values in rules.items()}
    best = max(means, key=lambda name: (means[name], name))

    def gap(name: str) -> Interval:
        return paired_bootstrap(rules[name], mine, rng, level=level, resamples=resamples, method="percentile")

    return BestRule(
        float(mine.mean()), best, means, gap(best), gap(reference) if reference is not None else None
    )
