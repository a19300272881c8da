"""Means over a sweep of crosscoders from the per-run records that the paper's repository releases. Pure."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from refork import stats
from refork.errors import BadInput
from refork.types import Json

METRIC = "tool_correctness"


def summarise_runs(rows: Sequence[Json], metric: str = METRIC) -> Json:
    """Accuracy of both models before and after a reconstruction patch, in points, over runs and by kind.

    A row holds ``hyperparameters`` (``k``, ``model_a_exclusive_pct``, ``exclusive_sparsity_coef``) and
    ``{metric}_A_pre``, ``_A_post``, ``_B_pre``, ``_B_post``. Groups are compared by Welch's test.

    Raises: BadInput for no rows, or one that lacks a field.
    Source: arXiv:2606.26474, the shape of its released results.
    """
    if not rows:
        raise BadInput("there are no runs to summarise", where="runs")
    try:
        values = {
            side: np.array([[float(r[f"{metric}_{side}_{at}"]) for at in ("pre", "post")] for r in rows])
            for side in ("A", "B")
        }
        hyper = [dict(r["hyperparameters"]) for r in rows]
        plain = np.array([float(h["model_a_exclusive_pct"]) == 0 for h in hyper])
        free = np.array([float(h["exclusive_sparsity_coef"]) == 0 for h in hyper])
        kept = np.array([int(h["k"]) for h in hyper])
    except (KeyError, TypeError, ValueError) as error:
        raise BadInput(f"a run lacks a field: {error}", where="runs") from error
    gain = {side: pair[:, 1] - pair[:, 0] for side, pair in values.items()}
    return {
        "runs": len(rows),
        **{side: _side(values[side]) for side in ("A", "B")},
        "plain_or_partitioned": {s: _groups(g, plain, ("plain", "partitioned")) for s, g in gain.items()},
        "free_or_penalised": _groups(values["A"][~plain, 1], free[~plain], ("free", "penalised")),
        "by_k": {
            side: {str(k): float(g[kept == k].mean()) for k in sorted(set(kept.tolist()))}
            for side, g in gain.items()
        },
    }


def _side(pair: np.ndarray) -> Json:
    gain = pair[:, 1] - pair[:, 0]
    spread: Callable[[np.ndarray], float] = lambda x: float(x.std(ddof=1)) if len(x) > 1 else float("nan")  # noqa: E731
    return {
        "before": float(pair[:, 0].mean()),
        "after": float(pair[:, 1].mean()),
        "gain": float(gain.mean()),
        "gain_sd": spread(gain),
        "best": float(gain.max()),
        "above_before": int((gain > 0).sum()),
    }


def _groups(values: np.ndarray, first: np.ndarray, names: tuple[str, str]) -> Json | None:
    """Means of two groups and Welch's p; None where a group has fewer than two runs."""
    one, two = values[first], values[~first]
    if min(len(one), len(two)) < 2:
        return None
    test = stats.welch(one, two)
    return {
        names[0]: float(one.mean()),
        names[1]: float(two.mean()),
        "n": [len(one), len(two)],
        "p": test.p,
    }
