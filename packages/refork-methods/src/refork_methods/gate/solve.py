"""Backward induction on a grid of beliefs, with a bracket that the true value lies in."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Generic, TypeAlias, final

import numpy as np
from jaxtyping import Float

from refork.errors import BadInput, CannotDo
from refork_methods.gate.model import (
    GENERATE,
    SHIP,
    STOP,
    VERIFY,
    CriticModel,
    Prices,
    Rate,
    chance,
    exact,
    rational,
)
from refork_methods.gate.policy import Number, Verify, pass_chance, posterior, transition, verify_from

# A model and its prices as plain numbers, in floats for use or in rationals for proofs.


@final
@dataclass(frozen=True, slots=True)
class Check(Generic[Number]):
    """One critic: P(pass | right), P(pass | wrong), price."""

    name: str
    right: Number
    wrong: Number
    price: Number


@final
@dataclass(frozen=True, slots=True)
class Problem(Generic[Number]):
    """The decision problem: at most ``horizon`` candidates, the first one there and paid for.

    Values count from that moment on: what the first candidate cost is spent whatever is decided.
    """

    prior: Number
    checks: tuple[Check[Number], ...]
    fix: Number
    breaks: Number
    reward: Number
    verify: Number
    generate: Number
    ship_loss: Number | None
    horizon: int
    retry: bool
    zero: Number


def in_floats(model: CriticModel, prices: Prices, horizon: int, verify: Verify) -> Problem[float]:
    """The problem in floats. Raises BadInput for no candidate, or an unknown way of verifying."""
    return _problem(model, prices, horizon, verify, chance, float)


def in_rationals(model: CriticModel, prices: Prices, horizon: int, verify: Verify) -> Problem[Fraction]:
    """The problem in rationals; every number is taken as its shortest decimal. Raises BadInput as there."""
    return _problem(model, prices, horizon, verify, exact, rational)


def _problem(
    model: CriticModel,
    prices: Prices,
    horizon: int,
    verify: Verify,
    rate: Callable[[Rate], Number],
    amount: Callable[[float], Number],
) -> Problem[Number]:
    if horizon < 1:
        raise BadInput(f"a horizon of {horizon} candidates", hint="at least 1")
    return Problem(
        prior=rate(model.prior),
        checks=tuple(Check(c.name, rate(c.alpha), rate(c.beta), amount(c.price)) for c in model.critics),
        fix=rate(model.kernel.fix),
        breaks=rate(model.kernel.breaks),
        reward=amount(prices.reward),
        verify=amount(prices.verify),
        generate=amount(prices.generate),
        ship_loss=None if prices.ship_loss is None else amount(prices.ship_loss),
        horizon=horizon,
        retry=verify_from(verify) == "retry",
        zero=amount(0.0),
    )


# Convex piecewise linear functions on [0, 1] as the upper envelope of lines.


@final
@dataclass(frozen=True, slots=True)
class Envelope:
    """The maximum of lines (value at 0, value at 1), sorted by slope; line i is on top up to cut i."""

    lines: Float[np.ndarray, "lines 2"]
    cuts: Float[np.ndarray, "cuts"]

    def top(self, at: Float[np.ndarray, "points"]) -> Float[np.ndarray, "points 2"]:
        """The line on top at each point."""
        return np.asarray(self.lines[np.searchsorted(self.cuts, at)])

    def __call__(self, at: Float[np.ndarray, "points"]) -> Float[np.ndarray, "points"]:
        """The values."""
        return values(self.top(at), at)


def values(
    lines: Float[np.ndarray, "points 2"], at: Float[np.ndarray, "points"]
) -> Float[np.ndarray, points]:
    """The value of line i at point i."""
    return np.asarray((1 - at) * lines[..., 0] + at * lines[..., 1])


def envelope(lines: Float[np.ndarray, "lines 2"]) -> Envelope:
    """The upper envelope: only the lines that are on top somewhere in [0, 1]."""
    # By slope, and of parallel lines the highest last: a sweep then drops what lies below its neighbours.
    order = np.lexsort((lines[:, 0], lines[:, 1] - lines[:, 0]))
    kept: list[tuple[float, float]] = []
    cuts: list[float] = []
    for start, end in lines[order].tolist():
        while kept:
            steeper = (end - start) - (kept[-1][1] - kept[-1][0])
            # Parallel lines: by the order above the later one is at least as high, and replaces the other.
            meet = (
                (kept[-1][0] - start) / steeper
                if steeper > 0
                else (-np.inf if start >= kept[-1][0] else np.inf)
            )
            # Met before the last line came on top, or below belief 0: that line is on top nowhere, and goes.
            if meet > (cuts[-1] if cuts else 0.0):
                break
            kept.pop()
            if cuts:
                cuts.pop()
        if kept and meet >= 1:  # on top only beyond the last belief
            continue
        if kept:
            cuts.append(meet)
        kept.append((start, end))
    return Envelope(np.array(kept), np.array(cuts))


# One step ahead: what each action is worth if stopping, shipping or verifying comes right after it.


def greedy_q(
    problem: Problem[float],
    belief: float,
    used: frozenset[str],
    candidate: int,
    *,
    fresh: float | None = None,
) -> dict[str, float]:
    """The one-step value of every open action.

    ``fresh`` is the belief in the next candidate; None takes what the refine kernel makes of this one. The
    source takes the prior, which is the same where candidates are drawn anew.

    Source: arXiv:2606.24453; the kernel, the used critics and shipping are ours.
    """
    p = problem
    table = settled(p, belief)
    if candidate + 1 < p.horizon:
        then = transition(belief, p.fix, p.breaks) if fresh is None else fresh
        table[GENERATE] = -p.generate + p.reward * then - p.verify
    for check in p.checks:
        if check.name in used:
            continue
        passes = pass_chance(belief, check.right, check.wrong)
        table[check.name] = -check.price
        for passed, share in ((True, passes), (False, 1 - passes)):
            moved = posterior(belief, check.right, check.wrong, passed)
            table[check.name] += share * max(settled(p, moved).values())
    return table


def settled(problem: Problem[float], belief: float) -> dict[str, float]:
    """What the actions that end the episode are worth at once."""
    table = {STOP: 0.0}
    if problem.ship_loss is not None:
        table[SHIP] = problem.reward * belief - problem.ship_loss * (1 - belief)
    table[VERIFY] = problem.reward * belief - problem.verify
    return table


# The same over several classes of difficulty, where a belief is no longer one number: by every way in which
# critics may answer and the verifier refuse, so the values are exact.

#: Ways to answer, over all candidates, beyond which that takes minutes.
MOST_WAYS = 5_000_000
#: Ways that are looked at together.
BLOCK = 200_000

Weights: TypeAlias = Float[np.ndarray, "beliefs hidden"]


@final
@dataclass(frozen=True, slots=True)
class ClassSolution:
    """What actions are worth where instances are of several classes, by what is believed of both.

    ``hidden`` are chances of (wrong, right) in every class. Values weigh what may happen by its chance, so
    nothing is divided by it: the value of a belief twice as heavy is twice as high.
    """

    problems: tuple[Problem[float], ...]
    shares: tuple[float, ...]
    _known: dict[tuple[tuple[tuple[float, float], ...], frozenset[str], int], dict[str, float]] = field(
        default_factory=dict
    )

    @property
    def problem(self) -> Problem[float]:
        """The first class; prices, horizon and names are those of all."""
        return self.problems[0]

    def q(
        self, hidden: tuple[tuple[float, float], ...], used: frozenset[str], candidate: int
    ) -> dict[str, float]:
        """What every open action is worth."""
        place = (hidden, used, candidate)
        if place not in self._known:
            self._known[place] = self._q(np.array(hidden).T.reshape(1, -1), used, candidate)
        return self._known[place]

    def value(self) -> tuple[float, float]:
        """The best value of a fresh first candidate, twice: nothing is left open."""
        start = tuple(
            (share * (1 - p.prior), share * p.prior)
            for share, p in zip(self.shares, self.problems, strict=True)
        )
        best = max(self.q(start, frozenset(), 0).values())
        return best, best

    def greedy(
        self, hidden: tuple[tuple[float, float], ...], used: frozenset[str], candidate: int
    ) -> dict[str, float]:
        """What every open action is worth if stopping, shipping or verifying comes right after it."""
        p, weights = self.problem, np.array(hidden).T.reshape(1, -1)
        table = {name: float(value[0]) for name, value in self._ends(weights).items()}
        if candidate + 1 < p.horizon:
            table[GENERATE] = float(self._ends(self._refined(weights))[VERIFY][0]) - p.generate
        for number, check in enumerate(p.checks):
            if check.name not in used:
                said = [weights * like for like in self._likely(number)]
                table[check.name] = sum(float(max(v[0] for v in self._ends(w).values())) for w in said)
                table[check.name] -= check.price
        return table

    def _q(self, weights: Weights, used: frozenset[str], candidate: int) -> dict[str, float]:
        p = self.problem
        table = {name: float(value[0]) for name, value in self._ends(weights).items()}
        table[VERIFY] += float(self._refused(weights, candidate)[0])
        if candidate + 1 < p.horizon:
            table[GENERATE] = float(self._generated(weights, candidate)[0])
        for number, check in enumerate(p.checks):
            if check.name not in used:
                rest = tuple(n for n, c in enumerate(p.checks) if c.name not in {*used, check.name})
                said = np.concatenate([weights * like for like in self._likely(number)])
                table[check.name] = float(self._best(said, rest, candidate).sum()) - check.price
        return table

    def _likely(self, check: int) -> tuple[Float[np.ndarray, "hidden"], Float[np.ndarray, "hidden"]]:
        """The chances of a pass and of a fail, by hidden state: all wrong ones, then all right ones."""
        sides = [
            [p.checks[check].wrong for p in self.problems],
            [p.checks[check].right for p in self.problems],
        ]
        passing = np.array(sides).reshape(-1)
        return passing, 1.0 - passing

    def _ends(self, weights: Weights) -> dict[str, Float[np.ndarray, "beliefs"]]:
        p, half = self.problem, len(self.problems)
        wrong, right = weights[:, :half].sum(axis=1), weights[:, half:].sum(axis=1)
        table = {STOP: np.zeros(len(weights))}
        if p.ship_loss is not None:
            table[SHIP] = p.reward * right - p.ship_loss * wrong
        table[VERIFY] = p.reward * right - p.verify * (wrong + right)
        return table

    def _refined(self, weights: Weights) -> Weights:
        half = len(self.problems)
        fix = np.array([p.fix for p in self.problems])
        breaks = np.array([p.breaks for p in self.problems])
        wrong, right = weights[:, :half], weights[:, half:]
        return np.concatenate(
            [wrong * (1 - fix) + right * breaks, wrong * fix + right * (1 - breaks)], axis=1
        )

    def _generated(self, weights: Weights, candidate: int) -> Float[np.ndarray, "beliefs"]:
        every = tuple(range(len(self.problem.checks)))
        best = self._best(self._refined(weights), every, candidate + 1)
        return np.asarray(best - self.problem.generate * weights.sum(axis=1))

    def _refused(self, weights: Weights, candidate: int) -> Float[np.ndarray, "beliefs"]:
        """What is left after the verifier refused the candidate."""
        if not self.problem.retry or candidate + 1 >= self.problem.horizon:
            return np.zeros(len(weights))
        wrong = weights.copy()
        wrong[:, len(self.problems) :] = 0
        return np.asarray(np.maximum(0.0, self._generated(wrong, candidate)))

    def _best(
        self, weights: Weights, checks: tuple[int, ...], candidate: int
    ) -> Float[np.ndarray, "beliefs"]:
        """The best value at each belief with these critics unused."""
        ways = 3 ** len(checks)
        if len(weights) * ways > BLOCK and len(weights) > 1:
            blocks = np.array_split(weights, 2)
            return np.concatenate([self._best(block, checks, candidate) for block in blocks])
        # Digit i of a way to answer: 0 critic i not asked, 1 passed, 2 failed; so an answer adds 3^i or more.
        likely = np.ones((1, weights.shape[1]))
        for check in checks:
            passing, failing = self._likely(check)
            likely = np.concatenate([likely, likely * passing, likely * failing])
        every = (weights[:, None] * likely).reshape(-1, weights.shape[1])
        ends = self._ends(every)
        ends[VERIFY] = ends[VERIFY] + self._refused(every, candidate)
        if candidate + 1 < self.problem.horizon:
            ends[GENERATE] = self._generated(every, candidate)
        best = np.max(list(ends.values()), axis=0).reshape(len(weights), ways)
        total = every.sum(axis=1).reshape(len(weights), ways)
        for way in range(ways - 1, -1, -1):
            for place, check in enumerate(checks):
                if way // 3**place % 3 == 0:
                    price = self.problem.checks[check].price * total[:, way]
                    asked = best[:, way + 3**place] + best[:, way + 2 * 3**place] - price
                    best[:, way] = np.maximum(best[:, way], asked)
        return np.asarray(best[:, 0])


def solve_classes(
    model: CriticModel, prices: Prices, horizon: int = 3, verify: Verify = "terminal"
) -> ClassSolution:
    """Solve a model with classes of difficulty exactly; the belief about the class is carried along.

    Raises: BadInput for bad settings; CannotDo where critics may answer in too many ways.
    Ours: the model of arXiv:2606.24453 has one class.
    """
    problems = tuple(in_floats(part, prices, horizon, verify) for _, part in model.parts)
    ways = 3 ** len(model.critics)
    most = ways * ((2 if problems[0].retry else 1) * ways) ** (horizon - 1)
    if most > MOST_WAYS:
        raise CannotDo(
            f"{len(model.critics)} critics of {horizon} candidates may answer in {most:,} ways, too many to "
            "plan with classes of difficulty",
            hint="fewer critics, a shorter horizon, or refork gate fit --classes 1",
        )
    return ClassSolution(problems, tuple(share for share, _ in model.parts))


# Backward induction on a grid of beliefs, with a bracket that the true value lies in.

Grid: TypeAlias = Float[np.ndarray, "points"]

Lines: TypeAlias = Float[np.ndarray, "points 2"]

#: What one action is worth at each point: from above, and as the line of a plan that attains its value.
Backup: TypeAlias = tuple[Grid, Lines]

#: 2 ** critics tables for every candidate.
MOST_CRITICS = 8

#: Rounds in which the grid takes up the kinks it found, and the width at which it is good enough.
ROUNDS, NARROW = 4, 1e-9


@final
@dataclass(frozen=True, slots=True)
class Bracket:
    """A convex value function between two bounds.

    Below: tangents, each the value line of a plan. Above: straight lines between grid points.
    """

    below: Envelope
    points: Grid
    above: Grid

    def high(self, at: Grid) -> Grid:
        """The upper bound at beliefs."""
        return np.asarray(np.interp(at, self.points, self.above))


@final
@dataclass(frozen=True, slots=True)
class GridSolution:
    """Value brackets for every candidate and every set of used critics, computed when asked for.

    ``lookahead`` is how many critics of one candidate are planned ahead.
    """

    problem: Problem[float]
    base: int
    lookahead: int
    _known: dict[tuple[int, frozenset[str], int], Bracket] = field(default_factory=dict)

    def q(self, belief: float, used: frozenset[str], candidate: int) -> dict[str, tuple[float, float]]:
        """For every open action the value of the best known plan, and a bound from above."""
        at = np.array([belief])
        found = self._backups(at, candidate, used, self._depth(used))
        return {
            action: (float(values(lines, at)[0]), float(above[0])) for action, (above, lines) in found.items()
        }

    def value(
        self, belief: float | None = None, used: frozenset[str] = frozenset(), candidate: int = 0
    ) -> tuple[float, float]:
        """The bracket of the best value from a state on; a fresh first candidate by default."""
        table = self.q(self.problem.prior if belief is None else belief, used, candidate).values()
        return max(low for low, _ in table), max(high for _, high in table)

    def bracket(self, candidate: int, used: frozenset[str] = frozenset()) -> Bracket:
        """The value function of a candidate whose used critics are given."""
        return self._bracket(candidate, used, self._depth(used))

    def _depth(self, used: frozenset[str]) -> int:
        return min(self.lookahead, len(self.problem.checks) - len(used))

    def _bracket(self, candidate: int, used: frozenset[str], depth: int) -> Bracket:
        place = (candidate, used, depth)
        if place not in self._known:
            self._known[place] = self._build(candidate, used, depth)
        return self._known[place]

    def _build(self, candidate: int, used: frozenset[str], depth: int) -> Bracket:
        points, above, lines = np.empty(0), np.empty(0), np.empty((0, 2))
        fresh = np.linspace(0, 1, self.base)
        for _ in range(ROUNDS):
            high, line = self._best(fresh, candidate, used, depth)
            points, above = np.concatenate([points, fresh]), np.concatenate([above, high])
            order = np.argsort(points, kind="stable")
            points, above, lines = points[order], above[order], np.concatenate([lines, line])
            below = envelope(lines)
            # The bounds part most at a kink between grid points, so such kinks become grid points.
            apart = np.interp(below.cuts, points, above) - below(below.cuts)
            fresh = below.cuts[apart > NARROW]
            if not fresh.size:
                break
        return Bracket(below, points, above)

    def _best(self, at: Grid, candidate: int, used: frozenset[str], depth: int) -> Backup:
        found = self._backups(at, candidate, used, depth).values()
        lows = np.stack([values(line, at) for _, line in found])
        lines = np.stack([line for _, line in found])
        highs = np.stack([high for high, _ in found])
        return highs.max(axis=0), lines[lows.argmax(axis=0), np.arange(at.size)]

    def _backups(self, at: Grid, candidate: int, used: frozenset[str], depth: int) -> dict[str, Backup]:
        p, ones = self.problem, np.ones_like(at)

        def plain(start: float, end: float) -> Backup:
            line = np.stack([start * ones, end * ones], axis=1)
            return values(line, at), line

        found = {STOP: plain(0.0, 0.0)}
        if p.ship_loss is not None:
            found[SHIP] = plain(-p.ship_loss, p.reward)
        low, high = self._refused(candidate)
        _, line = plain(low - p.verify, p.reward - p.verify)
        # Only a wrong candidate is refused, so what is left after a refusal weighs by 1 - belief.
        found[VERIFY] = values(line, at) + (1 - at) * (high - low), line
        if candidate + 1 < p.horizon:
            found[GENERATE] = self._generated(at, candidate)
        if depth:
            for check in p.checks:
                if check.name not in used:
                    child = self._bracket(candidate, used | {check.name}, depth - 1)
                    found[check.name] = _checked(check, child, at)
        return found

    def _generated(self, at: Grid, candidate: int) -> Backup:
        """One more candidate: the next one's tangent at the refined belief, seen from this belief."""
        p = self.problem
        child = self._bracket(candidate + 1, frozenset(), self._depth(frozenset()))
        moved = at * (1 - p.breaks) + (1 - at) * p.fix
        top = child.below.top(moved)
        ends = [values(top, np.full_like(at, transition(end, p.fix, p.breaks))) for end in (0.0, 1.0)]
        return child.high(moved) - p.generate, np.stack(ends, axis=1) - p.generate

    def _refused(self, candidate: int) -> tuple[float, float]:
        """Bounds of what is left after the verifier refused the candidate."""
        if not self.problem.retry or candidate + 1 >= self.problem.horizon:
            return 0.0, 0.0
        at = np.zeros(1)
        high, line = self._generated(at, candidate)
        return max(0.0, float(values(line, at)[0])), max(0.0, float(high[0]))


