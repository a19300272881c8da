"""Which ceiling a kernel is under: by its work in theory, by what was measured, and which of the two counts.

Source: arXiv 2606.26453 for the two ways and their arbitration (theory wins: it describes the ceiling, not
the present code). Ceilings measured on the machine at hand, and margins that are ratios, are our choice.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, TypeAlias, final

from refork.errors import BadInput

Bound: TypeAlias = Literal["compute", "memory", "latency", "mixed"]

#: Within this factor of the ridge (theory), or of each other's share (measured), neither ceiling decides.
MARGIN = 1.5
#: Below this share of both ceilings neither is what holds the kernel back: it waits.
IDLE = 0.25


@final
@dataclass(frozen=True, slots=True)
class Ceilings:
    """What a machine can do at most: ``flops`` per second, ``bandwidth`` in bytes per second.

    ``noise`` is the widest ratio of times in repeated runs of the same program: gains within it are none.
    """

    flops: float
    bandwidth: float
    noise: float = 1.0

    def __post_init__(self) -> None:
        if not (self.flops > 0 and self.bandwidth > 0 and self.noise >= 1):
            raise BadInput(f"{self}", where="ceilings", hint="flops and bandwidth above 0, noise 1 or more")

    @property
    def ridge(self) -> float:
        """The intensity in flop per byte at which both ceilings meet."""
        return self.flops / self.bandwidth


@final
@dataclass(frozen=True, slots=True)
class Work:
    """What a kernel has to do: floating-point operations, and bytes that must be moved at least once."""

    flops: float
    bytes: float

    def __post_init__(self) -> None:
        if not (self.flops >= 0 and self.bytes > 0):
            raise BadInput(f"{self}", where="work", hint="flops 0 or more, bytes above 0")

    @property
    def intensity(self) -> float:
        """Flop per byte."""
        return self.flops / self.bytes


@final
@dataclass(frozen=True, slots=True)
class Classified:
    """The class that counts, what each way says (None: it could not tell), and whether they agree."""

    bound: Bound
    theory: Bound | None
    measured: Bound | None

    @property
    def confidence(self) -> Literal["high", "low"]:
        """High where both ways say the same."""
        return "high" if self.theory is not None and self.theory == self.measured else "low"


def by_theory(work: Work, ceilings: Ceilings) -> Bound:
    """Compute, memory, or mixed near the ridge."""
    ratio = work.intensity / ceilings.ridge
    return "compute" if ratio > MARGIN else "memory" if ratio < 1 / MARGIN else "mixed"


def by_measurement(flops_share: float, bytes_share: float) -> Bound:
    """From the shares of both ceilings that were reached, 0 to 1 (a little more is noise)."""
    if flops_share < 0 or bytes_share < 0:
        raise BadInput(f"shares of {flops_share} and {bytes_share}", where="roofline")
    if max(flops_share, bytes_share) < IDLE:
        return "latency"
    if flops_share > MARGIN * bytes_share:
        return "compute"
    return "memory" if bytes_share > MARGIN * flops_share else "mixed"


def classify(theory: Bound | None, measured: Bound | None) -> Classified:
    """Theory where it is known, else measurement.

    Raises:
        BadInput: neither is known.
    """
    bound = theory or measured
    if bound is None:
        raise BadInput(
            "neither work nor counters are known", where="roofline", hint="declare flops and bytes"
        )
    return Classified(bound, theory, measured)


def roof(work: Work, ceilings: Ceilings) -> float:
    """The least seconds that the work can take under both ceilings; what claims less has not done it."""
    return max(work.flops / ceilings.flops, work.bytes / ceilings.bandwidth)
