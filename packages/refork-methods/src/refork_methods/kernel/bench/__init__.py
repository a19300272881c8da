"""Candidates of a kernel built, checked and timed, where none of them is trusted."""

from refork.discover.kernel.bench.bench import Bench
from refork.discover.kernel.bench.calibrate import calibrate
from refork.discover.kernel.bench.calibration import Calibration, load_calibration
from refork.discover.kernel.bench.result import Candidate, Driver, Evaluated, Limits

__all__ = [
    "Bench",
    "Calibration",
    "Candidate",
    "Driver",
    "Evaluated",
    "Limits",
    "calibrate",
    "load_calibration",
]
