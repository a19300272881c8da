"""Times that no correct kernel can reach on this machine."""

from __future__ import annotations

from refork_methods.kernel.bench.calibration import Calibration
from refork_methods.kernel.bench.check import RejectedError
from refork_methods.kernel.bench.result import Evaluated
from refork_methods.kernel.problem import Problem

#: A stream of reads alone may run ahead of the triad. Of one with ordinary stores this is about twice, as
#: there four streams count as three.
READS = 1.5


def least_seconds(problem: Problem, calibration: Calibration, touched: int) -> float:
    """Seconds that one call takes at least: max(flops / peak, bytes / bandwidth); 0 where work is unknown.

    ``touched``: bytes of all arrays in a sample. Where they fit in the caches, theirs is the bandwidth.

    Source: arXiv 2606.26453 names the test; the choice of the ceilings is ours.
    """
    wide = any(one.ctype == "double" for one in problem.arguments) or problem.returns == "double"
    peak = calibration.flops64 if wide else calibration.flops
    cached = touched <= calibration.cache_bytes
    bandwidth = max(calibration.cached, calibration.bandwidth) if cached else READS * calibration.bandwidth
    return max((problem.flops or 0.0) / peak, (problem.bytes or 0.0) / bandwidth)


def below(problem: Problem, found: Evaluated, calibration: Calibration, touched: int) -> None:
    """Nothing where a time can be true.

    Raises:
        RejectedError: it is below the roof by more than the machine's noise.
    """
    least = least_seconds(problem, calibration, touched)
    if found.seconds is not None and found.seconds * calibration.noise < least:
        raise RejectedError(
            "cheat",
            f"{found.seconds:.3g} s is less than the {least:.3g} s that the declared work takes at this "
            "machine's ceilings: flops or bytes are declared too high, or the work was not done",
            cheat="too-fast",
            error=found.error,
        )
