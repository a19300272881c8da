"""Candidates of one problem: built, checked in higher precision, and timed in turns with the original."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import replace
from pathlib import Path
from typing import final

import numpy as np
from jaxtyping import Float

from refork.errors import BadInput, CannotDo
from refork.progress import Progress, silent
from refork_methods.kernel.bench import edges
from refork_methods.kernel.bench.calibration import Calibration, below, load_calibration
from refork_methods.kernel.bench.check import Arrays, RejectedError, called, judge
from refork_methods.kernel.bench.original import Original, must_run
from refork_methods.kernel.bench.process import (
    MOST,
    Batch,
    FailedError,
    Host,
    Memory,
    Placed,
    draw_batch,
    draw_offsets,
    layout_of,
)
from refork_methods.kernel.bench.program import Program, Programs
from refork_methods.kernel.bench.result import Candidate, Driver, Evaluated, Limits, Stage
from refork_methods.kernel.bench.screen import RefusedError
from refork_methods.kernel.problem import Problem

#: Both the original and a candidate may be off by the tolerance, each to its side.
BOTH = 2.0
_PILOTS = 4


@final
class Turns:
    """Takes samples of ``original`` and ``hosts``: candidates by number, checked before.

    One that fails is out from then on.
    """

    def __init__(
        self,
        problem: Problem,
        original: Original,
        hosts: dict[int, Host],
        limits: Limits,
        rng: Callable[[], np.random.Generator],
        progress: Progress,
    ) -> None:
        self.problem, self.limits = problem, limits
        self.calls = 1
        self._fit, self._original = original, original.host
        self._hosts, self._rng, self._progress = dict(hosts), rng, progress
        self._out: dict[int, RejectedError] = {}
        self._taken: list[tuple[float, dict[int, float]]] = []
        self._warm: list[tuple[float, dict[int, float]]] = []
        self._warm_calls = 1
        self._idle = 0.0  # of the original: a candidate may not say what is to be taken off its time

    def take(self, repeats: int) -> None:
        """Find out how many calls a sample needs, then take the samples.

        Raises:
            CannotDo: the original failed.
        """
        if not self._hosts:
            return
        try:
            # No call at all: what the driver takes itself. The least of several, free of disturbances.
            self._idle = min(self._original.run(0).cpu for _ in range(5))
        except FailedError as failed:
            raise must_run(failed, self.problem.name) from None
        # The first calls are cold, so that how many fill a sample is found in steps.
        for _ in range(_PILOTS):
            self._turn(0)
            self._warm_turn(0)
            wanted = self._wanted()
            settled = wanted <= self.calls * 1.5
            self.calls = max(self.calls, wanted)
            self._warm_calls = max(self._warm_calls, self._wanted_warm())
            if settled:
                break
        self._turn(1)  # the pages of all calls are there from now on
        self._warm_turn(1)
        self._taken.clear()
        self._warm.clear()
        for turn in range(repeats):
            if not self._hosts:
                return
            self._progress("timing", turn, repeats)
            self._turn(turn)
            self._warm_turn(turn)
        self._progress("timing", repeats, repeats)

    def stands(self, number: int) -> None:
        """Nothing where a candidate came through.

        Raises:
            RejectedError: it failed in a turn.
        """
        if number in self._out:
            raise self._out[number]

    def samples(self, number: int) -> tuple[list[float], list[float]]:
        """Seconds of one call in each turn, of the original and of a candidate."""
        return [theirs for theirs, _ in self._taken], [ours[number] for _, ours in self._taken]

    def warm_samples(self, number: int) -> tuple[list[float], list[float]]:
        """The same of calls that find their arrays in the caches."""
        return [theirs for theirs, _ in self._warm], [ours[number] for _, ours in self._warm]

    def _wanted_warm(self) -> int:
        """Calls on the same arrays that fill a sample."""
        if not self._warm or not self._hosts:
            return 1
        theirs, ours = self._warm[-1]
        enough = math.ceil(self.limits.sample / max(min(*ours.values(), theirs, math.inf), 1e-9))
        return max(1, min(enough, MOST, int(self.limits.longest / max(theirs, 1e-9))))

    def _wanted(self) -> int:
        """Calls so that the fastest fills a sample, as far as arrays and the original let."""
        if not self._taken or not self._hosts:
            return 1
        theirs, ours = self._taken[-1]
        enough = math.ceil(self.limits.sample / max(min(*ours.values(), theirs, math.inf), 1e-9))
        room = self.limits.arrays // max(self._original.layout.touched, 1)
        return max(1, min(enough, MOST, room, int(self.limits.longest / max(theirs, 1e-9))))

    def _turn(self, turn: int) -> None:
        """One sample of each on the same fresh inputs, who is first changing from turn to turn."""
        rng = self._rng()
        batch = draw_batch(self.problem, self.calls, rng, "nan" if turn % 2 else "number")
        placed = draw_offsets(self._original.layout, rng)
        order = self._order(turn)
        found: dict[int, Arrays] = {}
        seconds: dict[int, float] = {}
        for number in order:
            if number < 0:
                try:
                    found[number], seconds[number] = self._called(self._original, batch, placed)
                except (FailedError, RejectedError) as failed:
                    raise must_run(failed, self.problem.name) from None
                continue
            with self._alone(number):
                found[number], seconds[number] = self._called(self._hosts[number], batch, placed)
        for number, host in list(self._hosts.items()):
            with self._alone(number):
                self._judged(host, batch, found[number], found[-1])
        self._taken.append((seconds.pop(-1), seconds))

    def _order(self, turn: int) -> list[int]:
        """Who is called when: first another one in each turn."""
        order = [-1, *self._hosts]
        return order[turn % len(order) :] + order[: turn % len(order)]

    def _warm_turn(self, turn: int) -> None:
        """One sample of each of calls on the same arrays, which the call before has left in the caches.

        Where every output is written anew, what the last call left is judged; what is added to what was there
        has by then been added many times, in both.
        """
        if not self._hosts:
            return
        rng = self._rng()
        batch = draw_batch(self.problem, 1, rng, "nan" if turn % 2 else "number")
        placed = draw_offsets(self._original.layout, rng)
        found: dict[int, Arrays] = {}
        seconds: dict[int, float] = {}
        for number in self._order(turn):
            if number < 0:
                try:
                    found[number], seconds[number] = self._called_again(self._original, batch, placed)
                except (FailedError, RejectedError) as failed:
                    raise must_run(failed, self.problem.name) from None
                continue
            with self._alone(number):
                found[number], seconds[number] = self._called_again(self._hosts[number], batch, placed)
        if not any(one.role == "inout" for one in self.problem.arguments):
            for number, host in list(self._hosts.items()):
                with self._alone(number):
                    self._judged(host, batch, found[number], found[-1])
        self._warm.append((seconds.pop(-1), seconds))

    def _called_again(self, host: Host, batch: Batch, placed: Placed) -> tuple[Arrays, float]:
        """What the last of many calls on one batch left, and seconds of one of them; one more came before."""
        found, took = called(host, batch, placed, again=self._warm_calls)
        return found, max(took.cpu - self._idle, took.cpu / 2) / self._warm_calls

    def _judged(self, host: Host, batch: Batch, found: Arrays, theirs: Arrays) -> None:
        """Near the original's results, or else near the precise ones: where terms cancel, both may be off."""
        scales = self._fit.scales
        try:
            judge(self.problem, host, batch, found, theirs, scales=scales, slack=BOTH)
        except RejectedError:
            precise = self._fit.expected(batch)
            judge(self.problem, host, batch, found, precise, scales=scales, beside=theirs)

    def _called(self, host: Host, batch: Batch, placed: Placed) -> tuple[Arrays, float]:
        """What came of a batch, and seconds of the processor for one call."""
        found, took = called(host, batch, placed)
        # What the driver takes itself is no part of it, but never more than half is taken off.
        return found, max(took.cpu - self._idle, took.cpu / 2) / batch.calls

    @contextmanager
    def _alone(self, number: int) -> Iterator[None]:
        """For what is one candidate's own: its failure takes out no other."""
        try:
            yield
        except FailedError as failed:
            why = f"while it was timed: {failed}"
            self._drop(number, RejectedError("cheat" if failed.cheat else "run", why, cheat=failed.cheat))
        except RejectedError as refused:
            cheat = refused.cheat or "wrong-later"
            why = f"while it was timed: {refused}"
            self._drop(number, RejectedError(refused.stage, why, cheat=cheat, error=refused.error))

    def _drop(self, number: int, why: RejectedError) -> None:
        self._out[number] = why
        self._hosts.pop(number, None)


