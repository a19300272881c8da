"""The potential of recorded traces: forks at every token, and the tokens that may be cliffs."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np

from refork.errors import BadInput, CannotDo, Mismatch
from refork.forking.context import need_tokens
from refork.forking.potential import Sweep, action_steps, plan_sweep, run_sweep, token_chances
from refork.judge import Judge
from refork.policies.base import Policy, Sampling
from refork.progress import Progress, silent
from refork.sampling.noise import stream_of
from refork.tree.node import Point, Trajectory
from refork.worlds.base import World
from refork_methods.cliff.curve import Curve, Floats, Ints
from refork_methods.cliff.detect import Rule, screen, undecided
from refork_methods.cliff.table import DELTA0, LEAST_DRAWS, check_draws


@dataclass(frozen=True, slots=True)
class Scanned:
    """A trace with its potential. ``complete`` False: the budget ended before its last look."""

    end: Point
    trajectory: Trajectory
    curve: Curve
    complete: bool = True

    @property
    def points(self) -> list[Point]:
        """The point before each of the policy's tokens."""
        return boundary_points(self.end, self.trajectory)


@dataclass(frozen=True, slots=True)
class Nominee:
    """A token that may be a cliff: number ``index`` of the policy's tokens of a trace.

    ``before`` is the point before it; ``after`` the point behind it, None where the trace ends there.
    """

    trace: Scanned
    index: int
    before: Point
    after: Point | None

    @property
    def token(self) -> int:
        """The token id."""
        assert self.before.node.tokens is not None
        return int(self.before.node.tokens[self.before.keep])

    @property
    def text(self) -> str:
        """What the token adds to the transcript; empty where its place in the text is not recorded."""
        node, t = self.before.node, self.before.keep
        return "" if node.offsets is None else node.text_upto(t + 1)[len(node.text_upto(t)) :]


def boundary_points(end: Point, trajectory: Trajectory) -> list[Point]:
    """The point before each of the policy's tokens of a trajectory."""
    return [Point(node, t, end.tree) for node, keep in action_steps(trajectory) for t in range(keep)]


def looks(draws: int) -> list[int]:
    """Draws to add at each look: 16, then as many again until ``draws`` are there."""
    total, added = LEAST_DRAWS, [min(LEAST_DRAWS, draws)]
    while total < draws:
        added.append(min(total, draws - total))
        total += added[-1]
    return added


def _curve(swept: Sweep, at: Ints, length: int) -> Curve:
    """A sweep of some boundaries as counts along the whole trace; pairs only across neighbours."""
    wins, draws = np.zeros(length), np.zeros(length, dtype=np.int64)
    pairs = np.zeros(length, dtype=np.int64)
    total, square = np.zeros(length), np.zeros(length)
    wins[at], draws[at] = swept.total, swept.count
    # Across a gap a pair would measure the drop of several tokens at once.
    near = np.append(np.diff(at) == 1, at[-1] == length - 1)
    mine = at[near]
    pairs[mine] = swept.paired.count[near]
    total[mine], square[mine] = swept.paired.total[near], swept.paired.square[near]
    return Curve(
        wins, draws, swept.outcome, swept.follow, pairs, total, square,
        swept.sampled, swept.served, swept.tokens,
    )  # fmt: skip


def _check(end: Point, trajectory: Trajectory, settings: Sampling | None) -> None:
    said = [i for i, step in enumerate(trajectory.steps) if step.node.kind == "action"]
    # What ended an episode was never shown to the policy and has no token ids.
    need_tokens(Trajectory(trajectory.steps[: said[-1] + 1] if said else trajectory.steps))
    for node, _ in action_steps(trajectory):
        own = Sampling.from_json(node.settings or {})
        if settings is not None and own.distribution != settings.distribution:
            raise Mismatch(
                "the continuations would be sampled under another distribution than the trace was",
                where=f"node {node.id[:12]}",
                hint="leave the settings out: the recorded ones are used",
            )


def _gradable(end: Point, settings: Sampling | None, *, graded: bool) -> Trajectory:
    """The trajectory of a trace that can be scanned; see :func:`token_potential` for what is refused."""
    if end.tree is None:
        raise BadInput("this point belongs to no tree; take it with tree.at(node)")
    trajectory = end.tree.path(end)
    _check(end, trajectory, settings)
    if not graded:
        raise BadInput(
            "nobody can say whether a continuation is right",
            where=f"node {end.node.id[:12]}",
            hint="name the world the trace is from, or a judge with the right answer (--success-regex)",
        )
    return trajectory


