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
from refork_methods.kernel.bench.calibration import peak_of
from refork_methods.kernel.bench.process import layout_of
from refork_methods.kernel.cpu import metrics as m
from refork_methods.kernel.cpu.build import for_profiling
from refork_methods.kernel.cpu.cachegrind import Simulated, caches, simulate
from refork_methods.kernel.cpu.diagnose import derived, diagnose_cpu
from refork_methods.kernel.cpu.perf import calls_for, sampled
from refork_methods.kernel.cpu.static import Code, named, read_code, source_lines, with_places
from refork_methods.kernel.fitted import fitted, shape_of
from refork_methods.kernel.problem import BYTES, Problem
from refork_methods.kernel.roofline import Ceilings, Work, roof
from refork_methods.kernel.signals import Signals
from refork_methods.kernel.tool import Diagnosis

#: A simulated run takes about so many times as long as the kernel (ours: 20 to 150 were seen).
SLOWER = 100.0
#: Seconds that it is meant to take.
AIM = 5.0
#: Sizes below are not halved: they are widths of stencils and numbers of channels.
LEAST = 32
#: The arrays stay larger than so many first-level caches, that capacity tells.
CACHE = 4 * (48 << 10)


def array_bytes(problem: Problem, role: str = "") -> float:
    """Bytes of all arrays, or of those that are written (``out``); what is read and written counts twice."""
    total = 0.0
    for one in problem.arguments:
        if not one.array:
            continue
        size = problem.length(one) * BYTES[one.ctype]
        if role == "out":
            total += size * (one.role in ("out", "inout"))
        else:
            total += size * (2 if one.role == "inout" else 1)
    return total


def with_bytes(problem: Problem) -> tuple[Problem, list[str]]:
    """The problem with its least traffic where none was declared: each array moved once. And a note on it."""
    size = array_bytes(problem)
    if problem.bytes is not None or problem.flops is None or not size:
        return problem, []
    said = f"bytes are not declared: {size:.4g} are assumed, each array once (bytes=E)"
    return replace(problem, bytes=size), [said]


def simulated_problem(problem: Problem, seconds: float | None) -> tuple[Problem, list[str]]:
    """The same at sizes halved together until a simulation is quick; itself where it is, or cannot be.

    The halved problem has its work where the problem's work follows from its sizes.
    """
    if seconds is None or seconds * SLOWER <= AIM:
        return problem, []
    small, expected = problem, seconds * SLOWER
    # All sizes together, so that the shape of the problem stays.
    while expected > AIM:
        try:
            halved = _halved(small)
        except BadInput:
            break
        if halved is None or array_bytes(halved) < CACHE:
            break
        expected *= _part(small, halved)
        small = halved
    # Bytes that were assumed, or told as a number, are assumed at the new sizes too.
    small, _ = with_bytes(small)
    if small.sizes == problem.sizes:
        return problem, [f"the simulated run may take {expected:.0f} s: no smaller sizes were found"]
    sizes = ", ".join(f"{name}={size}" for name, size in small.sizes.items())
    notes = [f"simulated at {sizes}: at full size it would take about {seconds * SLOWER:.0f} s"]
    if problem.work is not None and small.work is None:
        notes.append(
            "flops at these sizes are not known (flops=E over the sizes): values per flop are absent"
        )
    return small, notes


