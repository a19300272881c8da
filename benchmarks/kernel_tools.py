"""The 15 CPU tools on real code: each on a kernel with its flaw planted, and on that kernel's mended twin.

Every kernel is compiled and measured here; no number is typed in. The pairs lie in parts/kernels/planted,
each with a line on what was planted. Then 20 loops that were classified by hand before any of them was run,
with the reasons, in parts/kernels/loops.toml: how often does the diagnosis give the same class?

--quick measures of each pair what its tool reads, with 64 of the 256 rows of a in the pair of the cache's
conflicts and an eighth of the numbers in that of the memory's roof; loops are timed on inputs that stay the
same. The long form measures all of every kernel as a user's diagnosis does, and lists what else tools say.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import tempfile
import time
import tomllib
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path

from refork_methods.kernel.bench import Bench, Calibration, Driver
from refork_methods.kernel.bench.calibrate import calibrate
from refork_methods.kernel.cpu import metrics as m
from refork_methods.kernel.cpu.perf import repeated
from refork_methods.kernel.diagnose import PARTS, Diagnosed, diagnose
from refork_methods.kernel.problem import Problem, read_problem

KERNELS = Path(__file__).parent / "parts" / "kernels"


@dataclass(frozen=True, slots=True)
class Pair:
    """A tool, its kernels' name, what it reads, their flags where they differ, sizes of the quick form."""

    tool: str
    name: str
    parts: tuple[str, ...] = ("code",)
    flags: Mapping[str, str] = field(default_factory=dict)
    quick: Mapping[str, int] = field(default_factory=dict)


#: In the order of the tools.
PAIRS = (
    Pair("CpuScalarFallback", "scalar"),
    Pair(
        "NarrowVector",
        "narrow",
        flags={"flaw": "-O3,-msse2", "fixed": "-O3,-march=native,-mprefer-vector-width=512"},
    ),
    Pair("StridedAccess", "strided", ("cachegrind",)),
    Pair("CapacityMiss", "capacity", ("cachegrind",)),
    Pair("ConflictMiss", "conflict", ("cachegrind",), quick={"rows": 64}),
    Pair("BandwidthRoof", "roof", ("timing", "cachegrind"), quick={"n": 1 << 19}),
    Pair("StoreTraffic", "store", ("cachegrind",)),
    Pair("LoadPressure", "load", ("cachegrind",)),
    Pair("CpuRegisterSpill", "spill"),
    Pair("DependencyChain", "chain"),
    Pair("PortPressure", "port"),
    Pair("BranchMiss", "branch", ("cachegrind",)),
    Pair("SlowOps", "slow"),
    Pair("CallOverhead", "call", ("timing", "perf")),
    Pair("PageTouch", "page", ("timing", "perf")),
)


def seconds_of(driver: Driver, least: float = 0.04, repeats: int = 2) -> float:
    """Seconds of one call on inputs that stay the same, by processor time: quick, and warm.

    For classes, not for claims: the kernel is trusted, and nothing is timed beside it.
    """

    def took(calls: int) -> float:
        nowhere = subprocess.DEVNULL
        process = subprocess.Popen(
            repeated(driver, calls).argv, stdin=nowhere, stdout=nowhere, stderr=nowhere
        )
        _, status, used = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
        if process.returncode:
            raise SystemExit(f"{driver.symbol} ended with {process.returncode}")
        return used.ru_utime + used.ru_stime

    # By the difference of two runs, so that what it takes to start and to draw inputs falls out.
    calls, few = 1, took(1)
    while (more := took(1 + calls) - few) < least and calls < 1 << 24:
        calls = max(2 * calls, min(64 * calls, int(1.5 * least * calls / max(more, 1e-6))))
    runs = [(took(1 + calls), took(1)) for _ in range(repeats)]
    return max(1e-9, (min(many for many, _ in runs) - min(one for _, one in runs)) / calls)


@dataclass(frozen=True, slots=True)
class Bencher:
    """Diagnoses kernels on this machine, as thoroughly as asked."""

    known: Calibration
    quick: bool

    def diagnosed(self, problem: Problem, parts: tuple[str, ...]) -> Diagnosed:
        """One kernel; in the quick form its seconds are those of calls on the same inputs."""
        with tempfile.TemporaryDirectory(prefix="refork-tools-") as folder, ExitStack() as stack:
            bench = Bench(problem, Path(folder), calibration=self.known)
            if parts != ("code",):
                stack.enter_context(bench)
            seconds = None
            if self.quick and "timing" in parts:
                seconds = seconds_of(bench.profiled(bench.original))
            return diagnose(
                problem, bench=bench, calibration=self.known, quick=self.quick, parts=parts, seconds=seconds
            )

    def pair(self, pair: Pair, kind: str) -> Diagnosed:
        """The flawed kernel or its twin."""
        path = KERNELS / "planted" / f"{pair.name}_{kind}.c"
        settings = {"flags": pair.flags[kind]} if pair.flags else {}
        sizes = dict(pair.quick) if self.quick else {}
        problem = read_problem(path, sizes=sizes, name=path.stem, **settings)
        return self.diagnosed(problem, pair.parts if self.quick else PARTS)

    def loop(self, told: Mapping[str, str]) -> Diagnosed:
        """One of the hand-classified loops."""
        ridge = str(round(self.known.ceilings.ridge))
        text = f"// refork: entry={told['name']} {told['head']}\n{told['code'].lstrip()}\n"
        with tempfile.TemporaryDirectory(prefix="refork-loop-") as folder:
            path = Path(folder) / f"{told['name']}.c"
            path.write_text(text.replace("RIDGE", ridge))
            return self.diagnosed(read_problem(path), ("timing",) if self.quick else ("timing", "cachegrind"))