def token_potential(
    end: Point,
    policy: Policy,
    n: int = 64,
    *,
    reuse: bool = True,
    sequential: bool = True,
    delta0: float = DELTA0,
    settings: Sampling | None = None,
    score: str = "success",
    world: World | None = None,
    judge: Judge | None = None,
    seed: int = 0,
    room: int | None = None,
    progress: Progress = silent,
) -> Scanned:
    """The potential of the trace that ends at ``end``, at every token of the policy.

    ``n`` draws serve every boundary; with ``reuse`` a draw serves each one that it passes. ``sequential``
    begins with 16 and goes on only where a cliff is still in doubt: cheaper, but the values at which it
    stopped are slightly biased towards the reason they stopped for; without it every value is
    unbiased. ``room``: continuations that may still be sampled.

    Raises:
        BadInput: fewer than 16 draws, no sampled token, or nobody who could grade.
        Mismatch: settings under another distribution than the trace's.
        CannotDo: token ids or log-probs are missing.
    """
    check_draws(n)
    trajectory = _gradable(end, settings, graded=world is not None or judge is not None)
    length = len(boundary_points(end, trajectory))
    curve: Curve | None = None
    wanted = np.arange(length)
    for number, added in enumerate(looks(n) if sequential else [n]):
        if curve is not None:
            doubt = np.flatnonzero(undecided(curve, delta0=delta0))
            # A drop needs draws at both its boundaries; the one behind the last token is the outcome.
            wanted = np.unique(np.concatenate([doubt, doubt + 1]))
            wanted = wanted[wanted < length]
            if not len(wanted):
                break
        # Under one seed every look would be served the first look's draws again and count them twice.
        fresh = seed if number == 0 else stream_of("look", seed, number) >> 33
        plan = plan_sweep(
            end, policy, added, at=wanted.tolist(), score=score, reuse=reuse, settings=settings,
            world=world, judge=judge, seed=fresh,
        )  # fmt: skip
        if room is not None and plan.continuations > room - (curve.sampled if curve else 0):
            return Scanned(end, trajectory, curve or _nothing(length, plan.outcome, plan.follow), False)
        part = _curve(run_sweep(plan, judge=judge, progress=progress), wanted, length)
        curve = part if curve is None else curve + part
    assert curve is not None
    if not curve.draws.any():
        raise BadInput(
            "no continuation of this trace was graded",
            where=f"node {end.node.id[:12]}",
            hint="ungraded is not wrong: see why with `refork tree path`",
        )
    if not reuse:
        curve = replace(curve, chance=_chances(policy, trajectory, settings))
    return Scanned(end, trajectory, curve)


def _chances(policy: Policy, trajectory: Trajectory, settings: Sampling | None) -> Floats:
    """Probabilities of the tokens, NaN where the record does not tell."""
    try:
        return token_chances(policy, trajectory, settings)
    except CannotDo:
        return np.full(sum(keep for _, keep in action_steps(trajectory)), np.nan)


def _nothing(length: int, outcome: float | None, follow: Floats) -> Curve:
    none, zero = np.zeros(length, dtype=np.int64), np.zeros(length)
    return Curve(zero, none, outcome, follow, none, zero, zero, 0, 0, 0)


def scan(
    ends: Sequence[Point],
    policy: Policy,
    n: int = 64,
    *,
    budget: int | None = None,
    progress: Progress = silent,
    sequential: bool = True,
    reuse: bool = True,
    delta0: float = DELTA0,
    score: str = "success",
    world: World | None = None,
    judge: Judge | None = None,
    seed: int = 0,
) -> Iterator[Scanned]:
    """Potentials of several traces, yielded as they finish; stops before ``budget`` continuations are passed.

    A trace that the budget cut short comes last, marked as not complete.
    """
    spent = 0
    for number, end in enumerate(ends):
        room = None if budget is None else budget - spent
        found = token_potential(
            end, policy, n, reuse=reuse, sequential=sequential, delta0=delta0, score=score, world=world,
            judge=judge, seed=seed, room=room,
        )  # fmt: skip
        spent += found.curve.sampled
        progress("scanning traces", number + 1, len(ends), tokens=found.curve.tokens)
        yield found
        if not found.complete:
            return


def nominate(
    result: Scanned, *, rule: Rule = "paired", delta0: float = DELTA0, alpha: float = 0.05
) -> list[Nominee]:
    """Tokens of a trace that may be cliffs, for a test on fresh draws."""
    points = result.points
    return [
        Nominee(result, int(t), points[t], points[t + 1] if t + 1 < len(points) else None)
        for t in screen(result.curve, rule=rule, delta0=delta0, alpha=alpha)
    ]
