"""Compare two arms, paired draw by draw, against the control's own noise."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Unpack, overload

import numpy as np
from numpy.typing import NDArray

from refork import stats
from refork.errors import BadInput
from refork.forking.arm import Fork, fork_both, graded
from refork.forking.change import Change
from refork.forking.grading import need_grader
from refork.forking.settings import ForkOptions, takes_fork_settings
from refork.policies.base import Policy
from refork.tree.node import Point, Trajectory
from refork.types import Json

ScoreOf = str | Callable[[Trajectory], float | None]


@dataclass(frozen=True, slots=True)
class Rate:
    """A mean score with its interval."""

    rate: float
    low: float
    high: float


@dataclass(frozen=True, slots=True)
class Effect:
    """What a change does: ``difference`` is other minus base, with its interval at ``level``.

    ``draws`` pairs were graded in both arms; ``ungraded`` pairs were not, ``errors`` of them because
    a draw failed. ``unpaired_low/high`` is the interval the same draws give when pairing is ignored.
    ``tokens`` and ``seconds`` are what both arms sampled and took; ``ties`` counts tokens that another
    machine's rounding might have drawn otherwise. ``base_simulated`` and ``other_simulated`` are the shares
    of the world's answers that a simulator gave (see ``caution``). ``points`` and ``tasks`` say how many
    points were compared together, and how many tasks they are of; ``point`` is the address where it is one.
    """

    what: str
    before_text: str
    after_text: str
    score: str
    point: str
    base: Rate
    other: Rate
    difference: float
    low: float
    high: float
    level: float
    p: float
    method: str
    paired: bool
    draws: int
    ungraded: int
    errors: int
    unpaired_low: float
    unpaired_high: float
    tokens: int
    seconds: float
    ties: int = 0
    looks: int = 1
    decided: bool | None = None
    base_simulated: float = 0.0
    other_simulated: float = 0.0
    points: int = 1
    tasks: int = 1

    @property
    def caution(self) -> str | None:
        """What the figures do not say by themselves: who answered the agent. None where the world did."""
        if self.base_simulated == self.other_simulated == 0:
            return None
        if bool(self.base_simulated) != bool(self.other_simulated):
            one = "the changed arm" if self.other_simulated else "the control"
            return f"{one} alone was answered by a simulator, so this is no effect of the change alone"
        return "both arms were answered by a simulator: this is an effect in the simulator"

    def to_json(self) -> Json:
        """Plain fields."""
        return asdict(self) | ({"caution": self.caution} if self.caution else {})

    @property
    def sentence(self) -> str:
        """The effect in words."""
        span = f"{100 * self.level:.4g} % interval {self.low:+.3f} to {self.high:+.3f}"
        if self.points > 1:
            span += f", {self.points} points of {self.tasks} tasks"
        caution = f"; {self.caution}" if self.caution else ""
        if self.low > 0:
            verb = "raises"
        elif self.high < 0:
            verb = "lowers"
        else:
            return (
                f"no clear effect of '{self.what}' on {self.score}: {self.difference:+.3f} ({span}){caution}"
            )
        return (
            f"'{self.what}' {verb} {self.score} from {self.base.rate:.3f} to {self.other.rate:.3f} "
            f"({self.difference:+.3f}, {span}){caution}"
        )


def _pairs(base: Fork, other: Fork, score: ScoreOf) -> tuple[NDArray[np.float64], NDArray[np.float64], int]:
    """Scores of draws present in both arms, NaN where ungraded, and how many of them failed."""
    left = {d.draw: (v, d.end) for d, v in zip(base.draws, base.values(score), strict=True)}
    right = {d.draw: (v, d.end) for d, v in zip(other.draws, other.values(score), strict=True)}
    # A set has no order of its own, and sums of floats depend on theirs.
    both = sorted(left.keys() & right.keys())
    errors = sum("error" in (left[d][1], right[d][1]) for d in both)
    return graded([left[d][0] for d in both]), graded([right[d][0] for d in both]), errors


def is_paired(base: Fork, other: Fork) -> bool:
    """Whether two arms share their noise: same point, seed and stream, policies that honour keys alike.

    A server's policy honours them where its probe found that it honours seeds, and only arms whose seeds were
    made in the same way share them.
    """
    cards = [arm.record.policy for arm in (base, other)]
    made = {str((card.get("extra") or {}).get("seeds")) for card in cards if card.get("kind") == "remote"}
    honours = all("paired" in card.get("capabilities", ()) for card in cards) and len(made) <= 1
    same = (base.record.seed, base.record.stream) == (other.record.seed, other.record.stream)
    return honours and same


@overload
def compare(base: Fork, other: Fork, score: ScoreOf = "success", level: float = 0.95) -> Effect: ...


@overload
def compare(
    base: Sequence[tuple[Fork, Fork]], other: None = None, score: ScoreOf = "success", level: float = 0.95
) -> Effect: ...


def compare(
    base: Fork | Sequence[tuple[Fork, Fork]],
    other: Fork | None = None,
    score: ScoreOf = "success",
    level: float = 0.95,
) -> Effect:
    """The effect of the change that ``other`` has and ``base`` has not.

    Draws are paired where both arms used the same noise; otherwise the arms are independent samples
    and the interval is the unpaired one. Ungraded draws leave with their partner and are counted.

    Instead of two arms, ``base`` may be a list of pairs of arms, each (control, changed), at points of
    several tasks. Every pair of draws then weighs the same, and the tasks are what is counted: the interval
    is that of tasks like these, so draws and points of one task do not narrow it as new tasks would.
    ``paired`` is true only where every pair of arms shared its noise; the interval holds in either case. The
    interval of each arm, and the unpaired one, count tasks too. A list of one pair is that pair.

    Raises BadInput where fewer than two pairs are graded, or where several points are all of one task.
    """
    if isinstance(base, Fork):
        if other is None:
            raise BadInput("one arm shows no effect", hint="compare(control, changed)")
        arms = [(base, other)]
    else:
        arms = list(base)
    if not arms:
        raise BadInput("there are no arms to compare", hint="compare([(control, changed), ...])")
    if len({(one.record.id, two.record.id) for one, two in arms}) < len(arms):
        raise BadInput("a pair of arms is named twice: its draws would count as if there were more of them")
    found = [_pairs(one, two, score) for one, two in arms]
    left = np.concatenate([part[0] for part in found])
    right = np.concatenate([part[1] for part in found])
    known = ~(np.isnan(left) | np.isnan(right))
    if known.sum() < 2:
        raise BadInput(
            f"only {int(known.sum())} of {len(known)} pairs of draws have a score",
            where=f"score {score if isinstance(score, str) else 'given by a function'!r}",
            hint="name the world or a judge that grades the draws (--world, --success-regex)",
        )
    paired = all(is_paired(one, two) for one, two in arms)
    x, y = left[known], right[known]
    tasks = np.repeat([_task(one) for one, _ in arms], [len(part[0]) for part in found])[known].tolist()
    figures = _one_point(x, y, paired, level) if len(arms) == 1 else _many_points(x, y, tasks, level)
    diffs = [two.diff or one.diff for one, two in arms]
    # By the object: what a call took is that call's, and a later one of the same arm took something else.
    every = {id(fork): fork for pair in arms for fork in pair}.values()
    points = {one.point.address for one, _ in arms}
    return Effect(
        what=_common(diff.what if diff else "nothing" for diff in diffs) or f"{len(arms)} changes",
        before_text=_common(diff.before if diff else "" for diff in diffs),
        after_text=_common(diff.after if diff else "" for diff in diffs),
        score=score if isinstance(score, str) else getattr(score, "__name__", "score"),
        point=_common(one.point.address for one, _ in arms)
        or f"{len(points)} points of {len(set(tasks))} tasks",
        base=figures.base,
        other=figures.other,
        difference=figures.result.interval.estimate,
        low=figures.result.interval.low,
        high=figures.result.interval.high,
        level=level,
        p=figures.result.p,
        method=figures.result.interval.method,
        paired=paired,
        draws=int(known.sum()),
        ungraded=int((~known).sum()),
        errors=sum(part[2] for part in found),
        unpaired_low=figures.alone[0],
        unpaired_high=figures.alone[1],
        tokens=sum(fork.tokens for fork in every),
        seconds=sum(fork.seconds for fork in every),
        ties=sum(fork.ties for fork in every),
        base_simulated=_simulated([one for one, _ in arms]),
        other_simulated=_simulated([two for _, two in arms]),
        points=len(points),
        tasks=len(set(tasks)),
    )


@dataclass(frozen=True, slots=True)
class _Figures:
    """What the scores of two arms say: each arm's mean, their difference, and the same without pairing."""

    base: Rate
    other: Rate
    result: stats.Difference
    alone: tuple[float, float]


