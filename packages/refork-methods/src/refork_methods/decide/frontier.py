"""Quality against cost: which options nothing else beats, and one number for a whole curve."""

from __future__ import annotations

import numpy as np
from jaxtyping import Bool, Shaped

from refork.errors import BadInput
from refork.stats.results import Array, finite


def frontier(
    quality: Shaped[Array, "options"], *costs: Shaped[Array, options]
) -> Bool[np.ndarray, "options"]:
    """Which options are not dominated by one that is as good and as cheap in everything, and better in one.

    Raises: BadInput for NaN (an unknown cost is not a cost of 0), unequal lengths or no cost.
    """
    if not costs:
        raise BadInput("a frontier needs at least one cost")
    q = finite(quality, "qualities")
    prices = [finite(cost, "costs") for cost in costs]
    if any(price.shape != q.shape for price in prices):
        raise BadInput("every option needs one quality and one of each cost")
    better = np.stack([q, *(-price for price in prices)], axis=1)
    as_good = (better[:, None, :] >= better[None, :, :]).all(axis=2)
    strictly = (better[:, None, :] > better[None, :, :]).any(axis=2)
    return np.asarray(~(as_good & strictly).any(axis=0), dtype=np.bool_)


def area_under_frontier(
    quality: Shaped[Array, "options"], cost: Shaped[Array, options], low: float, high: float
) -> float:
    """Mean over budgets in ``[low, high]`` of the best quality that a mixture of options buys.

    Options may be mixed by chance, so the curve is the upper concave hull of the points, level beyond the
    dearest useful one. Raises: BadInput where no option is as cheap as ``low``, or ``low >= high``.
    """
    q, c = finite(quality, "qualities"), finite(cost, "costs")
    if not low < high:
        raise BadInput(f"the budgets {low} .. {high} are no range")
    if c.min() > low:
        raise BadInput(f"no option costs {low} or less", hint=f"begin at {c.min()}")
    hull: list[tuple[float, float]] = []
    for x, y in sorted(zip(c.tolist(), q.tolist(), strict=True), key=lambda point: (point[0], -point[1])):
        if hull and y <= hull[-1][1]:
            continue
        while len(hull) > 1 and (hull[-1][1] - hull[-2][1]) * (x - hull[-2][0]) <= (y - hull[-2][1]) * (
            hull[-1][0] - hull[-2][0]
        ):
            hull.pop()
        hull.append((x, y))
    xs, ys = np.array([p[0] for p in hull]), np.array([p[1] for p in hull])
    grid = np.unique(np.concatenate([[low, high], xs[(xs > low) & (xs < high)]]))
    return float(np.trapezoid(np.interp(grid, xs, ys), grid) / (high - low))