def _checked(check: Check[float], child: Bracket, at: Grid) -> Backup:
    """One critic: the child's value on a pass and on a fail, each weighed by its chance."""
    high = np.full_like(at, -check.price)
    line = np.full((at.size, 2), -check.price)
    for right, wrong in ((check.right, check.wrong), (1 - check.right, 1 - check.wrong)):
        share = right * at + wrong * (1 - at)
        # A verdict that cannot come at a belief leaves nothing to divide by, and weighs nothing.
        possible = share > 0
        moved = np.where(possible, right * at / np.where(possible, share, 1.0), at)
        high += share * child.high(moved)
        # The verdict's chance cancels against Bayes' divisor: the likelihoods alone weigh the value lines.
        line += child.below.top(moved) * np.array([wrong, right])
    return high, line


def solve_grid(
    model: CriticModel,
    prices: Prices,
    horizon: int = 3,
    verify: Verify = "terminal",
    *,
    lookahead: int | None = None,
    points: int = 51,
) -> GridSolution:
    """Solve on a grid of ``points`` beliefs that takes up the kinks it meets.

    ``lookahead`` is the number of critics of one candidate planned ahead, None for all.

    Raises: BadInput for fewer than two points, no look-ahead or bad settings; CannotDo for too many critics.
    Source: arXiv:2606.24453, whose code has 51 beliefs, nearest-point lookup and one critic of look-ahead;
    used critics in the state, deeper look-ahead and the bracket are ours.
    """
    problem = in_floats(model, prices, horizon, verify)
    if points < 2:
        raise BadInput(f"a grid of {points} beliefs", hint="at least 2")
    if lookahead is not None and lookahead < 0:
        raise BadInput(f"a look-ahead over {lookahead} critics", hint="0 or more, or none for all")
    if len(problem.checks) > MOST_CRITICS:
        raise CannotDo(
            f"{len(problem.checks)} critics need {2 ** len(problem.checks)} tables for each candidate",
            hint=f"keep the best {MOST_CRITICS}, by gap for their price",
        )
    return GridSolution(problem, points, len(problem.checks) if lookahead is None else lookahead)
