"""Unbiased estimates from k successes of n draws."""

from __future__ import annotations

import math

from refork.errors import BadInput
from refork.stats.results import check_count


def pass_at_k(successes: int, draws: int, k: int) -> float:
    """Chance that at least one of ``k`` fresh draws succeeds, without bias.

    Raises: BadInput where ``k`` is not in 1 .. ``draws``.
    Source: Chen et al., Evaluating large language models trained on code, arXiv:2107.03374.
    """
    check_count(successes, draws)
    if not 1 <= k <= draws:
        raise BadInput(f"pass@{k} cannot be estimated from {draws} draws", hint=f"k in 1 .. {draws}")
    # Whole numbers of any size, divided once; comb is 0 where fewer than k draws failed.
    return 1.0 - math.comb(draws - successes, k) / math.comb(draws, k)


def outcome_variance(successes: int, draws: int) -> float:
    """``4 p (1 - p)`` without bias: 0 where the outcome is sure, 1 for a fair coin on average.

    Single estimates may pass 1: ``n / (n - 1)`` at an even split.

    Raises: BadInput for fewer than two draws.
    """
    check_count(successes, draws)
    if draws < 2:
        raise BadInput("one draw says nothing about variance", hint="draw at least two")
    return 4.0 * successes * (draws - successes) / (draws * (draws - 1))
