"""A machine's ceilings and noise, measured."""

from __future__ import annotations

import json
import shutil
import subprocess
import tempfile
from dataclasses import replace
from datetime import UTC, datetime
from importlib import resources
from pathlib import Path

from refork.errors import CannotDo
from refork.jsonl import write_whole
from refork.progress import Progress, silent
from refork_methods.kernel.bench.bench import LEAST, Bench
from refork_methods.kernel.bench.calibration import (
    Calibration,
    calibration_path,
    fingerprint,
    load_calibration,
    machine,
)
from refork_methods.kernel.cpu.cachegrind import machine_caches
from refork_methods.kernel.problem import Argument, Problem

#: Elements of each of the triad's three arrays: far beyond a core's own caches, and within its first one.
MANY, FEW = 4_000_000, 2048
REPEATS = 15
#: Sizes of the programs that are timed against themselves, and how often each is.
STREAMED, DENSE = 1_000_000, 128
ROUNDS = 4
_FLAGS = ("-O3", "-march=native")
_STREAM = """
void stream(int n, float *restrict a, const float *restrict b) {
    for (int i = 0; i < n; i++) a[i] = 0.5f * b[i] + a[i];
}
"""
_DENSE = """
void dense(int n, float *restrict c, const float *restrict a, const float *restrict b) {
    for (int i = 0; i < n; i++)
        for (int k = 0; k < n; k++)
            for (int j = 0; j < n; j++) c[i * n + j] += a[i * n + k] * b[k * n + j];
}
"""


def calibrate(*, force: bool = False, progress: Progress = silent) -> Calibration:
    """Measure this machine, and keep it; what is known of it already is read, unless ``force``.

    Ceilings are the best of repeated runs; noise is the widest ratio between two timings of one program, of
    one that streams and one that computes, as the bench times candidates.

    Source: arXiv 2606.26453 for the roofline; that ceilings are measured on the machine at hand is ours.

    Raises:
        CannotDo: no gcc, or this system cannot hold kernels back.
    """
    known = None if force else load_calibration()
    if known is not None:
        return known
    progress("ceilings", 0, 2)
    flops, flops64, ordinary, cached, streaming = ceilings()
    found = Calibration(
        fingerprint=fingerprint(), machine=machine(), flops=flops, flops64=flops64,
        bandwidth=max(ordinary, streaming), ordinary=ordinary, cached=cached,
        triad_bytes=12 * MANY, cache_bytes=core_cache(), noise=1.0,
        made=datetime.now(UTC).isoformat(timespec="seconds"),
    )  # fmt: skip
    progress("noise", 1, 2)
    found = replace(found, noise=noise(found))
    path = calibration_path()
    path.parent.mkdir(parents=True, exist_ok=True)
    write_whole(path, json.dumps(found.to_json(), indent=2) + "\n")
    return found


def ceilings() -> tuple[float, float, float, float, float]:
    """Flop per second of float and double, and bytes per second of three triads.

    They are in memory with ordinary stores, in the first cache, and in memory with stores past the caches.

    Raises:
        CannotDo: no gcc, or the program did not run.
    """
    compiler = shutil.which("gcc")
    if compiler is None:
        raise CannotDo("no gcc here", where="kernel calibrate", hint="install gcc")
    with tempfile.TemporaryDirectory(prefix="refork-ceilings-") as scratch:
        source, program = Path(scratch) / "ceilings.c", Path(scratch) / "ceilings"
        source.write_text(resources.files(__package__).joinpath("native", "ceilings.c").read_text())
        try:
            subprocess.run(
                [compiler, *_FLAGS, "-w", str(source), "-o", str(program)],
                check=True,
                capture_output=True,
                timeout=60,
            )
            said = subprocess.run(
                [str(program), str(REPEATS), str(MANY), str(FEW)],
                check=True, capture_output=True, text=True, timeout=120,
            ).stdout  # fmt: skip
        except (subprocess.SubprocessError, OSError) as error:
            raise CannotDo(f"the ceilings cannot be measured: {error}", where="kernel calibrate") from None
    rows = [[float(one) for one in line.split()] for line in said.splitlines()]
    # Each ceiling by itself: they need not have been reached in one and the same repeat.
    best = [max(column) for column in zip(*rows, strict=True)]
    return best[0], best[1], best[2], best[3], best[4]


def noise(known: Calibration) -> float:
    """The widest ratio between two timings of the same program, 1 or more."""
    widest = 1.0
    for problem in (_problem("stream", _STREAM, "n", STREAMED), _problem("dense", _DENSE, "n*n", DENSE)):
        with (
            tempfile.TemporaryDirectory(prefix="refork-noise-") as scratch,
            Bench(problem, Path(scratch), calibration=known) as bench,
        ):
            for one in bench.duel([bench.original] * ROUNDS, LEAST):
                if one.speedup is None:
                    raise CannotDo(f"the same program did not stand: {one.why}", where="kernel calibrate")
                widest = max(widest, one.speedup, 1 / one.speedup)
    return widest


def core_cache() -> int:
    """Bytes of the largest cache that one core has for itself (its second); 1 MiB where nobody tells."""
    known = machine_caches()
    return max((known[level].size for level in (1, 2) if level in known), default=1 << 20)


def _problem(name: str, source: str, length: str, n: int) -> Problem:
    arrays = [Argument(name=one, ctype="float", length=length, role="in") for one in ("a", "b", "c")]
    first = "a" if name == "stream" else "c"
    order = {"stream": ("a", "b"), "dense": ("c", "a", "b")}[name]
    by_name = {one.name: one for one in arrays}
    size = Argument(name="n", ctype="int", length=None, role="size")
    return Problem(
        name=name, entry=name, source=source, suffix=".c", sizes={"n": n}, rtol=1e-4, atol=1e-4,
        arguments=(size, *(replace(by_name[one], role="inout" if one == first else "in") for one in order)),
    )  # fmt: skip
