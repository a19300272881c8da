"""What other schedules would have done on a serving log, recorded or simulated."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import final

import numpy as np
from jaxtyping import Float, Int
from numpy.typing import NDArray

from refork.errors import BadInput
from refork.stats import Interval
from refork.stats.results import Array
from refork.types import Json
from refork_methods.speculate.calibrate import SequentialTemperatureScaling
from refork_methods.speculate.rounds import Round, Rounds
from refork_methods.speculate.schedule import Lengths, PrefixScheduler, Scheduler
from refork_methods.speculate.step_cost import StepCost

# Simulated serving steps with known acceptances, to compare schedules without a model.
#
# The distribution: a request is of one of three kinds (mean acceptance 0.60, 0.80 and 0.92, equally likely)
# until it ends, each step with probability 1/40. In every round the log-odds of its conditional acceptances
# are those of its kind plus a normal deviate of the round (spread 1) and one of each position (spread 0.5).
# Confidences are these chances themselves, so they are calibrated. All schedules meet the same rounds and
# the same luck. The distribution is ours.

KINDS = (0.60, 0.80, 0.92)
ENDS = 1 / 40
_ROUND, _POSITION = 1.0, 0.5


@final
@dataclass(frozen=True, slots=True, eq=False)
class Traffic:
    """Steps [S]: ``logits`` [S, R, g] of true acceptances, ``kept_tokens`` [S, R] if all are verified."""

    logits: Float[Array, "S R g"]
    kept_tokens: Int[Array, "S R"]

    @property
    def survival(self) -> Float[np.ndarray, "S R g"]:
        """True chances that the first j drafts survive."""
        return np.asarray(np.cumprod(_expit(self.logits), axis=2))


@final
@dataclass(frozen=True, slots=True)
class Served:
    """What a schedule made of traffic: drafts verified per request, tokens per second, undrafted steps."""

    verified: float
    throughput: float
    plain_steps: int


def traffic(requests: int, steps: int, block: int = 7, seed: int = 0) -> Traffic:
    """Rounds of ``requests`` concurrent requests over some steps, by the distribution above.

    Raises:
        BadInput: no request, step or draft.
    """
    if min(requests, steps, block) < 1:
        raise BadInput("traffic needs at least one request, one step and one draft")
    rng = np.random.default_rng([seed, requests])
    kinds = np.array(KINDS)
    kind = rng.integers(0, len(kinds), requests)
    odds = np.empty((steps, requests))
    for step in range(steps):
        fresh = rng.random(requests) < ENDS
        kind = np.where(fresh, rng.integers(0, len(kinds), requests), kind)
        odds[step] = np.log(kinds[kind] / (1 - kinds[kind]))
    odds += _ROUND * rng.standard_normal(odds.shape)
    logits = odds[..., None] + _POSITION * rng.standard_normal((steps, requests, block))
    survived = rng.random(logits.shape) < _expit(logits)
    return Traffic(logits, np.cumprod(survived, axis=2).sum(axis=2))


def serve(
    what: Traffic, cost: StepCost, scheduler: Scheduler, *, may_skip: bool = True
) -> tuple[Served, list[Lengths]]:
    """Run a schedule over traffic; its lengths at every step.

    A step without drafts takes no time to draft. Tokens are those really kept, and one more per request.
    """
    survival, chosen = what.survival, []
    tokens = seconds = 0.0
    plain = 0
    steps, requests, _ = what.logits.shape
    for step in range(steps):
        drafts = not may_skip or scheduler.drafts(requests)
        lengths = scheduler.plan(survival[step]) if drafts else np.zeros(requests, dtype=np.int64)
        plain += not drafts
        tokens += requests + float(np.minimum(what.kept_tokens[step], lengths).sum())
        batch = np.array([requests + lengths.sum()])
        seconds += float(cost.step(batch, requests if drafts else None)[0])
        chosen.append(lengths)
    verified = float(np.mean([lengths.mean() for lengths in chosen]))
    return Served(verified, tokens / seconds, plain), chosen


def log(
    what: Traffic, cost: StepCost, lengths: list[Lengths], schedule: str | None = None, first_step: int = 0
) -> list[Round]:
    """The rounds that a server would have recorded."""
    found = []
    requests = what.logits.shape[1]
    for step, chosen in enumerate(lengths):
        batch = int(requests + chosen.sum())
        seconds = float(cost.step(np.array([batch]), requests)[0])
        found += [
            Round(
                tuple(what.logits[step, row].tolist()), int(chosen[row]),
                int(min(chosen[row], what.kept_tokens[step, row])), schedule=schedule, step=first_step + step,
                tokens_in_batch=batch, seconds=seconds,
            )
            for row in range(requests)
        ]  # fmt: skip
    return found


def _expit(logits: Array) -> Array:
    from scipy.special import expit

    return np.asarray(expit(logits))


# What other schedules would have done on a serving log: admitted, expected, and got for the time it takes.
#
# The log fixes which rounds there were. Another schedule would have met other rounds later on; what is
# compared is the choice in each round, not two runs.

BLOCKS = 50
"""Neighbouring steps are resampled together, in at most so many blocks: they are not independent."""
_RESAMPLES = 2000
LOGGED = "logged"


@final
@dataclass(frozen=True, slots=True)
class Load:
    """Steps with ``low`` to ``high`` requests: drafts verified per request, and tokens per second.

    Requests that were not drafted for count too.
    """

    low: int
    high: int
    steps: int
    verified: float
    throughput: float


@final
@dataclass(frozen=True, slots=True)
class Replayed:
    """One schedule on the log.

    ``verified`` drafts per request; ``expected`` and ``realised`` tokens per second, the latter with its
    interval (None on fewer than ten steps); ``against_logged`` the ratio of realised ones; ``imputed`` the
    share of tokens that are not recorded outcomes but survivals, since the log verified less. ``skipped``
    steps did not draft.
    """

    name: str
    verified: float
    expected: float
    realised: float
    interval: Interval | None
    against_logged: float
    ratio_interval: Interval | None
    imputed: float
    skipped: int
    loads: tuple[Load, ...]


@final
@dataclass(frozen=True, slots=True)
class Replay:
    """All schedules on one log; the first is what was logged.

    ``cost_ratio`` is measured over modelled seconds of the logged steps, None where the log has no times.
    """

    steps: int
    rounds: int
    block: int
    cost_ratio: float | None
    schedules: tuple[Replayed, ...]

    def to_json(self) -> Json:
        """Plain fields."""
        return asdict(self)


@final
@dataclass(frozen=True, slots=True, eq=False)
class _Step:
    """A pass: the rounds of it, and how many requests beside them said one token each, without drafts."""

    rows: NDArray[np.int64]
    others: int
    survival: NDArray[np.float64]
    limits: NDArray[np.int64]


def replay(
    rounds: Rounds,
    cost: StepCost,
    schedules: Mapping[str, PrefixScheduler],
    calibration: SequentialTemperatureScaling | None = None,
    *,
    skip: bool = True,
    level: float = 0.95,
    seed: int = 0,
) -> Replay:
    """Let every schedule choose on every step of a log; the table says what each step would have taken.

    Where a schedule admits more than the log verified of a block that was kept whole, the tokens beyond are
    counted by their survival given what is known. ``skip``: schedules may refuse to draft.

    Raises:
        BadInput: rounds without step numbers, a schedule called "logged", or steps outside the table.
    """
    if (rounds.step < 0).any():
        raise BadInput(
            f"{int((rounds.step < 0).sum())} rounds have no step number",
            hint="rounds of one pass of the model share a number; without it load is not known",
        )
    if LOGGED in schedules:
        raise BadInput(f"{LOGGED!r} is what the log did", hint="give the schedule another name")
    steps = _steps(rounds, (calibration or SequentialTemperatureScaling()).apply(rounds.logits))
    chosen = {LOGGED: [(rounds.drafted[step.rows], True) for step in steps]}
    for name, scheduler in schedules.items():
        chosen[name] = [_choose(scheduler, step, skip) for step in steps]
    told = {name: _figures_of(rounds, steps, lengths, cost) for name, lengths in chosen.items()}
    logged = told[LOGGED]
    rng = np.random.default_rng(seed)
    return Replay(
        len(steps),
        len(rounds),
        rounds.block,
        _cost_ratio(rounds, steps, logged.seconds),
        tuple(_summary(name, steps, figures, logged, level, rng) for name, figures in told.items()),
    )


def got(
    lengths: Int[Array, "R"],
    drafted: Int[Array, "R"],
    accepted: Int[Array, "R"],
    ended: Array,
    survival: Float[Array, "R g"],
) -> tuple[Float[np.ndarray, "R"], Float[np.ndarray, "R"]]:
    """Tokens each request would have said with other lengths, and how many of them are survivals.

    A recorded rejection or end says all; past a block that was kept whole the conditional survival stands in.
    """
    places = np.arange(survival.shape[1])
    open_ = (accepted == drafted) & ~ended & (lengths > drafted)
    known = np.minimum(accepted, lengths).astype(np.float64)
    last = np.take_along_axis(survival, np.maximum(drafted - 1, 0)[:, None], axis=1)[:, 0]
    reached = np.where(drafted > 0, last, 1.0)
    beyond = (places >= drafted[:, None]) & (places < lengths[:, None])
    more = np.where(beyond, survival, 0.0).sum(axis=1)
    imputed = np.where(open_ & (reached > 0), more / np.where(reached > 0, reached, 1.0), 0.0)
    # An answer that ended inside its drafts says no token after them.
    bonus = np.where(ended & (lengths >= accepted), 0.0, 1.0)
    return known + imputed + bonus, imputed


@final
@dataclass(frozen=True, slots=True, eq=False)
class _Figures:
    """Per step [S]: drafts verified, tokens expected, got and imputed, seconds, and whether it drafted."""

    verified: NDArray[np.float64]
    expected: NDArray[np.float64]
    tokens: NDArray[np.float64]
    imputed: NDArray[np.float64]
    seconds: NDArray[np.float64]
    drafted: NDArray[np.bool_]


def _steps(rounds: Rounds, survival: Array) -> list[_Step]:
    """The rounds of each pass, in the order of the log.

    A pass writes its rounds together. Every run numbers its passes anew: equal numbers do not make a pass.
    """
    step, batch = np.diff(rounds.step) != 0, np.diff(rounds.tokens_in_batch) != 0
    # NaN differs from NaN: without the fill every round of an untimed log would be a pass of its own.
    timed = np.diff(np.nan_to_num(rounds.seconds, nan=-1.0)) != 0
    cuts = np.flatnonzero(step | batch | timed) + 1
    unscheduled = np.array([s is None for s in rounds.schedule], dtype=bool)
    # Without a schedule a block is cut only where there was no room for more.
    limits = np.where(unscheduled, rounds.drafted, rounds.block)
    found = []
    for rows in np.split(np.arange(len(rounds)), cuts):
        # Of requests that were not drafted for there is no round: the pass's tokens alone tell of them.
        others = int(rounds.tokens_in_batch[rows[0]] - len(rows) - rounds.drafted[rows].sum())
        found.append(_Step(rows, max(0, others), survival[rows], limits[rows]))
    return found


def _choose(scheduler: PrefixScheduler, step: _Step, skip: bool) -> tuple[Lengths, bool]:
    if skip and not scheduler.drafts(len(step.rows) + step.others):
        return np.zeros(len(step.rows), dtype=np.int64), False
    return scheduler.plan(step.survival, step.limits, step.others), True


def _figures_of(
    rounds: Rounds, steps: Sequence[_Step], chosen: Sequence[tuple[Lengths, bool]], cost: StepCost
) -> _Figures:
    rows = []
    for step, (lengths, drafted) in zip(steps, chosen, strict=True):
        requests = len(step.rows)
        inside = np.arange(rounds.block) < lengths[:, None]
        tokens, imputed = got(
            lengths,
            rounds.drafted[step.rows],
            rounds.accepted[step.rows],
            rounds.end_within[step.rows],
            step.survival,
        )
        batch = np.array([requests + step.others + lengths.sum()])
        seconds = float(cost.step(batch, requests if drafted else None, step.others)[0])
        expected = requests + step.others + (step.survival * inside).sum()
        said = tokens.sum() + step.others
        rows.append((lengths.sum(), expected, said, imputed.sum(), seconds, drafted))
    verified, hoped, got_, guessed, took, drew = np.array(rows, dtype=np.float64).T
    return _Figures(verified, hoped, got_, guessed, took, drew.astype(bool))


def _cost_ratio(rounds: Rounds, steps: Sequence[_Step], modelled: Array) -> float | None:
    measured = np.array([rounds.seconds[step.rows[0]] for step in steps])
    known = np.isfinite(measured)
    return float(measured[known].sum() / modelled[known].sum()) if known.any() else None


def _summary(
    name: str,
    steps: Sequence[_Step],
    mine: _Figures,
    logged: _Figures,
    level: float,
    rng: np.random.Generator,
) -> Replayed:
    sizes = np.array([len(step.rows) + step.others for step in steps])
    rate = float(mine.tokens.sum() / mine.seconds.sum())
    base = float(logged.tokens.sum() / logged.seconds.sum())
    arrays = (mine.tokens, mine.seconds, logged.tokens, logged.seconds)
    return Replayed(
        name=name,
        verified=float(mine.verified.sum() / sizes.sum()),
        expected=float(mine.expected.sum() / mine.seconds.sum()),
        realised=rate,
        interval=_interval(arrays[:2], rate, level, rng),
        against_logged=rate / base,
        ratio_interval=None if name == LOGGED else _interval(arrays, rate / base, level, rng),
        imputed=float(mine.imputed.sum() / mine.tokens.sum()),
        skipped=int((~mine.drafted).sum()),
        loads=tuple(_loads(sizes, mine)),
    )


def _loads(sizes: Array, mine: _Figures) -> list[Load]:
    """Figures by the number of requests, in ranges that double."""
    found = []
    bucket = np.floor(np.log2(sizes)).astype(int)
    for power in np.unique(bucket):
        use = bucket == power
        found.append(
            Load(
                int(sizes[use].min()),
                int(sizes[use].max()),
                int(use.sum()),
                float(mine.verified[use].sum() / sizes[use].sum()),
                float(mine.tokens[use].sum() / mine.seconds[use].sum()),
            )
        )
    return found


def _interval(
    arrays: Sequence[Array], estimate: float, level: float, rng: np.random.Generator
) -> Interval | None:
    """Percentile bootstrap of a ratio of sums (or of two), over blocks of neighbouring steps."""
    from scipy.stats import bootstrap

    count = len(arrays[0])
    if count < 10:
        return None
    # reduceat sums from each cut to the next and the last to the end, so the end itself is no cut.
    cuts = np.linspace(0, count, min(BLOCKS, count) + 1).astype(int)[:-1]
    blocks = tuple(np.add.reduceat(np.asarray(a), cuts) for a in arrays)

    def ratio(*sums: Array, axis: int = -1) -> Array:
        totals = [s.sum(axis=axis) for s in sums]
        rate = totals[0] / totals[1]
        return np.asarray(rate if len(totals) == 2 else rate / (totals[2] / totals[3]))

    found = bootstrap(
        blocks,
        ratio,
        paired=True,
        vectorized=True,
        n_resamples=_RESAMPLES,
        confidence_level=level,
        method="percentile",
        rng=rng,
    ).confidence_interval
    name = "bootstrap over blocks of steps"
    return Interval(estimate, float(found.low), float(found.high), level, name)