RESAMPLES = 4000


def speedup(
    reference: Sequence[float] | Float[np.ndarray, "pairs"],
    candidate: Sequence[float] | Float[np.ndarray, "pairs"],
    rng: np.random.Generator,
) -> tuple[float, float, float]:
    """Least reference time over least candidate time, with its 95 % interval; seconds in, ratios out.

    Pairs are resampled whole, so that what slowed both down stays together. The bootstrap of a minimum sees
    only minima that were drawn: the interval is too narrow where samples are few, so what is claimed must
    beat the machine's noise besides.

    Raises:
        BadInput: fewer than 3 pairs, or times that are not above 0.
    """
    x, y = np.asarray(reference, np.float64), np.asarray(candidate, np.float64)
    if x.size < 3 or x.shape != y.shape or not (x > 0).all() or not (y > 0).all():
        raise BadInput(f"{x.size} and {y.size} samples", where="speed-up", hint="3 pairs or more, above 0")
    drawn = rng.integers(0, x.size, (RESAMPLES, x.size))
    ratios = x[drawn].min(axis=1) / y[drawn].min(axis=1)
    low, high = np.quantile(ratios, [0.025, 0.975])
    point = float(x.min() / y.min())
    # A resample's minima are never below the sample's, so the point may lie outside of the quantiles.
    return point, min(point, float(low)), max(point, float(high))


