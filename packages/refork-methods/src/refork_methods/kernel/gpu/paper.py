"""What the paper reports of its tools: how often each fired, and what followed.

Source: arXiv 2606.26453, its hit table: 42 tasks on an A100, a language model acting on the findings. These
are means over rounds in which a tool fired: they promise nothing for one kernel.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import final


@final
@dataclass(frozen=True, slots=True)
class Hit:
    """Rounds in which a tool fired, their share with more than 1.5 times the speed, and the mean gain."""

    fires: int
    share: float
    gain: float

    @property
    def expected(self) -> tuple[float, float]:
        """The mean gain, as both ends of a range."""
        return self.gain, self.gain

    @property
    def line(self) -> str:
        """Whose figure it is."""
        return (
            f"Mean gain {self.gain:.2f}x over {self.fires} rounds, {self.share:.1%} of them above 1.5x "
            "(arXiv 2606.26453, A100)."
        )


HITS: dict[str, Hit] = {
    "RegisterSpill": Hit(44, 0.182, 1.44),
    "OccupancyLimiter": Hit(241, 0.133, 1.48),
    "WarpStall": Hit(318, 0.110, 1.41),
    "SharedMemTiling": Hit(172, 0.093, 1.42),
    "LaunchOverhead": Hit(141, 0.085, 1.32),
    "TensorCore": Hit(835, 0.081, 1.31),
    "MemoryCoalescing": Hit(439, 0.059, 1.24),
    "Vectorization": Hit(595, 0.040, 1.16),
}
