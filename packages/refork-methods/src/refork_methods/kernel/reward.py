"""What a kernel is worth to the search: nothing unless it is right, else the logarithm of its speed-up.

Source: arXiv 2606.26453 for a logarithmic reward behind a wall of correctness; the formula is ours.
"""

from __future__ import annotations

import math

from refork.errors import BadInput

#: The speed-up that earns 1, and more does not earn more.
MOST = 100.0


def reward(speedup: float | None, most: float = MOST) -> float:
    """Log reward in [0, 1] of a speed-up (reference seconds over own); None is a kernel that is not right.

    0 for a wrong one, ln(1 + s) / ln(1 + most) else: about .15 at the reference's own speed, so that any
    right kernel beats any wrong one.

    Raises:
        BadInput: a speed-up that is not above 0, or ``most`` that is not above 1.
    """
    if most <= 1:
        raise BadInput(f"most = {most}", where="kernel reward", hint="above 1")
    if speedup is None:
        return 0.0
    if not speedup > 0:
        raise BadInput(f"a speed-up of {speedup}", where="kernel reward", hint="reference seconds over own")
    return min(1.0, math.log1p(speedup) / math.log1p(most))
