"""What a machine was measured to do, kept under Refork's home by what the machine is."""

from __future__ import annotations

import hashlib
import json
import os
import platform
import re
import subprocess
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import final

from refork.errors import BadInput
from refork.plain import from_json, to_json
from refork.settings import home
from refork.types import Json
from refork_methods.kernel.bench.check import RejectedError
from refork_methods.kernel.bench.result import Evaluated
from refork_methods.kernel.problem import Problem
from refork_methods.kernel.roofline import Ceilings

#: Changes with what is measured: other versions' files are not read.
VERSION = 2


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class Calibration:
    """What this machine was measured to do on one core.

    ``flops``: per second, of single-precision fused multiply-adds at the widest vectors; ``flops64`` of
    double precision. ``ordinary``: bytes per second of a triad on arrays of ``triad_bytes`` in all, each
    array's bytes counted once, though its stores fetch their lines before; ``bandwidth``: the same, or that
    of a triad whose stores pass by the caches, whichever is more; ``cached`` of an ordinary one on arrays
    within the first cache. ``cache_bytes``: the last cache of one core. ``noise``: the widest
    ratio of minima between two runs of the same program, timed as candidates are. ``machine``: what the
    fingerprint is made of. ``made``: when, ISO 8601, UTC.
    """

    fingerprint: str
    machine: dict[str, str]
    flops: float
    flops64: float
    bandwidth: float
    ordinary: float
    cached: float
    triad_bytes: int
    cache_bytes: int
    noise: float
    made: str

    @property
    def ceilings(self) -> Ceilings:
        """For the roofline."""
        return Ceilings(self.flops, self.bandwidth, self.noise)

    def to_json(self) -> Json:
        """Plain JSON."""
        data: Json = to_json(self)
        return data


@lru_cache(maxsize=1)
def machine() -> dict[str, str]:
    """What a time depends on: processor, its instruction sets, cores, compiler."""
    told = Path("/proc/cpuinfo").read_text() if Path("/proc/cpuinfo").exists() else ""
    fields = dict(re.findall(r"^([^\t:\n]+?)\s*: (.*)$", told.partition("\n\n")[0], re.MULTILINE))
    # x86 lists them as flags, Arm as Features.
    sets = fields.get("flags") or fields.get("Features") or ""
    try:
        said = subprocess.run(
            ["gcc", "--version"], capture_output=True, text=True, check=False, timeout=20
        ).stdout
    except OSError:
        said = ""
    return {
        "processor": fields.get("model name") or platform.processor() or platform.machine(),
        "model": " ".join(fields.get(name, "") for name in ("cpu family", "model", "stepping")).strip(),
        "sets": hashlib.sha256(" ".join(sorted(sets.split())).encode()).hexdigest()[:16],
        "cores": str(os.cpu_count()),
        "gcc": said.partition("\n")[0],
    }


def fingerprint() -> str:
    """16 hex digits of :func:`machine`."""
    told = "\0".join(f"{name}={value}" for name, value in sorted(machine().items()))
    return hashlib.sha256(f"{VERSION}\0{told}".encode()).hexdigest()[:16]


def calibration_path() -> Path:
    """The file of this machine's calibration."""
    return home() / "kernel" / f"calibration-{fingerprint()}.json"


def load_calibration() -> Calibration | None:
    """The calibration of this machine; None where there is none, or none of this version.

    Raises: BadInput for a file that cannot be read.
    """
    path = calibration_path()
    try:
        return from_json(Calibration, json.loads(path.read_text()), str(path))
    except FileNotFoundError:
        return None
    except OSError as error:
        raise BadInput(f"the calibration cannot be read: {error.strerror}", where=str(path)) from error
    except (ValueError, BadInput):  # another version wrote it, or a crash cut it: it is measured again
        return None


def peak_of(problem: Problem, calibration: Calibration) -> float:
    """Flops per second at most: those of doubles where the arrays and the result know no shorter floats.

    The type of a number beside the arrays decides nothing; where both kinds are there the higher peak counts.
    """
    kinds = {one.ctype for one in problem.arguments if one.array} | {problem.returns}
    return calibration.flops64 if "double" in kinds and "float" not in kinds else calibration.flops


#: A stream of reads alone may run ahead of the triad. Of one with ordinary stores this is about twice, as
#: there four streams count as three.
READS = 1.5


def least_seconds(problem: Problem, calibration: Calibration, touched: int) -> float:
    """Seconds that one call takes at least: max(flops / peak, bytes / bandwidth); 0 where work is unknown.

    ``touched``: bytes of all arrays in a sample. Where they fit in the caches, theirs is the bandwidth.

    Source: arXiv 2606.26453 names the test; the choice of the ceilings is ours.
    """
    cached = touched <= calibration.cache_bytes
    bandwidth = max(calibration.cached, calibration.bandwidth) if cached else READS * calibration.bandwidth
    return max((problem.flops or 0.0) / peak_of(problem, calibration), (problem.bytes or 0.0) / bandwidth)


def below(problem: Problem, measured: Evaluated, calibration: Calibration, touched: int) -> None:
    """Nothing where a time can be true.

    Raises:
        RejectedError: it is below the roof by more than the machine's noise.
    """
    least = least_seconds(problem, calibration, touched)
    if measured.seconds is not None and measured.seconds * calibration.noise < least:
        raise RejectedError(
            "cheat",
            f"{measured.seconds:.3g} s is less than the {least:.3g} s that the declared work takes at this "
            "machine's ceilings: flops or bytes are declared too high, or the work was not done",
            cheat="too-fast",
            error=measured.error,
        )