def planted(bencher: Bencher, workers: int) -> dict[str, float]:
    """Every pair: does its tool fire on the flaw, and is it silent on the twin?"""
    # The memory's roof is measured while nothing else runs.
    alone = {
        one.name: [bencher.pair(one, kind) for kind in ("flaw", "fixed")]
        for one in PAIRS
        if one.name == "roof"
    }
    with ThreadPoolExecutor(workers) as pool:
        rest = [one for one in PAIRS if one.name not in alone]
        jobs = {
            one.name: [pool.submit(bencher.pair, one, kind) for kind in ("flaw", "fixed")] for one in rest
        }
        found = alone | {name: [job.result() for job in both] for name, both in jobs.items()}
    fired = false = 0
    print("tool               on the flaw   on the twin   the flaw's figures")
    for pair in PAIRS:
        flaw, twin = found[pair.name]
        hits = [one for one in flaw.diagnosis.findings if one.tool == pair.tool]
        alarm = any(one.tool == pair.tool for one in twin.diagnosis.findings)
        fired, false = fired + bool(hits), false + alarm
        figures = ", ".join(f"{name} {value:.3g}" for one in hits for name, value in one.metrics.items())
        said = "fires" if hits else "SILENT", "FIRES" if alarm else "silent"
        print(f"{pair.tool:18s} {said[0]:13s} {said[1]:13s} {figures}")
        if not hits:
            print(f"  {pair.tool} had nothing to read: {flaw.diagnosis.blind.get(pair.tool, 'it had')}")
        if not bencher.quick:
            print(f"  on the twin: {', '.join(one.tool for one in twin.diagnosis.findings) or 'nothing'}")
    ratio = conflict_ratio(found["conflict"][0])
    print(f"conflicts at N = 256: {ratio:.3g} times the misses of a cache without sets")
    return {"fired": fired, "false_alarms": false, "conflict_ratio": round(ratio, 2)}


def conflict_ratio(found: Diagnosed) -> float:
    """Misses of the cache as it is over those of one set; 0 where one was not measured."""
    known = m.together(found.signals, m.D1_READ_MISSES, m.D1_WRITE_MISSES, m.FULL_MISSES)
    return 0.0 if known is None else (known[0] + known[1]) / max(known[2], 1.0)


def classes(bencher: Bencher, workers: int) -> dict[str, float]:
    """The hand's classes against the diagnosis's."""
    loops = tomllib.loads((KERNELS / "loops.toml").read_text())["loop"]
    with ThreadPoolExecutor(workers) as pool:
        found = list(pool.map(bencher.loop, loops))
    agree = measured = 0
    print("\nloop        by hand   diagnosis  theory    measured  flop/byte  of flops  of bandwidth")
    for told, one in zip(loops, found, strict=True):
        known, work = one.diagnosis.classified, one.work
        agree += known.bound == told["class"]
        measured += known.measured == told["class"]
        shares = [m.FLOPS_SHARE.of(one.signals), m.BYTES_SHARE.of(one.signals)]
        print(
            f"{told['name']:11s} {told['class']:9s} {known.bound:10s} {known.theory or '-':9s} "
            f"{known.measured or '-':9s} {work.intensity if work else float('nan'):9.3g}  "
            + "  ".join("   -" if share is None else f"{share:8.1%}" for share in shares)
            + ("" if known.bound == told["class"] else "   DIFFERS")
        )
    print(f"agreement {agree} of {len(loops)}; of what was measured alone {measured}")
    return {"class_agree": agree, "class_measured": measured, "loops": len(loops)}


def main() -> None:
    """Measure, print the tables, and the figures as the last line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="ends within 50 s on 2 quiet cores")
    quick: bool = parser.parse_args().quick
    started = time.monotonic()
    known = calibrate()
    print(
        f"this machine, one core: {known.flops / 1e9:.0f} Gflop/s, {known.bandwidth / 1e9:.1f} GB/s, "
        f"ridge {known.ceilings.ridge:.3g} flop per byte, noise {known.noise:.3f}\n"
    )
    # Two at a time: what is counted does not depend on it, and classes are far apart.
    workers = 2 if quick else 1
    figures = planted(Bencher(known, quick), workers)
    print(f"{time.monotonic() - started:.0f} s so far", flush=True)
    figures |= classes(Bencher(known, quick), workers)
    used = os.times()
    busy = used.user + used.system + used.children_user + used.children_system
    print(f"{time.monotonic() - started:.0f} s, {busy:.0f} s of processors")
    print(json.dumps(figures))


if __name__ == "__main__":
    main()
