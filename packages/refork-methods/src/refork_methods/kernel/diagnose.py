"""A CPU kernel diagnosed end to end: compiled, timed, profiled once, classified, and all tools asked.

Source: arXiv 2606.26453 for the method, which is about GPUs. Of ours are the CPU signals, smaller sizes for
the simulated run, and that every tool is asked whatever the class: theory calls a naive matmul compute-bound,
and the tools that its row leaves out are those that tell why it is slow.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import final

from refork.errors import BadInput, CannotDo
from refork.progress import Progress, silent
from refork.types import Json
from refork_methods.kernel.bench import Bench, Calibration, Candidate, Evaluated
from refork_methods.kernel.cpu import metrics as m
from refork_methods.kernel.cpu.build import for_profiling
from refork_methods.kernel.cpu.diagnose import derived, diagnose_cpu
from refork_methods.kernel.diagnose_caches import Simulated, caches, simulate
from refork_methods.kernel.diagnose_code import Code, named, read_code, source_lines, with_places
from refork_methods.kernel.diagnose_samples import calls_for, sampled
from refork_methods.kernel.diagnose_sizes import array_bytes, simulated_problem, with_bytes
from refork_methods.kernel.problem import Problem
from refork_methods.kernel.roofline import Ceilings, Work, roof
from refork_methods.kernel.signals import Signals
from refork_methods.kernel.tool import Diagnosis

#: What a diagnosis may read; each is left out where it is not asked for.
PARTS: tuple[str, ...] = ("timing", "code", "cachegrind", "perf")
_STAGE = "diagnose"


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class Diagnosed:
    """What was found of one version of a kernel, with all that it was found from.

    ``seconds``: of one call, least of several; None where it was not timed. ``simulated``: the sizes of the
    simulated call, where they are smaller than the problem's. ``notes`` say how things were measured, and
    what was assumed. ``lines``: the source lines that evidence names, by number.
    """

    problem: Problem
    candidate: Candidate
    diagnosis: Diagnosis
    signals: Signals
    ceilings: Ceilings
    work: Work | None
    seconds: float | None
    evaluated: Evaluated | None
    simulated: dict[str, int] = field(default_factory=dict)
    notes: tuple[str, ...] = ()
    lines: dict[int, str] = field(default_factory=dict)

    @property
    def roof_seconds(self) -> float | None:
        """The least seconds that the work can take on this machine; None where it is not declared."""
        return roof(self.work, self.ceilings) if self.work is not None else None

    @property
    def headroom(self) -> float | None:
        """How many times as fast it could at most be; None where work or time is not known."""
        least = self.roof_seconds
        return self.seconds / least if self.seconds is not None and least else None

    def to_json(self) -> Json:
        """Plain JSON; what was not measured is null or under ``absent``."""
        told, work = self.diagnosis, self.work
        return {
            "kernel": self.problem.name,
            "entry": self.problem.entry,
            "candidate": self.candidate.digest,
            "flags": list(self.candidate.flags),
            "sizes": dict(self.problem.sizes),
            "class": {
                "bound": told.classified.bound,
                "theory": told.classified.theory,
                "measured": told.classified.measured,
                "confidence": told.classified.confidence,
            },
            "roofline": {
                "flops": work.flops if work else None,
                "bytes": work.bytes if work else None,
                "intensity": work.intensity if work else None,
                "peak_flops_per_second": self.ceilings.flops,
                "peak_bytes_per_second": self.ceilings.bandwidth,
                "ridge": self.ceilings.ridge,
                "noise": self.ceilings.noise,
                "seconds": self.seconds,
                "flops_share": m.FLOPS_SHARE.of(self.signals),
                "bandwidth_share": m.BYTES_SHARE.of(self.signals),
                "least_seconds": self.roof_seconds,
                "headroom": self.headroom,
            },
            "findings": [one.to_json() | {"sentence": one.sentence} for one in told.findings],
            "ran": list(told.ran),
            "blind": dict(told.blind),
            "slips": [one.to_json() for one in told.slips],
            "simulated_sizes": dict(self.simulated) or None,
            "notes": list(self.notes),
            "source_lines": {str(number): text for number, text in self.lines.items()},
            "evaluated": self.evaluated.to_json() if self.evaluated else None,
            "signals": self.signals.to_json(),
        }


def diagnose(
    problem: Problem,
    candidate: Candidate | None = None,
    *,
    bench: Bench,
    calibration: Calibration,
    progress: Progress = silent,
    quick: bool = False,
    parts: Sequence[str] = PARTS,
    seconds: float | None = None,
) -> Diagnosed:
    """What holds a version of a kernel back (None: the problem's own source), on all measurements at hand.

    ``bench`` is open, and of the same problem. ``quick`` looks for cache conflicts only where nearly every
    access strides. ``parts`` limits what is measured, and ``seconds`` (of one call) takes the place of a
    timing; what is left out is absent.

    Raises:
        BadInput: the source does not compile or lacks the entry.
        CannotDo: there is no compiler.
    """
    chosen = candidate or Candidate(problem.source, problem.flags)
    run = _Run(problem, chosen, bench, calibration, quick, tuple(parts), progress)
    code = run.code()
    timed = run.timed(seconds)
    cache = run.cache(code, timed)
    sampling = run.samples(code, timed)
    signals = code.signals | timed | cache.signals | sampling
    return run.concluded(code, signals)


@final
class _Run:
    """One diagnosis on its way."""

    def __init__(
        self, problem: Problem, candidate: Candidate, bench: Bench, calibration: Calibration, quick: bool,
        parts: tuple[str, ...], progress: Progress,
    ) -> None:  # fmt: skip
        unknown = set(parts) - set(PARTS)
        if unknown:
            raise BadInput(f"part {min(unknown)}", where="kernel diagnosis", hint=", ".join(PARTS))
        self.problem, assumed = with_bytes(problem)
        self.candidate, self.bench, self.quick, self.parts = candidate, bench, quick, parts
        self.progress, self.notes = progress, list(assumed)
        self.calibration = calibration
        self.folder = bench.folder / "diagnose"
        self.evaluated: Evaluated | None = None
        self.simulated = problem
        self._done = 0

    def code(self) -> Code:
        self._step("compiling and reading the code")
        folder = self.folder / self.candidate.digest
        folder.mkdir(parents=True, exist_ok=True)
        source = folder / self.name
        source.write_text(self.candidate.source)
        return read_code(source, folder, self.problem.entry, self.candidate.flags)

    @property
    def name(self) -> str:
        return f"{Path(self.problem.name).stem}{self.problem.suffix}"

    def timed(self, seconds: float | None) -> Signals:
        self._step("checking and timing")
        if seconds is None and "timing" not in self.parts:
            return Signals(absent={"timing": "not asked for"})
        if seconds is None:
            self.evaluated = self.bench.evaluate(self.candidate)
            seconds = self.evaluated.seconds
            if not self.evaluated.ok:
                self.notes.append(f"it does not stand ({self.evaluated.stage}): {self.evaluated.why}")
        if seconds is None:
            return Signals(absent={"timing": "it could not be timed"})
        return Signals({"timing": {m.SECONDS.name: seconds}}, {"timing": (f"{seconds:.4g} s a call",)})

    def cache(self, code: Code, timed: Signals) -> Simulated:
        self._step("simulating the caches")
        if self._barred("cachegrind") is not None:
            return Simulated(Signals(absent={"cachegrind": self._barred("cachegrind") or ""}))
        self.simulated, why = simulated_problem(self.problem, m.SECONDS.of(timed))
        self.notes += why
        profiled = Candidate(self.candidate.source, for_profiling(self.candidate.flags))
        try:
            if self.simulated is self.problem:
                driver = self.bench.profiled(profiled)
            else:
                with Bench(self.simulated, self.bench.folder / "simulated", self.bench.seed) as small:
                    driver = small.profiled(profiled)
            found = simulate(driver, caches(processors=os.cpu_count() or 1), quick=self.quick)
        except (BadInput, CannotDo) as error:
            return Simulated(Signals(absent={"cachegrind": f"for valgrind's processor: {error.what}"}))
        self.notes += found.notes
        return replace(found, signals=named(found.signals, self.name))

    def samples(self, code: Code, timed: Signals) -> Signals:
        self._step("sampling")
        why = self._barred("perf")
        if why is not None:
            return Signals(absent={"perf": why})
        stack = bool((m.STACK_LOADS.of(code.signals) or 0) + (m.STACK_STORES.of(code.signals) or 0))
        try:
            calls = calls_for(m.SECONDS.of(timed) or 1.0)
            written = array_bytes(self.problem, "out")
            driver = self.bench.profiled(self.candidate)
            return sampled(driver, calls, stack=stack, output_bytes=written)
        except (BadInput, CannotDo) as error:
            return Signals(absent={"perf": error.what})

    def _barred(self, part: str) -> str | None:
        """Why a program is not run; None where it may be."""
        if part not in self.parts:
            return "not asked for"
        if (
            self.evaluated is not None
            and self.evaluated.stage in ("build", "run", "cheat")
            and not self.evaluated.ok
        ):
            return f"it does not stand: {self.evaluated.why}"
        return None

    def _step(self, waiting: str) -> None:
        self.progress(_STAGE, self._done, 4, waiting=waiting)
        self._done += 1

    def concluded(self, code: Code, signals: Signals) -> Diagnosed:
        self.progress(_STAGE, 4, 4)
        work = self.problem.work
        calls = (self.evaluated.calls if self.evaluated else None) or 1
        ceilings, told = ceilings_of(self.problem, self.calibration, calls)
        self.notes += told
        small = self.simulated.work if self.simulated is not self.problem else None
        if work is None:
            self.notes.append(
                "flops are not declared (flops=E): values per flop, and the class by theory, are absent"
            )
        found = diagnose_cpu(
            signals, work, ceilings, every=True, simulated=small, inherent=code.inherent
        )  # fmt: skip
        if code.inherent:
            self.notes.append("each iteration waits for the last one even where sums may be reordered")
        findings = with_places(found.findings, code.built, self.name)
        return Diagnosed(
            problem=self.problem,
            candidate=self.candidate,
            diagnosis=replace(found, findings=findings),
            signals=signals | derived(signals, work, ceilings, small),
            ceilings=ceilings,
            work=work,
            seconds=m.SECONDS.of(signals),
            evaluated=self.evaluated,
            simulated=dict(self.simulated.sizes) if small is not None else {},
            notes=tuple(self.notes),
            lines=source_lines(findings, self.candidate.source, self.name),
        )


def ceilings_of(problem: Problem, calibration: Calibration, calls: int) -> tuple[Ceilings, list[str]]:
    """The machine's ceilings for a problem's numbers, and for arrays of so many calls; what was chosen.

    Arrays that a core's own caches hold do not come from memory: their ceiling is the first cache's.
    """
    found = calibration.ceilings
    notes: list[str] = []
    kinds = {one.ctype for one in problem.arguments} | {problem.returns}
    if "double" in kinds and "float" not in kinds:
        found = replace(found, flops=calibration.flops64)
        notes.append("the ceiling of arithmetic is that of double precision")
    size = array_bytes(problem) * calls
    if size <= calibration.cache_bytes:
        found = replace(found, bandwidth=max(calibration.cached, calibration.bandwidth))
        notes.append(
            f"{size / 1024:.0f} KiB of arrays fit in a core's caches: theirs is the ceiling of bandwidth"
        )
    return found, notes