def _one_point(x: NDArray[np.float64], y: NDArray[np.float64], paired: bool, level: float) -> _Figures:
    alone = stats.unpaired_difference(x, y, level=level)
    result = stats.paired_difference(x, y, level=level) if paired else alone
    return _Figures(
        _rate(stats.mean_interval(x, level)),
        _rate(stats.mean_interval(y, level)),
        result,
        (alone.interval.low, alone.interval.high),
    )


def _many_points(
    x: NDArray[np.float64], y: NDArray[np.float64], tasks: Sequence[str], level: float
) -> _Figures:
    """Figures of several points, with tasks as what is counted.

    Draw by draw differences are taken whether or not the arms shared their noise: independent arms make
    each difference wider, and the spread between tasks shows it. The unpaired interval takes the arms' own
    intervals as independent (square-and-add).
    """
    if len(set(tasks)) < 2:
        raise BadInput(
            "the points are all of one task, which cannot say what other tasks would show",
            hint="compare each point alone, or add points of other tasks",
        )
    base, other = stats.clustered_mean(x, tasks, level), stats.clustered_mean(y, tasks, level)
    result = stats.clustered_difference(x, y, tasks, level)
    middle = other.estimate - base.estimate
    down = math.hypot(other.estimate - other.low, base.high - base.estimate)
    up = math.hypot(other.high - other.estimate, base.estimate - base.low)
    return _Figures(_rate(base), _rate(other), result, (middle - down, middle + up))


