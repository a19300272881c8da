"""Expected moves from the source to the target, exactly: a recurrence over diamonds, and its gradient.

With odds r against the desired moves write ``alpha = (1 + r_b) / (1 + r_a)`` and
``gamma = (1 + r_d) / (1 + r_c)``. A trip from the fork through a dead branch and back takes S_0 moves, where

    S_K = 2,   S_j = 2 + gamma_j (2 + alpha_j S_{j+1}),

one more than the way from "just left diamond j inward" to "entered diamond j outward" of the target branch is

    V_0 = 2 + (W - 1) S_0,   V_{j+1} = 2 + (2 + V_j / gamma_j) / alpha_j,

and H = V_0 + sum_j [2 + r_c V_j + r_a (2 + V_j / gamma_j)]. Nothing is subtracted, so float64 is good to a
few units in the last place at any size, where a dense solve is about 1 % off at 1e14. With
``fractions.Fraction`` odds the result is an exact rational.

Source: the chain is that of arXiv 2606.22938; the recurrence and its gradient are ours.
"""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from typing import Any, Literal, NamedTuple, final

import numpy as np
from numpy.typing import NDArray

from refork.errors import BadInput
from refork_methods.recovery.rows import BACKWARD, FORWARD, ROWS, A, B, C, D, Float64, RowPolicy

Method = Literal["recurrence", "sparse", "exact"]
#: Floats or Fractions (dtype object).
Numbers = NDArray[Any]


@final
@dataclass(frozen=True, slots=True)
class HittingTime:
    """Expected moves; ``stuck`` names the state that makes them infinite (None where they are finite).

    ``exact`` is the rational value, None where it was not asked for or is infinite.
    """

    value: float
    method: Method
    exact: Fraction | None = None
    stuck: str | None = None


class _Parts(NamedTuple):
    """What the recurrence passes through; lists over diamonds of arrays over policies."""

    alpha: list[Any]
    gamma: list[Any]
    trip: list[Any]
    way: list[Any]


def stuck_row(branches: int, odds: Numbers) -> str | None:
    """The first state whose only way on has probability 0, so that H is infinite; None where H is finite.

    ``odds`` [4, K]. Rows b and d matter only where there are dead branches to come back from.
    """
    needed = FORWARD if branches == 1 else (*FORWARD, *BACKWARD)
    for diamond in range(odds.shape[-1]):
        for row in needed:
            if odds[row, diamond] == np.inf:
                return f"{ROWS[row]}_{diamond}"
    return None


def _parts(branches: int, odds: Numbers) -> _Parts:
    diamonds = odds.shape[-1]
    with np.errstate(all="ignore"):
        alpha = [(1 + odds[..., B, j]) / (1 + odds[..., A, j]) for j in range(diamonds)]
        gamma = [(1 + odds[..., D, j]) / (1 + odds[..., C, j]) for j in range(diamonds)]
        trip: list[Any] = [2] * (diamonds + 1)
        # With one branch rows b and d may be infinite, and no dead branch times an infinite trip is NaN.
        for j in reversed(range(diamonds if branches > 1 else 0)):
            trip[j] = 2 + gamma[j] * (2 + alpha[j] * trip[j + 1])
        way: list[Any] = [2 + (branches - 1) * trip[0]]
        for j in range(diamonds - 1):
            way.append(2 + (2 + way[j] / gamma[j]) / alpha[j])
    return _Parts(alpha, gamma, trip, way)


def hitting_times(branches: int, odds: Numbers) -> Numbers:
    """Expected moves of many policies at once, [...]; ``odds`` [..., 4, K] as floats or Fractions.

    Infinite where a needed move has odds ``inf``.
    """
    parts = _parts(branches, odds)
    with np.errstate(all="ignore"):
        total: Any = parts.way[0]
        for j, (way, gamma) in enumerate(zip(parts.way, parts.gamma, strict=True)):
            total = total + 2 + odds[..., C, j] * way + odds[..., A, j] * (2 + way / gamma)
    if odds.dtype == object:
        return np.asarray(total, dtype=object)
    needed = list(FORWARD) if branches == 1 else [A, B, C, D]
    # Infinite odds also make NaN of 0 times infinity: those policies are told by their odds.
    stuck = np.isinf(odds[..., needed, :]).any(axis=(-2, -1))
    return np.where(stuck, np.inf, total)