def _halved(problem: Problem) -> Problem | None:
    sizes = {name: size // 2 if size >= LEAST else size for name, size in problem.sizes.items()}
    return None if sizes == problem.sizes else problem.resized(sizes)


def _part(before: Problem, after: Problem) -> float:
    """What share of the work is left: by flops, else by bytes."""
    for name in ("flops", "bytes"):
        old, new = getattr(before, name), getattr(after, name)
        if old and new:
            return float(new / old)
    return array_bytes(after) / array_bytes(before)


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
        work = self.work
        return self.diagnosis.to_json() | {
            "kernel": self.problem.name,
            "entry": self.problem.entry,
            "candidate": self.candidate.digest,
            "flags": list(self.candidate.flags),
            "sizes": dict(self.problem.sizes),
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
    unknown = set(parts) - set(PARTS)
    if unknown:
        raise BadInput(f"part {min(unknown)}", where="kernel diagnosis", hint=", ".join(PARTS))
    problem, notes = with_bytes(problem)
    chosen = candidate or Candidate(problem.source, problem.flags)
    progress(_STAGE, 0, 4, waiting="compiling and reading the code")
    folder = bench.folder / "diagnose" / chosen.digest
    folder.mkdir(parents=True, exist_ok=True)
    name = f"{Path(problem.name).stem}{problem.suffix}"
    source = folder / name
    source.write_text(chosen.source)
    code = read_code(source, folder, problem.entry, chosen.flags)
    progress(_STAGE, 1, 4, waiting="checking and timing")
    evaluated = bench.evaluate(chosen) if seconds is None and "timing" in parts else None
    if evaluated is not None:
        seconds = evaluated.seconds
        if not evaluated.ok:
            notes.append(f"it does not stand ({evaluated.stage}): {evaluated.why}")
    if seconds is None:
        timed = Signals(absent={"timing": "not asked for" if evaluated is None else "it could not be timed"})
    else:
        timed = Signals({"timing": {m.SECONDS.name: seconds}}, {"timing": (f"{seconds:.4g} s a call",)})
    # What crashes or cheats is not run under a profiler, which has rights that the bench does not give.
    why = ""
    if evaluated is not None and not evaluated.ok and evaluated.stage != "check":
        why = f"it does not stand: {evaluated.why}"
    progress(_STAGE, 2, 4, waiting="simulating the caches")
    small = problem
    cache = Simulated(Signals(absent={"cachegrind": why or "not asked for"}))
    if not why and "cachegrind" in parts:
        small, said = simulated_problem(problem, seconds)
        cache = _simulated(small, chosen, bench, small is not problem, quick)
        notes += [*said, *cache.notes]
    progress(_STAGE, 3, 4, waiting="sampling")
    perf = Signals(absent={"perf": why or "not asked for"})
    if not why and "perf" in parts:
        # A kernel without a time may be a slow one: a second a call gives it the fewest calls.
        perf = _sampled(problem, chosen, bench, code, seconds or 1.0)
    signals = code.signals | timed | named(cache.signals, name) | perf
    progress(_STAGE, 4, 4)
    work = problem.work
    ceilings, told = ceilings_of(problem, calibration, (evaluated.calls if evaluated else None) or 1)
    notes += told
    if work is None:
        notes.append("flops are not declared (flops=E): values per flop, and the class by theory, are absent")
    smaller, counted, needed = small is not problem, small.work, array_bytes(small)
    found = diagnose_cpu(
        signals, work, ceilings, simulated=counted, smaller=smaller, inherent=code.inherent, needed=needed
    )
    if code.inherent:
        notes.append("each iteration waits for the last one even where sums may be reordered")
    possible = fitted(found.findings, shape_of(chosen.source, problem.entry, chosen.flags))
    findings = with_places(possible, code.built, name)
    return Diagnosed(
        problem=problem,
        candidate=chosen,
        diagnosis=replace(found, findings=findings),
        signals=signals | derived(signals, work, ceilings, counted, smaller=smaller, needed=needed),
        ceilings=ceilings,
        work=work,
        seconds=seconds,
        evaluated=evaluated,
        simulated=dict(small.sizes) if smaller else {},
        notes=tuple(notes),
        lines=source_lines(findings, chosen.source, name),
    )


def _simulated(problem: Problem, candidate: Candidate, bench: Bench, smaller: bool, quick: bool) -> Simulated:
    """One call under cachegrind, of a build for the processor that valgrind knows."""
    profiled = Candidate(candidate.source, for_profiling(candidate.flags))
    try:
        if smaller:
            with Bench(problem, bench.folder / "simulated", bench.seed) as small:
                driver = small.profiled(profiled)
        else:
            driver = bench.profiled(profiled)
        return simulate(driver, caches(processors=os.cpu_count() or 1), quick=quick)
    except (BadInput, CannotDo) as error:
        return Simulated(Signals(absent={"cachegrind": f"for valgrind's processor: {error.what}"}))


def _sampled(problem: Problem, candidate: Candidate, bench: Bench, code: Code, seconds: float) -> Signals:
    stack = bool((m.STACK_LOADS.of(code.signals) or 0) + (m.STACK_STORES.of(code.signals) or 0))
    try:
        driver, written = bench.profiled(candidate), array_bytes(problem, "out")
        return sampled(driver, calls_for(seconds), stack=stack, output_bytes=written)
    except (BadInput, CannotDo) as error:
        return Signals(absent={"perf": error.what})


def ceilings_of(problem: Problem, calibration: Calibration, calls: int) -> tuple[Ceilings, list[str]]:
    """The machine's ceilings for a problem's numbers, and for arrays of so many calls; what was chosen.

    Arrays that a core's own caches hold do not come from memory: their ceiling is the first cache's.
    """
    found = calibration.ceilings
    notes: list[str] = []
    peak = peak_of(problem, calibration)
    if peak != found.flops:
        found = replace(found, flops=peak)
        notes.append("the ceiling of arithmetic is that of double precision")
    size = layout_of(problem).touched * calls
    if size <= calibration.cache_bytes:
        found = replace(found, bandwidth=max(calibration.cached, calibration.bandwidth))
        notes.append(
            f"{size / 1024:.0f} KiB of arrays fit in a core's caches: theirs is the ceiling of bandwidth"
        )
    return found, notes
