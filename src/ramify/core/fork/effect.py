"""Compare two arms, paired draw by draw, against the control's own noise."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from ramify.core import stats
from ramify.core.errors import BadInput
from ramify.core.fork.arm import Fork, fork, graded
from ramify.core.fork.change import Change
from ramify.core.judge import Judge
from ramify.core.policy.base import Policy, Sampling
from ramify.core.run.progress import Progress, silent
from ramify.core.tree.node import Point, Trajectory
from ramify.core.types import Json
from ramify.core.world.base import World
from ramify.core.world.simulated import Simulator

if TYPE_CHECKING:
    from ramify.core.fork.backend import Backend

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
    of the world's answers that a simulator gave (see ``caution``).
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
        verb = "raises" if self.difference > 0 else "lowers"
        sure = self.low > 0 or self.high < 0
        span = f"95 % interval {self.low:+.3f} to {self.high:+.3f}".replace("95", f"{100 * self.level:g}")
        caution = f"; {self.caution}" if self.caution else ""
        if not sure:
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
    both = sorted(left.keys() & right.keys())
    errors = sum("error" in (left[d][1], right[d][1]) for d in both)
    return graded([left[d][0] for d in both]), graded([right[d][0] for d in both]), errors


def is_paired(base: Fork, other: Fork) -> bool:
    """Whether two arms share their noise: same point, seed and stream, policies that honour keys."""
    honours = all("paired" in arm.record.policy.get("capabilities", ()) for arm in (base, other))
    same = (base.record.seed, base.record.stream) == (other.record.seed, other.record.stream)
    return honours and same


def compare(base: Fork, other: Fork, score: ScoreOf = "success", level: float = 0.95) -> Effect:
    """The effect of the change that ``other`` has and ``base`` has not.

    Draws are paired where both arms used the same noise; otherwise the arms are independent samples
    and the interval is the unpaired one. Ungraded draws leave with their partner and are counted.

    Raises BadInput where fewer than two pairs are graded.
    """
    left, right, errors = _pairs(base, other, score)
    known = ~(np.isnan(left) | np.isnan(right))
    if known.sum() < 2:
        raise BadInput(
            f"only {int(known.sum())} of {len(known)} pairs of draws have a score",
            where=f"score {score if isinstance(score, str) else 'given by a function'!r}",
            hint="name the world or a judge that grades the draws (--world, --success-regex)",
        )
    x, y = left[known], right[known]
    paired = is_paired(base, other)
    alone = stats.unpaired_difference(x, y, level=level)
    result = stats.paired_difference(x, y, level=level) if paired else alone
    diff = other.diff or base.diff
    return Effect(
        what=diff.what if diff else "nothing",
        before_text=diff.before if diff else "",
        after_text=diff.after if diff else "",
        score=score if isinstance(score, str) else getattr(score, "__name__", "score"),
        point=base.point.address,
        base=_rate(x, level),
        other=_rate(y, level),
        difference=result.interval.estimate,
        low=result.interval.low,
        high=result.interval.high,
        level=level,
        p=result.p,
        method=result.interval.method,
        paired=paired,
        draws=int(known.sum()),
        ungraded=int((~known).sum()),
        errors=errors,
        unpaired_low=alone.interval.low,
        unpaired_high=alone.interval.high,
        tokens=base.tokens + other.tokens,
        seconds=base.seconds + other.seconds,
        ties=base.ties + other.ties,
        base_simulated=base.simulated,
        other_simulated=other.simulated,
    )


def _rate(values: NDArray[np.float64], level: float) -> Rate:
    interval = stats.mean_interval(values, level=level)
    return Rate(interval.estimate, interval.low, interval.high)


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
    settings: Sampling | None = None,
    world: World | None = None,
    judge: Judge | None = None,
    seed: int = 0,
    simulator: Simulator | None = None,
    progress: Progress = silent,
    backend: Backend | None = None,
) -> Effect:
    """Draw both arms in batches and stop as soon as the answer is clear, at a stated error rate.

    The interval is valid however often it is looked at: it covers the true difference at *every*
    look with probability at least ``1 - error``, and p holds at every look too. Stops when it excludes 0,
    or (``margin`` > 0) lies within ``+-margin``. ``decided`` False: ``max_draws`` came first.
    Scores must lie in [0, 1].
    """
    looks, tokens, seconds = 0, 0, 0.0
    while True:
        looks += 1
        draws = min(looks * batch, max_draws)
        shared = {
            "settings": settings, "world": world, "judge": judge, "seed": seed, "progress": progress,
            "simulator": simulator, "backend": backend,
        }  # fmt: skip
        base = fork(point, policy, draws, **shared)  # type: ignore[arg-type]
        other = fork(point, policy, draws, change, **shared)  # type: ignore[arg-type]
        tokens += base.tokens + other.tokens
        seconds += base.seconds + other.seconds
        left, right, _ = _pairs(base, other, score)
        known = ~(np.isnan(left) | np.isnan(right))
        pairs = right[known] - left[known]
        interval = stats.confidence_sequence(pairs, error=error)
        clear = interval.low > 0 or interval.high < 0
        same = margin > 0 and -margin <= interval.low and interval.high <= margin
        if clear or same or draws >= max_draws:
            effect = compare(base, other, score, level=1 - error)
            return replace(
                effect,
                low=interval.low,
                high=interval.high,
                p=stats.anytime_test(pairs).p,
                method=interval.method,
                tokens=tokens,
                seconds=seconds,
                looks=looks,
                decided=clear or same,
            )