def exact_odds(policy: RowPolicy) -> Numbers:
    """The odds as Fractions, [4, K]; gaps of 0 give exactly L and 1/L.

    Raises:
        BadInput: an infinite odds, which no Fraction holds.
    """
    wide = Fraction(policy.graph.edges)
    plain = (wide, 1 / wide, 1 / wide, wide)
    with np.errstate(over="ignore"):
        factor = np.exp(-policy.gaps)
    if bool(np.isinf(factor).any()):
        raise BadInput("a row that never goes on has no finite odds", where="maze policy")
    table = [[plain[r] * Fraction(float(factor[r, j])) for j in range(factor.shape[1])] for r in range(4)]
    return np.array(table, dtype=object)


def expected_hitting_time(policy: RowPolicy, method: Method = "recurrence") -> HittingTime:
    """Expected moves from the source to the target, the first step included.

    Args:
        policy: four rows of gaps.
        method: ``recurrence`` (float64, a few units in the last place at any size), ``exact`` (the same
            in rationals, of the float64 gaps taken as exact) or ``sparse`` (a linear solve of the
            chain; its error grows with the result, so beyond 1e10 it is refused).

    Raises:
        BadInput: an unknown method, or ``sparse`` beyond 1e10.
    """
    stuck = stuck_row(policy.graph.branches, policy.odds)
    if stuck is not None:
        return HittingTime(float("inf"), method, None, stuck)
    if method == "recurrence":
        return HittingTime(float(hitting_times(policy.graph.branches, policy.odds)), method)
    if method == "exact":
        value = Fraction(hitting_times(policy.graph.branches, exact_odds(policy)).item())
        return HittingTime(float(value), method, value)
    if method == "sparse":
        from refork_methods.recovery.chain import solved_hitting_time

        return HittingTime(solved_hitting_time(policy), method)
    raise BadInput(f"unknown method {method!r}", hint="known: recurrence, exact, sparse")


def hitting_gradient(branches: int, odds: Float64) -> tuple[Float64, Float64]:
    """H [...] and dH/dx [..., 4, K], x the logit gaps; ``odds`` [..., 4, K], finite.

    Reverse differentiation of the recurrence. It equals minus the sum over states of a row of visits
    times p (1 - p) times (H after turning - H after going on).
    """
    alpha, gamma, trip, way = _parts(branches, odds)
    grad = np.zeros(np.broadcast_shapes(odds.shape))
    d_alpha, d_gamma = [np.zeros(odds.shape[:-2]) for _ in alpha], [np.zeros(odds.shape[:-2]) for _ in gamma]
    total: Any = way[0]
    d_way: Any = 0.0
    for j in reversed(range(len(alpha))):
        back = 2 + way[j] / gamma[j]
        total = total + 2 + odds[..., C, j] * way[j] + odds[..., A, j] * back
        d_back = odds[..., A, j] + d_way / alpha[j]
        d_alpha[j] = d_alpha[j] - d_way * back / alpha[j] ** 2
        grad[..., A, j] += back
        grad[..., C, j] += way[j]
        d_gamma[j] = d_gamma[j] - d_back * way[j] / gamma[j] ** 2
        d_way = odds[..., C, j] + d_back / gamma[j]
    # The trip was built from the leaf inward, so its derivative runs from the fork outward.
    d_trip = (branches - 1) * (1 + d_way)
    for j in range(len(alpha) if branches > 1 else 0):
        d_gamma[j] = d_gamma[j] + d_trip * (2 + alpha[j] * trip[j + 1])
        inner = d_trip * gamma[j]
        d_alpha[j] = d_alpha[j] + inner * trip[j + 1]
        d_trip = inner * alpha[j]
    for j in range(len(alpha)):
        grad[..., B, j] += d_alpha[j] / (1 + odds[..., A, j])
        grad[..., A, j] -= d_alpha[j] * alpha[j] / (1 + odds[..., A, j])
        grad[..., D, j] += d_gamma[j] / (1 + odds[..., C, j])
        grad[..., C, j] -= d_gamma[j] * gamma[j] / (1 + odds[..., C, j])
    return np.asarray(total, dtype=np.float64), -odds * grad
