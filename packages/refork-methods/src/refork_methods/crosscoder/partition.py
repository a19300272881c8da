"""Which features belong to which model: a block only A may use, a block only B may use, the rest shared."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from refork.errors import BadInput

Side = Literal["A", "B"]
Block = Literal["A", "B", "shared"]
BLOCKS: tuple[Block, ...] = ("A", "B", "shared")


@dataclass(frozen=True, slots=True)
class Partition:
    """Shares of the dictionary that are exclusive to A and to B; 0 and 0 is the plain crosscoder.

    Features lie in the order A-exclusive, B-exclusive, shared; a block holds ``floor(share * dict_size)``.

    Raises: BadInput for a share outside [0, 1] or shares that sum above 1.
    Source: arXiv:2606.26474 (layout); dedicated features: arXiv:2602.11729.
    """

    a: float = 0.0
    b: float = 0.0

    def __post_init__(self) -> None:
        for name, share in (("a", self.a), ("b", self.b)):
            if not (math.isfinite(share) and 0 <= share <= 1):
                raise BadInput(f"the share {name} is {share!r}; it must lie in [0, 1]", where="partition")
        if self.a + self.b > 1 + 1e-12:
            raise BadInput(
                f"the exclusive shares {self.a:g} and {self.b:g} sum above the whole dictionary",
                where="partition",
                hint="a + b may be 1 at most",
            )

    def counts(self, dict_size: int) -> tuple[int, int]:
        """Features exclusive to A and to B."""
        # 0.29 * 100 is 28.999...: what is a whole number on paper must stay one.
        n_a = math.floor(self.a * dict_size + 1e-9)
        return n_a, min(math.floor(self.b * dict_size + 1e-9), dict_size - n_a)

    def blocks(self, dict_size: int) -> Mapping[Block, slice]:
        """Where each block lies among the features."""
        n_a, n_b = self.counts(dict_size)
        return {"A": slice(0, n_a), "B": slice(n_a, n_a + n_b), "shared": slice(n_a + n_b, dict_size)}
