"""Whether a joint reconstruction changes the other model, beside a crosscoder of shuffled pairs."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from jaxtyping import Float
from numpy.typing import NDArray

from refork import stats
from refork.errors import BadInput
from refork.policies.local import LocalPolicy
from refork_methods.crosscoder.model import CrossCoder
from refork_methods.crosscoder.paired import Pairs
from refork_methods.crosscoder.partition import Side
from refork_methods.crosscoder.patch import patch_edit
from refork_methods.crosscoder.trials import Trials

Floats = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Spillover:
    """Change of a model's mean score when its state is replaced by its part of a joint reconstruction.

    ``z`` is the change over its standard error (0 where no prompt changed); within 2 it may be nothing.
    """

    clean: float
    patched: float
    change: float
    standard_error: float
    z: float
    prompts: int


def change_in_score(clean: Float[Floats, "n"], patched: Float[Floats, "n"]) -> Spillover:
    """Paired change of mean scores with its standard error.

    Raises:
        BadInput: scores of other prompts, or fewer than two.
    """
    if clean.shape != patched.shape or clean.ndim != 1 or len(clean) < 2:
        raise BadInput(f"scores {clean.shape} and {patched.shape} are not pairs", where="spillover")
    d = patched - clean
    error = float(d.std(ddof=1) / np.sqrt(len(d)))
    change = float(d.mean())
    return Spillover(
        float(clean.mean()),
        float(patched.mean()),
        change,
        error,
        change / error if error > 0 else 0.0,
        len(d),
    )


def spillover(
    model: CrossCoder, policy: LocalPolicy, pairs: Pairs, trials: Trials, which: Side = "B"
) -> Spillover:
    """Effect in one model of patching in its own part of the joint reconstruction.

    Raises:
        BadInput: pairs of other prompts than the trials'.
    """
    if pairs.positions == "last" and len(pairs.a) != len(trials.prompts):
        raise BadInput(f"{len(pairs.a)} pairs for {len(trials.prompts)} prompts", where="spillover")
    view = policy.edited(patch_edit(model, pairs, which))
    return change_in_score(trials.run(policy).long, trials.run(view).long)


def shuffled(
    a: Float[NDArray[np.float32], "n a"], b: Float[NDArray[np.float32], "n b"], seed: int = 0
) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
    """Pairs torn apart: B's rows in another order, so that nothing the models share can be learned.

    Raises:
        BadInput: not as many rows, or fewer than two.
    """
    if len(a) != len(b) or len(a) < 2:
        raise BadInput(f"{len(a)} and {len(b)} rows cannot be shuffled pairs", where="spillover")
    return a, b[np.random.default_rng(seed).permutation(len(b))]


def difference_of_spillovers(real: Spillover, control: Spillover) -> stats.Interval:
    """Change of the real crosscoder minus that of the shuffled one, 95 % (normal, independent arms)."""
    gap = real.change - control.change
    reach = 1.959963984540054 * float(np.hypot(real.standard_error, control.standard_error))
    return stats.Interval(gap, gap - reach, gap + reach, 0.95, "normal")
