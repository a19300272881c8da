"""Hidden states of a draw: which are kept, and which are changed while tokens are drawn.

Layers are numbered as ``output_hidden_states`` numbers them: 0 is the embedding, ``l`` the residual stream
after ``l`` blocks, the last (also -1) what leaves the final norm. ``"raw"`` is the stream after the last
block, before that norm, which transformers does not show.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from refork.errors import BadInput
from refork.types import FloatArray, Json

if TYPE_CHECKING:
    from torch import Tensor

Layer = int | Literal["raw"]
Positions = Literal["all", "last"] | tuple[int, ...] | slice
Phase = Literal["prefill", "decode", "both"]


@dataclass(frozen=True, slots=True)
class Capture:
    """Which hidden states a draw brings back.

    ``fresh``: of every sampled token, of the first one only, or of none. ``prefix``: of the last token of the
    prompt, from which the first one is drawn, or of none.

    Raises:
        BadInput: no layer, or nothing to keep.
    """

    layers: tuple[Layer, ...]
    fresh: Literal["all", "first", "none"] = "all"
    prefix: Literal["last", "none"] = "none"

    def __post_init__(self) -> None:
        if not self.layers:
            raise BadInput("a capture needs a layer", hint="for example layers=(-1,), the last")
        if self.fresh not in ("all", "first", "none") or self.prefix not in ("last", "none"):
            raise BadInput(
                f"a capture of fresh={self.fresh!r}, prefix={self.prefix!r} is unknown",
                hint="fresh is 'all', 'first' or 'none'; prefix is 'last' or 'none'",
            )
        if self.fresh == "none" and self.prefix == "none":
            raise BadInput("this capture keeps nothing", hint="set fresh='all' or prefix='last'")


@dataclass(frozen=True, slots=True, eq=False)
class States:
    """Hidden states of a draw, float32: ``prefix`` [layers, 0 or 1, width], ``fresh`` [layers, m, width]."""

    prefix: FloatArray
    fresh: FloatArray


@dataclass(frozen=True, slots=True)
class Edit:
    """One change of the hidden states at one layer, made while the model runs.

    ``function`` maps states [rows, width] to as many of the same width, each row for itself: rows of other
    branches and padding stand beside, and what it gives for rows that are not chosen is dropped. ``name`` is
    recorded as what was done, so it must tell this edit from every other one (a digest of its numbers).
    ``positions`` are absolute places in the context, ``"last"`` the last token of the prompt. ``phase`` is
    ``prefill`` for tokens of the prompt (earlier turns too), ``decode`` for those drawn after it.

    Raises:
        BadInput: no name, negative or no positions, a last token of the prompt that is to be drawn.
    """

    layer: Layer
    function: Callable[[Tensor], Tensor]
    name: str
    positions: Positions = "all"
    phase: Phase = "both"

    def __post_init__(self) -> None:
        if not self.name:
            raise BadInput("an edit needs a name", hint="it is recorded with every token drawn under it")
        if self.phase not in ("prefill", "decode", "both"):
            raise BadInput(f"{self.phase!r} is not a phase", hint="phases: prefill, decode, both")
        if self.positions == "last" and self.phase == "decode":
            raise BadInput("the last token of the prompt is not drawn", hint="phase='prefill'")
        if isinstance(self.positions, str) and self.positions not in ("all", "last"):
            raise BadInput(f"{self.positions!r} names no positions", hint="'all', 'last', numbers or a slice")
        if isinstance(self.positions, tuple) and (not self.positions or min(self.positions) < 0):
            raise BadInput(f"positions {self.positions} must be 0 or more, and some", where=self.name)
        if isinstance(self.positions, slice):
            self._check_slice(self.positions)

    def _check_slice(self, part: slice) -> None:
        if (part.start or 0) < 0 or (part.stop is not None and part.stop < 0) or part.step not in (None, 1):
            raise BadInput(
                f"positions {part} must count from the beginning, by ones",
                where=self.name,
                hint="a context has no end while it is being drawn",
            )

    @property
    def by_request(self) -> bool:
        """Whether it depends on where a prompt ends, not only on the token's place."""
        return self.positions == "last" or self.phase != "both"

    def to_json(self) -> Json:
        """What is recorded of it."""
        where = self.positions
        if isinstance(where, tuple):
            return self._json(list(where))
        return self._json([where.start, where.stop] if isinstance(where, slice) else where)

    def _json(self, positions: str | list[int]) -> Json:
        return {"name": self.name, "layer": self.layer, "positions": positions, "phase": self.phase}


def layer_number(layer: Layer, blocks: int) -> int:
    """The place of a layer: 0 .. ``blocks``, and ``blocks + 1`` for ``"raw"``.

    Raises:
        BadInput: the model has no such layer.
    """
    if layer == "raw":
        return blocks + 1
    count = blocks + 1
    if not isinstance(layer, int) or not -count <= layer < count:
        raise BadInput(
            f"there is no layer {layer!r}", hint=f"layers are 0 to {blocks}, -1 the last, or 'raw'"
        )
    return layer % count


def layer_numbers(layers: Sequence[Layer], blocks: int) -> list[int]:
    """:func:`layer_number` of each."""
    return [layer_number(layer, blocks) for layer in layers]
