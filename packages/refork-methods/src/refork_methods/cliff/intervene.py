"""What a cliff costs: cut before it, keep it, or put another token there, and let the policy run on.

Deleting a token and being right in *one* of 64 tries proves nothing: a token is only nominated where success
before it was at least 0.19, and then 64 tries succeed almost surely. So effects are read at pass@1 (and up to
4), on draws that neither found nor re-tested the cliff, and beside the same intervention at a random
position of equal depth.

Source: the interventions are arXiv 2606.25524's; the fresh draws, the paired noise and the control
are our own.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np

from refork import stats
from refork.errors import BadInput
from refork.forking.arm import Fork, ReadyArm, prepare, run_jobs
from refork.forking.change import Change, Remove, Replace
from refork.judge import Judge
from refork.policies.base import Policy
from refork.progress import Progress, silent
from refork.sampling.noise import stream_of
from refork.tree.node import Point
from refork.worlds.base import World
from refork_methods.cliff.detect import Count
from refork_methods.cliff.scan import Nominee, Scanned
from refork_methods.cliff.verify import counts

Mode = Literal["delete", "keep", "replace"]

#: k of the pass@k that are reported.
KS = (1, 2, 4)


def _change(mode: Mode, token: int | None) -> Change | None:
    if mode not in ("delete", "keep", "replace"):
        raise BadInput(f"unknown intervention {mode!r}", hint="delete, keep or replace")
    if (token is not None) != (mode == "replace"):
        raise BadInput("a token id belongs to 'replace', and 'replace' needs one", where="intervention")
    if mode == "keep":
        return None
    return Remove(1) if mode == "delete" else Replace(1, ids=(int(token or 0),))


def _job(
    before: Point, policy: Policy, mode: Mode, draws: int, world: World | None, seed: int, token: int | None
) -> ReadyArm:
    assert before.tree is not None
    # Also to delete, the arm begins behind the token: arms share noise only where they begin at one point.
    behind = before.tree.at(before.node, before.keep + 1)
    return prepare(behind, policy, draws, change=_change(mode, token), world=world, seed=seed)


def intervene(
    before: Point,
    policy: Policy,
    mode: Mode,
    draws: int = 64,
    *,
    token: int | None = None,
    world: World | None = None,
    judge: Judge | None = None,
    seed: int = 0,
    progress: Progress = silent,
) -> Fork:
    """Continuations after the token behind ``before`` was deleted, kept, or replaced by ``token``.

    The arms of one point share their noise, so that they can be compared pair by pair.

    Raises: BadInput for an unknown mode, or a token without "replace".
    """
    job = _job(before, policy, mode, draws, world, seed, token)
    return run_jobs([job], judge=judge, progress=progress, stage=mode)[0]


@dataclass(frozen=True, slots=True)
class Contrast:
    """Deleting against keeping, position by position: (successes, graded draws) of each arm."""

    deleted: tuple[Count, ...]
    kept_counts: tuple[Count, ...]
    sampled: int
    tokens: int

    def gain(self, k: int = 1) -> stats.Interval:
        """Mean of pass@k after deletion minus pass@k after keeping; positions are the units.

        Raises: BadInput for fewer than two positions.
        """
        kept = np.array([stats.pass_at_k(*count, k) for count in self.kept_counts])
        deleted = np.array([stats.pass_at_k(*count, k) for count in self.deleted])
        return stats.paired_difference(kept, deleted).interval

    def pass_at(self, k: int) -> tuple[float, float]:
        """Mean pass@k after deletion and after keeping."""
        return (
            float(np.mean([stats.pass_at_k(*count, k) for count in self.deleted])),
            float(np.mean([stats.pass_at_k(*count, k) for count in self.kept_counts])),
        )


def contrast(
    positions: Sequence[Nominee],
    policy: Policy,
    draws: int = 64,
    *,
    score: str = "success",
    world: World | None = None,
    judge: Judge | None = None,
    seed: int = 0,
    progress: Progress = silent,
) -> Contrast:
    """Delete and keep at every position, on draws that no scan and no re-test has used.

    Behind the last token of a trace nothing can run on: there "kept" is the trace's own outcome. Positions
    that nobody graded are left out.
    """
    fresh = stream_of("intervention", seed) >> 33
    jobs: list[ReadyArm] = []
    for at in positions:
        modes: tuple[Mode, ...] = ("delete",) if at.after is None else ("delete", "keep")
        jobs += [_job(at.before, policy, mode, draws, world, fresh, None) for mode in modes]
    # One arm at the last token of a trace and two elsewhere: below they are taken in the same order.
    arms = iter(run_jobs(jobs, judge=judge, progress=progress, stage="deleting and keeping"))
    deleted, kept, tokens = [], [], 0
    for at in positions:
        arm = next(arms)
        tokens += arm.tokens
        gone = counts(arm, score, draws)
        if at.after is None:
            outcome = at.trace.curve.outcome
            stay = (0, 0) if outcome is None else (round(draws * float(outcome >= 1.0)), draws)
        else:
            arm = next(arms)
            tokens += arm.tokens
            stay = counts(arm, score, draws)
        if gone[1] and stay[1]:
            deleted.append(gone)
            kept.append(stay)
    return Contrast(tuple(deleted), tuple(kept), len(jobs) * draws, tokens)


def random_positions(
    cliffs: Sequence[Nominee],
    traces: Sequence[Scanned],
    *,
    each: int = 1,
    seed: int = 0,
    avoid: Sequence[Nominee] = (),
) -> list[Nominee]:
    """For every cliff ``each`` positions of equal depth in traces drawn by chance: the control.

    A position's depth is its number among the policy's tokens. Tokens that any cliff given stands on, or one
    of ``avoid``, are not drawn, and none is drawn twice. Where no trace is left that is so long, the control
    of this cliff is left out.
    """
    rng = np.random.default_rng(seed)
    taken = {(c.trace.end.address, c.index) for c in (*cliffs, *avoid)}
    found: list[Nominee] = []
    for cliff in cliffs:
        fit = [t for t in traces if cliff.index < len(t.curve) and (t.end.address, cliff.index) not in taken]
        for pick in rng.permutation(len(fit))[:each]:
            trace = fit[int(pick)]
            taken.add((trace.end.address, cliff.index))
            points = trace.points
            after = points[cliff.index + 1] if cliff.index + 1 < len(points) else None
            found.append(replace(cliff, trace=trace, before=points[cliff.index], after=after))
    return found
