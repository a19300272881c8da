"""Why one trace failed: the tokens that lost its success, proven, and what the worst of them cost."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from refork.forking import Effect, Remove, compare, fork_both
from refork.forking.grading import need_grader
from refork.judge import Judge
from refork.policies.base import Policy
from refork.progress import Progress, silent
from refork.sampling.noise import stream_of
from refork.tree.node import Point
from refork.types import Json
from refork.worlds.base import World
from refork_methods.cliff.records import cliff_row
from refork_methods.cliff.scan import Scanned, nominate, token_potential
from refork_methods.cliff.verify import Cliff, verify


@dataclass(frozen=True, slots=True)
class Why:
    """What is known of a trace: its potential, every nominee tested again, and the worst cliff undone.

    ``worst``: the proven cliff with the largest drop; None where none survived. ``effect``: going on without
    its token against going on behind it, on draws that neither found nor proved it. ``rollouts``: all that
    was drawn.
    """

    scan: Scanned
    cliffs: tuple[Cliff, ...]
    worst: Cliff | None
    effect: Effect | None
    rollouts: int

    def to_json(self) -> Json:
        """Plain data; ``value`` is the chance of success before each token, then the trace's own outcome."""
        curve = self.scan.curve
        return {
            "node": self.scan.end.node.id,
            "tokens": len(curve),
            "value": [float(v) if np.isfinite(v) else None for v in curve.value],
            "cliffs": [cliff_row(one) for one in self.cliffs],
            "worst": None if self.worst is None else cliff_row(self.worst),
            "effect": None if self.effect is None else self.effect.to_json(),
            "rollouts": self.rollouts,
        }


def why(
    end: Point,
    policy: Policy,
    draws: int = 64,
    *,
    world: World | None = None,
    judge: Judge | None = None,
    seed: int = 0,
    progress: Progress = silent,
) -> Why:
    """Scan the trace that ends at ``end``, test what falls again, and undo the worst of what survives.

    ``draws`` are those of a boundary, of either side of a re-test, and of either arm of the comparison. The
    comparison's arms are recorded on the tree.

    Raises: BadInput where nobody grades a continuation, and what :func:`token_potential` raises.
    """
    need_grader("success", world, judge, f"node {end.node.id[:12]}")
    found = token_potential(end, policy, draws, world=world, judge=judge, seed=seed, progress=progress)
    cliffs = verify(nominate(found), policy, draws, world=world, judge=judge, seed=seed, progress=progress)
    worst = max((one for one in cliffs if one.real), key=lambda one: one.drop, default=None)
    rollouts = found.curve.sampled + sum(one.sampled for one in cliffs)
    if worst is None:
        return Why(found, tuple(cliffs), None, None, rollouts)
    before, fresh = worst.nominee.before, stream_of("why", seed) >> 33
    assert end.tree is not None
    behind = end.tree.at(before.node, before.keep + 1)
    arms = fork_both(
        behind, policy, draws, Remove(tokens=1), world=world, judge=judge, seed=fresh, progress=progress
    )
    rollouts += sum(len(arm.draws) for arm in arms)
    return Why(found, tuple(cliffs), worst, compare(*arms), rollouts)
