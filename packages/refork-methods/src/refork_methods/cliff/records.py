"""Scanned tokens and re-tested cliffs as plain data, for files and tables; None means never computed."""

from __future__ import annotations

import numpy as np

from refork import stats
from refork.policies.base import NextDistribution, Policy
from refork.types import Json
from refork_methods.cliff.bound import max_drop
from refork_methods.cliff.kinds import token_rank, top_entropy
from refork_methods.cliff.scan import Nominee, Scanned
from refork_methods.cliff.verify import Cliff

#: Prefixes whose distributions are held in memory at once.
_AT_ONCE = 64


def token_rows(result: Scanned, policy: Policy) -> list[Json]:
    """One record per token of a scanned trace; None where something was never computed."""
    distributions = _token_distributions(result, policy)
    curve, rows = result.curve, []
    value = curve.value
    # Graded outcomes may sum to a whole number at one token, hardly at all.
    binary = bool(np.allclose(curve.wins, np.round(curve.wins), rtol=0, atol=1e-9))
    for i, point in enumerate(result.points):
        k, n = float(curve.wins[i]), int(curve.draws[i])
        interval = stats.wilson(round(k), n) if binary and n > 0 else None
        pi, after = float(curve.chance[i]), float(value[i + 1])
        possible = None if np.isnan(pi) else float(max_drop(pi, 0.0 if np.isnan(after) else after))
        nominee = Nominee(result, i, point, None)
        rows.append(
            {
                "leaf": result.end.node.id,
                "index": i,
                "node": point.node.id,
                "token": point.keep,
                "id": nominee.token,
                "text": nominee.text,
                "k": k,
                "n": n,
                "value": None if n == 0 else k / n,
                "low": interval.low if interval else None,
                "high": interval.high if interval else None,
                "pi": None if np.isnan(pi) else pi,
                "max_possible_drop": possible,
                **(
                    distributions[i]
                    if distributions
                    else {"entropy": None, "entropy_lower_bound": None, "rank": None}
                ),
            }
        )
    return rows


def _token_distributions(found: Scanned, policy: Policy) -> list[Json] | None:
    """Entropy and rank at every token, temperature 1; None where the policy can only sample."""
    if not isinstance(policy, NextDistribution):
        return None
    assert found.end.tree is not None
    points = found.points
    rows: list[Json] = []
    for first in range(0, len(points), _AT_ONCE):
        part = points[first : first + _AT_ONCE]
        distributions = policy.next_logprobs([found.end.tree.path(point).tokens for point in part])
        for point, distribution in zip(part, distributions, strict=True):
            assert point.node.tokens is not None
            entropy = top_entropy(distribution)
            rank = token_rank(distribution, float(distribution[point.node.tokens[point.keep]]))
            rows.append({"entropy": entropy.nats, "entropy_lower_bound": entropy.lower_bound, "rank": rank})
    return rows


def cliff_row(cliff: Cliff) -> Json:
    """A re-tested token as plain data."""
    at = cliff.nominee
    return {
        "leaf": at.trace.end.node.id, "index": at.index, "node": at.before.node.id, "token": at.before.keep,
        "id": at.token, "text": at.text, "before": list(cliff.before), "after": list(cliff.after),
        "drop": cliff.drop if cliff.before[1] and cliff.after[1] else None,
        "p": cliff.p, "q": cliff.q, "real": cliff.real,
        "pi": None if np.isnan(cliff.chance) else cliff.chance,
        "max_possible_drop": None if np.isnan(cliff.possible) else cliff.possible,
        "kind": cliff.kind, "entropy": cliff.entropy.nats if cliff.entropy else None,
        "entropy_lower_bound": cliff.entropy.lower_bound if cliff.entropy else None, "rank": cliff.rank,
    }  # fmt: skip
