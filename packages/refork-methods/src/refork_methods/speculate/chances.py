"""The random numbers of a round: those of plain decoding for the coupled rule, else streams of their own.

Numbers of the rejection rule are addressed by where the round begins and the place in it, never by a token's
place alone: what a discarded draft was drawn with is not used again, so no earlier confidence can know of it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import final

import numpy as np
from jaxtyping import Float64, Int
from numpy.typing import NDArray

from refork.sampling.noise import NoiseKey, gumbels, stream_of, uniforms

Ints = NDArray[np.int64]

_AHEAD = 64
"""Uniforms of plain decoding are made for this many tokens at a time."""


@final
@dataclass(frozen=True, slots=True, eq=False)
class RoundChances:
    """Uniforms of a rejection round: ``draft`` and ``accept`` [rows, g], ``residual`` [rows]."""

    draft: Float64[np.ndarray, "rows g"]
    accept: Float64[np.ndarray, "rows g"]
    residual: Float64[np.ndarray, "rows"]

    def some(self, part: Ints) -> RoundChances:
        """Those of some rows."""
        return RoundChances(self.draft[part], self.accept[part], self.residual[part])


def round_chances(noise: Sequence[NoiseKey], said: Int[np.ndarray, "rows"], g: int) -> RoundChances:
    """The numbers of the rounds that begin after ``said`` tokens; a pure function of the address."""
    own = [replace(key, stream=_stream(key.stream)) for key in noise]
    lanes = 2 * g + 1
    found = uniforms(own, lanes, np.asarray(said, dtype=np.int64) * lanes)
    return RoundChances(found[:, :g], found[:, g : 2 * g], found[:, 2 * g])


_streams: dict[int, int] = {}


def _stream(stream: int) -> int:
    """The stream of drafts, acceptances and residuals that belongs to a stream of plain decoding."""
    found = _streams.get(stream)
    if found is None:
        if len(_streams) > 1 << 16:
            _streams.clear()
        found = _streams[stream] = stream_of("speculate", stream)
    return found


@final
class PlainChances:
    """What plain decoding draws the next tokens with, held ahead by request id."""

    def __init__(self) -> None:
        self._held: dict[int, tuple[int, Float64[np.ndarray, "n"]]] = {}

    def forget(self, request_ids: Ints) -> None:
        """Drop what was made for branches that ended."""
        for request_id in request_ids:
            self._held.pop(int(request_id), None)

    def uniforms(
        self, request_ids: Ints, noise: Sequence[NoiseKey], said: Ints, count: int
    ) -> Float64[np.ndarray, "rows count"]:
        """Uniforms of the tokens at offsets ``said .. said + count - 1`` of each branch."""
        out = np.empty((len(request_ids), count), dtype=np.float64)
        missing = []
        for row, (request_id, begin) in enumerate(zip(request_ids.tolist(), said.tolist(), strict=True)):
            held = self._held.get(request_id)
            at = -1 if held is None else begin - held[0]
            if held is None or at < 0 or at + count > len(held[1]):
                missing.append(row)
            else:
                out[row] = held[1][at : at + count]
        if missing:
            length = max(_AHEAD, 2 * count)
            made = uniforms([noise[row] for row in missing], length, said[missing])
            for row, values in zip(missing, made, strict=True):
                self._held[int(request_ids[row])] = (int(said[row]), values)
                out[row] = values[:count]
        return out


def plain_gumbels(noise: Sequence[NoiseKey], said: Ints, count: int, size: int) -> NDArray[np.float64]:
    """Gumbel noise [rows, count, size] of the tokens at offsets ``said .. said + count - 1``."""
    keys = [key for key in noise for _ in range(count)]
    offsets = (said[:, None] + np.arange(count)).reshape(-1)
    return gumbels(keys, offsets, size).reshape(len(noise), count, size)
