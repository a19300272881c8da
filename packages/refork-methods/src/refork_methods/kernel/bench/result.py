"""What is tried, and what came of it."""

from __future__ import annotations

import hashlib
import math
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Literal, TypeAlias, final

from refork.errors import BadInput
from refork.plain import from_json
from refork.types import Json

#: How often a program that is no faster may be ahead in so many turns (a sign test, one-sided).
CHANCE = 0.05
Stage: TypeAlias = Literal["untried", "build", "run", "check", "cheat", "done"]


def chance(ahead: int, turns: int) -> float:
    """How probable it is to be ahead in so many turns, or more, where both are equally fast."""
    ways = sum(math.comb(turns, k) for k in range(ahead, turns + 1))
    return ways / (1 << turns)


@final
@dataclass(frozen=True, slots=True)
class Candidate:
    """A version of a kernel: its source, and the compiler's flags."""

    source: str
    flags: tuple[str, ...]

    @property
    def digest(self) -> str:
        """16 hex digits of source and flags."""
        return hashlib.sha256("\0".join([self.source, *self.flags]).encode()).hexdigest()[:16]


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class Evaluated:
    """How a candidate did: whether it stands, else the stage that it failed at and why.

    ``error``: the worst relative error, |r - e| over |e| + (atol / rtol) rms(e), in all that was compared
    with the higher-precision reference; inf where a value is not finite. ``seconds`` and
    ``reference_seconds``: the least of interleaved samples, of one call, in time of the processor; of
    ``samples`` each is one of the candidate's. ``speedup``: the ratio of both minima; ``low`` to ``high`` its
    95 % bootstrap interval over the pairs of samples. ``noise``: the machine's widest ratio between two runs
    of the same program. ``cheat`` names the trick that a failure looks like. ``calls`` per sample, each on
    inputs of its own. None: not measured. ``ahead``: in how many of the samples' turns it was faster.
    ``warm`` with its interval: the speed-up of calls on arrays that are in the caches. ``sizes``: other ones
    that it was found right at. ``overlaps``: arrays on which it differs from the original where they overlap.
    """

    ok: bool
    stage: Stage
    why: str = ""
    error: float | None = None
    seconds: float | None = None
    reference_seconds: float | None = None
    speedup: float | None = None
    samples: tuple[float, ...] = ()
    low: float | None = None
    high: float | None = None
    noise: float | None = None
    cheat: str = ""
    calls: int | None = None
    ahead: int | None = None
    warm: float | None = None
    warm_low: float | None = None
    warm_high: float | None = None
    sizes: tuple[str, ...] = ()
    overlaps: tuple[str, ...] = ()

    @property
    def faster(self) -> bool:
        """Whether it stands, and is faster than the original by more than chance and the machine's noise.

        With cold caches; and with warm ones not slower, by chance's measure or by the noise's.
        """
        if not self.ok or self.speedup is None or self.low is None or self.slower_warm:
            return False
        # The interval of a minimum is too narrow where samples are few, so the gain must beat the noise as
        # well; and one lucky sample on a busy machine must not decide it.
        often = self.ahead is None or chance(self.ahead, len(self.samples)) <= CHANCE
        return self.low > 1 and self.speedup > (self.noise or 1.0) and often

    @property
    def slower_warm(self) -> bool:
        """Whether calls that find their arrays in the caches take longer than the original's."""
        if self.warm is None:
            return False
        return self.warm < 1 / (self.noise or 1.0) or (self.warm_high is not None and self.warm_high < 1)

    @property
    def least(self) -> float | None:
        """The lesser of the speed-ups with cold and with warm caches: what a search is after."""
        return self.speedup if self.speedup is None or self.warm is None else min(self.speedup, self.warm)

    def to_json(self) -> Json:
        """Plain JSON; an infinite error is the text ``inf``."""
        told = asdict(self) | {name: list(getattr(self, name)) for name in ("samples", "sizes", "overlaps")}
        return told | ({"error": "inf"} if self.error == math.inf else {})

    @classmethod
    def from_json(cls, data: Json, where: str = "kernel bench") -> Evaluated:
        """What :meth:`to_json` wrote.

        Raises:
            BadInput: other data, or a time or speed-up that is not above 0.
        """
        found = from_json(cls, data, where)
        for name in (
            "seconds",
            "reference_seconds",
            "speedup",
            "low",
            "high",
            "warm",
            "warm_low",
            "warm_high",
        ):
            value = getattr(found, name)
            if value is not None and not 0 < value < math.inf:
                raise BadInput(f"{name} is {value}", where=where, hint="above 0 and finite, or null")
        return found


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """What a candidate may use, and how long is measured.

    ``seconds``: of the processor, for one call. ``memory``: bytes beyond its arrays. ``build``: seconds of
    the compiler.
    ``sample``: least seconds of a timed sample, which takes several calls where one is shorter.
    ``longest``: about the most seconds of a sample of the original. ``arrays``: the most bytes of all
    calls' arrays in a sample.
    """

    seconds: float = 10.0
    memory: int = 1 << 30
    build: float = 60.0
    sample: float = 2e-3
    longest: float = 0.25
    arrays: int = 48 << 20

    def __post_init__(self) -> None:
        for name in self.__slots__:
            if not getattr(self, name) > 0:
                raise BadInput(f"limit {name} is {getattr(self, name)}", where="kernel bench", hint="above 0")


@final
@dataclass(frozen=True, slots=True)
class Driver:
    """A program that calls a kernel on drawn inputs: its path, the whole command, and the entry's symbol."""

    path: Path
    argv: tuple[str, ...]
    symbol: str
