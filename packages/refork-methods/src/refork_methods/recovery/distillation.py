"""Data sets to imitate: with recoveries kept, without them, or with a stated share of them."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from refork.errors import BadInput
from refork_methods.recovery.traces import StateKey, Trace, erased, normalised_key, shorten, successful


def build_distillation_set(
    traces: Sequence[Trace],
    *,
    key: StateKey = normalised_key,
    keep_recoveries: bool = True,
    threshold: float = 1.0,
) -> list[Trace]:
    """The successful traces, whole (the default) or shortened to their detour-free paths.

    Raises:
        BadInput: no trace succeeded.
    """
    won = _successes(traces, threshold)
    return won if keep_recoveries else [shorten(trace, key) for trace in won]


def mix_traces(
    traces: Sequence[Trace],
    fraction: float,
    *,
    key: StateKey = normalised_key,
    threshold: float = 1.0,
    seed: int = 0,
) -> list[Trace]:
    """The successful traces, a fraction of them whole with a recovery in each, the others shortened.

    Which stay whole is drawn without replacement from those that hold a recovery. The order of the traces
    is kept.

    Raises:
        BadInput: a fraction outside [0, 1], no success, or fewer traces with a recovery than asked for.
    """
    if not 0 <= fraction <= 1:
        raise BadInput(f"the fraction is {fraction!r}; it must lie in [0, 1]", where="mix")
    won = _successes(traces, threshold)
    holders = [i for i, trace in enumerate(won) if erased(trace, key).recoveries]
    wanted = round(fraction * len(won))
    if wanted > len(holders):
        raise BadInput(
            f"{wanted} traces with a recovery are wanted, {len(holders)} of {len(won)} hold one",
            where="mix",
            hint=f"use a fraction of at most {len(holders) / len(won):.3f}",
        )
    # By number: traces cannot be hashed, and two of them may be equal.
    whole = set(np.random.default_rng(seed).choice(holders, wanted, replace=False).tolist())
    return [trace if i in whole else shorten(trace, key) for i, trace in enumerate(won)]


def _successes(traces: Sequence[Trace], threshold: float) -> list[Trace]:
    won = successful(traces, threshold)
    if not won:
        raise BadInput(
            f"none of {len(traces)} traces has an outcome of at least {threshold:g}",
            where="distillation set",
            hint="lower the threshold, or collect traces that succeed",
        )
    return won