def _task(arm: Fork) -> str:
    """The task of an arm: a world's own wherever it was rendered, else what the rollout began with."""
    root = arm.tree.path(arm.point).root
    task = root.extra.get("task")
    if isinstance(task, dict) and "id" in task:
        return json.dumps([task.get("world"), task["id"]])
    return root.id


def _common(texts: Iterable[str]) -> str:
    """The text that all have in common; empty where they differ."""
    different = set(texts)
    return different.pop() if len(different) == 1 else ""


def _simulated(arms: Sequence[Fork]) -> float:
    """Share of the arms' answers that a simulator gave, by their draws."""
    return sum(arm.simulated * len(arm.draws) for arm in arms) / sum(len(arm.draws) for arm in arms)


def _rate(interval: stats.Interval) -> Rate:
    return Rate(interval.estimate, interval.low, interval.high)


@takes_fork_settings
def compare_until(
    point: Point,
    policy: Policy,
    change: Change,
    *,
    error: float = 0.05,
    batch: int = 32,
    max_draws: int = 512,
    margin: float = 0.0,
    score: str = "success",
    **options: Unpack[ForkOptions],
) -> Effect:
    """Draw both arms in batches and stop as soon as the answer is clear, at a stated error rate.

    The interval is valid however often it is looked at: it covers the true difference at *every*
    look with probability at least ``1 - error``, and p holds at every look too. So does the interval of each
    arm, each for itself, and the one without pairing. Stops when it excludes 0, or (``margin`` > 0) lies
    within ``+-margin``. ``decided`` False: ``max_draws`` came first. Scores must lie in [0, 1].

    Raises BadInput for an error outside (0, 1), or where fewer than two pairs are graded at the end.
    """
    if not 0 < error < 1:
        raise BadInput(f"the error rate is {error!r}; it must lie strictly between 0 and 1", hint="0.05")
    need_grader(score, options.get("world"), options.get("judge"), point.address)
    looks, tokens, ties, seconds = 0, 0, 0, 0.0
    while True:
        looks += 1
        draws = min(looks * batch, max_draws)
        base, other = fork_both(point, policy, draws, change, **options)
        tokens += base.tokens + other.tokens
        ties += base.ties + other.ties
        seconds += base.seconds + other.seconds
        left, right, _ = _pairs(base, other, score)
        known = ~(np.isnan(left) | np.isnan(right))
        x, y = left[known], right[known]
        if len(x) < 2:
            if draws < max_draws:
                continue
            compare(base, other, score)  # which refuses so few, and says what is missing
        pairs = y - x
        interval = stats.confidence_sequence(pairs, error=error)
        clear = interval.low > 0 or interval.high < 0
        same = margin > 0 and -margin <= interval.low and interval.high <= margin
        if clear or same or draws >= max_draws:
            # A fixed number of draws is what compare's own intervals are for; here the draws decided it.
            low, high = _apart(x, y, error)
            return replace(
                compare(base, other, score, level=1 - error),
                base=_rate(stats.mean_sequence(x, error)),
                other=_rate(stats.mean_sequence(y, error)),
                low=interval.low,
                high=interval.high,
                p=stats.anytime_test(pairs).p,
                method=interval.method,
                unpaired_low=low,
                unpaired_high=high,
                tokens=tokens,
                seconds=seconds,
                ties=ties,
                looks=looks,
                decided=clear or same,
            )


def _apart(x: NDArray[np.float64], y: NDArray[np.float64], error: float) -> tuple[float, float]:
    """Bounds of the difference from each arm alone, valid at every look: half of the error for each arm."""
    base, other = stats.mean_sequence(x, error / 2), stats.mean_sequence(y, error / 2)
    return other.low - base.high, other.high - base.low