#: Least samples of a timing.
LEAST = 7


@final
class Bench:
    """Builds, checks and times candidates of one problem. A context; it tries the original out on entry.

    Source: arXiv 2606.26453 for what must not pass; how it is kept from passing is ours. No candidate is
    trusted: each runs in a process without rights, on inputs drawn anew for every call, and every call that
    is timed is checked too. Times are the processor time that the system accounts to that process,
    cross-checked with a clock on our side. ``folder`` keeps what was built. All draws follow from ``seed``.
    """

    def __init__(
        self,
        problem: Problem,
        folder: Path,
        seed: int = 0,
        limits: Limits | None = None,
        *,
        calibration: Calibration | None = None,
        progress: Progress = silent,
    ) -> None:
        self.problem, self.folder, self.seed = problem, folder.absolute(), seed
        self.limits = limits or Limits()
        self.calibration = calibration or load_calibration()
        self._progress = progress
        self._draws = 0
        # A duel has inputs of its own: a search that goes on counts its draws from the beginning again, and
        # what chose a candidate must not be what it is judged on.
        self._purpose: tuple[int, ...] = ()
        self._noise: float | None = None
        self._stack = ExitStack()
        self._original: Original | None = None
        self._sized: dict[str, Original] | None = None
        #: Other sizes -> why nothing is held against the original there: it does not fit them itself.
        self.left_out: dict[str, str] = {}

    def __enter__(self) -> Bench:
        self._tried()
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def close(self) -> None:
        """End all processes."""
        self._stack.close()
        self._original = self._sized = None

    @property
    def original(self) -> Candidate:
        """The problem's own source and flags."""
        return Candidate(self.problem.source, self.problem.flags)

    @property
    def layers(self) -> tuple[str, ...]:
        """What holds a candidate back on this system."""
        return self._tried().host.layers

    @property
    def noise(self) -> float:
        """The machine's: as calibrated, else measured once by timing the original against itself."""
        if self.calibration is not None:
            return self.calibration.noise
        if self._noise is None:
            found = self._timed([self.original], LEAST, noise=1.0)[0]
            ratio = found.speedup
            if ratio is None:
                raise CannotDo(f"the original cannot be timed: {found.why}", where=self.problem.name)
            self._noise = max(ratio, 1 / ratio)
        return self._noise

    def build(self, candidate: Candidate) -> None:
        """Build ahead; safe in several threads. What fails says so again when the candidate is checked."""
        with suppress(RejectedError):
            self._built(candidate)

    def check(self, candidate: Candidate, draws: int = 3) -> Evaluated:
        """Build a candidate and hold it against the higher-precision reference on ``draws`` fresh inputs.

        Raises:
            BadInput: ``draws`` below 1, or the problem itself is unfit (see :meth:`__enter__`).
        """
        if draws < 1:
            raise BadInput(f"{draws} draws check nothing", where="kernel bench")
        try:
            with self._host(self._built(candidate)) as host:
                error = max(self._checked(host, draws), self._checked_sizes(host.program))
                return Evaluated(
                    ok=True, stage="done", error=error, sizes=tuple(self._others()),
                    overlaps=self._overlaps(host),
                )  # fmt: skip
        except RejectedError as refused:
            return _rejected(refused)

    def evaluate(self, candidate: Candidate, *, repeats: int = LEAST) -> Evaluated:
        """Build, check, time against the original in turns, and check once more.

        Raises:
            BadInput: fewer than 7 repeats. CannotDo: the original fails now.
        """
        return self._timed([candidate], repeats)[0]

    def duel(self, candidates: Sequence[Candidate], repeats: int = 15) -> list[Evaluated]:
        """All candidates and the original in turns, for final claims; one that fails leaves the rest alone.

        Raises:
            BadInput: fewer than 7 repeats. CannotDo: the original fails now.
        """
        self._purpose = (1,)
        try:
            return self._timed(candidates, repeats)
        finally:
            self._purpose = ()

    def profiled(self, candidate: Candidate) -> Driver:
        """A program that calls a candidate on drawn inputs as often as its last argument says: once.

        It is screened like any candidate, but not confined, as profilers need rights: check it first.

        Raises:
            BadInput: it cannot be built, or is refused.
        """
        try:
            program = self._built(candidate, "profile.c")
        except RejectedError as refused:
            raise BadInput(str(refused), where="kernel profile") from None
        layout = layout_of(self.problem)
        data = np.zeros(layout.slots + layout.stride, np.uint8)
        # The bench's own draws are counted from 1: 0 is taken by no other.
        rng = np.random.default_rng([self.seed, 0])
        Memory(layout, data).write(draw_batch(self.problem, 1, rng), draw_offsets(layout, rng, "low"))
        inputs = self.folder / f"inputs-{self.problem.digest}-{self.seed}.bin"
        made = inputs.with_suffix(".tmp")
        made.write_bytes(data.tobytes())
        made.replace(inputs)
        return Driver(program.path, (str(program.path), str(inputs), "1"), program.symbol)

    def _tried(self) -> Original:
        if self._original is None:
            self._programs = Programs(self.problem, self.folder, self.limits.build)
            made = Original(self.problem, self._programs, self.limits, self._rng())
            self._original = self._stack.enter_context(made)
        return self._original

    def _rng(self) -> np.random.Generator:
        self._draws += 1
        return np.random.default_rng([self.seed, self._draws, *self._purpose])

    def _built(self, candidate: Candidate, main: str = "host.c") -> Program:
        self._tried()
        try:
            return self._programs.make(candidate.source, candidate.flags, main=main)
        except RefusedError as refused:
            stage: Stage = "build" if refused.cheat == "imports" else "cheat"
            raise RejectedError(stage, str(refused), cheat=refused.cheat) from None
        except BadInput as error:
            raise RejectedError("build", f"{error.what} ({error.where})") from None

    def _host(self, program: Program) -> Host:
        return Host(program.path, self._tried().shared, self.limits)

    def _checked(self, host: Host, draws: int, first: int = 0) -> float:
        """Worst error over fresh inputs; arrays lie flush left, flush right twice, then anywhere."""
        worst = 0.0
        original = self._tried()
        placed = draw_offsets(host.layout, self._rng(), "high")
        for number in range(first, first + draws):
            rng = self._rng()
            batch = draw_batch(self.problem, 1, rng, "number" if number % 2 else "nan")
            if (
                number == 0 or number > 2
            ):  # and twice in the same place, for who takes that for the same inputs
                placed = draw_offsets(host.layout, rng, "low" if number == 0 else "random")
            elif number == 1:
                placed = draw_offsets(host.layout, rng, "high")
            try:
                found, _ = called(host, batch, placed)
                wanted = original.expected(batch)
                error = judge(self.problem, host, batch, found, wanted, scales=original.scales)
                worst = max(worst, error)
            except FailedError as failed:
                raise _failed(failed) from None
            except RejectedError as refused:
                if number and refused.stage == "check":
                    why = f"{refused}, after {number} right calls"
                    raise RejectedError("check", why, cheat="wrong-later", error=refused.error) from None
                raise
        return worst

    def _others(self) -> dict[str, Original]:
        """The original at other sizes, where it is fit to judge."""
        if self._sized is None:
            self._sized = {}
            for sizes in edges.other_sizes(self.problem):
                said = ", ".join(f"{name}={size}" for name, size in sizes.items())
                try:
                    problem = edges.resized(self.problem, sizes)
                    made = Original(problem, self._programs, self.limits, self._rng())
                    self._sized[said] = self._stack.enter_context(made)
                except BadInput as unfit:
                    self.left_out[said] = str(unfit)
        return self._sized

    def _checked_sizes(self, program: Path) -> float:
        """Worst error over other sizes, at each on one fresh input whose arrays end right before a guard."""
        worst = 0.0
        for said, original in self._others().items():
            rng = self._rng()
            batch = draw_batch(original.problem, 1, rng, "number")
            try:
                with Host(program, original.shared, self.limits) as host:
                    found, _ = called(host, batch, draw_offsets(host.layout, rng, "high"))
                    wanted = original.expected(batch)
                    told = judge(original.problem, host, batch, found, wanted, scales=original.scales)
                    worst = max(worst, told)
            except FailedError as failed:
                cheat = failed.cheat or "wrong-size"
                raise RejectedError("run", f"at {said}: {failed}", cheat=cheat) from None
            except RejectedError as refused:
                cheat = refused.cheat or "wrong-size"
                why = f"at {said}: {refused}"
                raise RejectedError(refused.stage, why, cheat=cheat, error=refused.error) from None
        return worst

    def _overlaps(self, host: Host) -> tuple[str, ...]:
        """Pairs of arrays on which a candidate differs from the original where they overlap.

        Raises:
            RejectedError: the problem says of a pair that it may be one array.
        """
        original = self._tried()
        hosts = (host, original.host, original.precise)
        told: dict[str, None] = {}
        for pair, shift, off in edges.overlaps(self.problem, hosts, self._rng(), original.scales):
            if shift == 0 and any(set(pair) == set(one) for one in self.problem.alias):
                why = f"where {pair[0]} is {pair[1]}: element {off.element} is {off.got:.9g}"
                raise RejectedError(
                    "check", f"{why}, expected {off.expected:.9g}", cheat="aliasing", error=off.error
                )
            told[f"{pair[1]} and {pair[0]}"] = None
        return tuple(told)

    def _timed(
        self, candidates: Sequence[Candidate], repeats: int, noise: float | None = None
    ) -> list[Evaluated]:
        if repeats < LEAST:
            raise BadInput(f"{repeats} repeats", where="kernel bench", hint=f"{LEAST} or more")
        original = self._tried()
        known = self.noise if noise is None else noise
        found: dict[int, Evaluated] = {}
        with ExitStack() as stack:
            hosts: dict[int, Host] = {}
            errors: dict[int, float] = {}
            differs: dict[int, tuple[str, ...]] = {}
            for number, one in enumerate(candidates):
                try:
                    hosts[number] = stack.enter_context(self._host(self._built(one)))
                    errors[number] = self._checked(hosts[number], 3)
                    errors[number] = max(errors[number], self._checked_sizes(hosts[number].program))
                    differs[number] = self._overlaps(hosts[number])
                except RejectedError as refused:
                    found[number] = _rejected(refused)
                    hosts.pop(number, None)
            turns = Turns(self.problem, original, hosts, self.limits, self._rng, self._progress)
            turns.take(repeats)
            for number, host in hosts.items():
                try:
                    turns.stands(number)
                    errors[number] = max(errors[number], self._checked(host, 1, first=3))
                    told = self._summed(turns, number, errors[number], known)
                    found[number] = replace(told, sizes=tuple(self._others()), overlaps=differs[number])
                except RejectedError as refused:
                    found[number] = _rejected(refused)
        return [found[number] for number in range(len(candidates))]

    def _summed(self, turns: Turns, number: int, error: float, noise: float) -> Evaluated:
        theirs, ours = turns.samples(number)
        point, low, high = speedup(theirs, ours, self._rng())
        warm, warm_low, warm_high = speedup(*turns.warm_samples(number), self._rng())
        told = Evaluated(
            ok=True, stage="done", error=error, seconds=min(ours), reference_seconds=min(theirs),
            speedup=point, samples=tuple(ours), low=low, high=high, noise=noise, calls=turns.calls,
            ahead=sum(mine < their for mine, their in zip(ours, theirs, strict=True)),
            warm=warm, warm_low=warm_low, warm_high=warm_high,
        )  # fmt: skip
        if self.calibration is not None:
            below(self.problem, told, self.calibration, turns.calls * layout_of(self.problem).touched)
        return told


def _failed(failed: FailedError) -> RejectedError:
    return RejectedError("cheat" if failed.cheat else "run", str(failed), cheat=failed.cheat)


def _rejected(refused: RejectedError) -> Evaluated:
    return Evaluated(
        ok=False, stage=refused.stage, why=str(refused), error=refused.error, cheat=refused.cheat
    )
