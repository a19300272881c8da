"""Candidates of a kernel built, checked and timed, where none of them is trusted."""

from refork_methods.kernel.bench.bench import Bench
from refork_methods.kernel.bench.calibrate import calibrate
from refork_methods.kernel.bench.calibration import Calibration, load_calibration
from refork_methods.kernel.bench.result import Candidate, Driver, Evaluated, Limits

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
