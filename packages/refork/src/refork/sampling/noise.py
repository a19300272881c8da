"""Counter-based noise: every random number is a pure function of its address.

Draw ``i`` of a fork uses the same numbers in every arm, batch, process and order, because nothing
is ever "the next" number of a generator. The generator is Philox4x32-10.

Source: Salmon et al., Parallel random numbers: as easy as 1, 2, 3 (SC 2011).
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

UInt32 = NDArray[np.uint32]
Float64 = NDArray[np.float64]

_M0, _M1 = np.uint64(0xD2511F53), np.uint64(0xCD9E8D57)
_W0, _W1 = 0x9E3779B9, 0xBB67AE85
_LOW = np.uint64(0xFFFFFFFF)
_SHIFT = np.uint64(32)


def stream_of(*parts: object) -> int:
    """A 64-bit stream number for whatever the parts name (a point, a task): stable across runs."""
    # The unit separator: ("a", "bc") and ("ab", "c") must not name one stream.
    text = "\x1f".join(str(part) for part in parts)
    return int.from_bytes(hashlib.blake2b(text.encode(), digest_size=8).digest(), "little")


@dataclass(frozen=True, slots=True)
class NoiseKey:
    """Address of one draw's noise; a token adds its offset within the turn.

    Two arms that share ``seed``, ``stream`` and ``draw`` are paired (common random numbers).
    ``stream`` separates points and tasks, so that their draws are independent. ``turn`` counts the
    policy's turns after the fork, so arms stay aligned when one of them says more in a turn.
    """

    seed: int
    stream: int
    draw: int
    turn: int = 0

    def at_turn(self, turn: int) -> NoiseKey:
        """The same draw at another turn."""
        return NoiseKey(self.seed, self.stream, self.draw, turn)

    def to_json(self) -> dict[str, int]:
        """Plain fields, for storage."""
        return {"seed": self.seed, "stream": self.stream, "draw": self.draw, "turn": self.turn}

    @classmethod
    def from_json(cls, data: dict[str, Any]) -> NoiseKey:
        """Inverse of :meth:`to_json`."""
        return cls(int(data["seed"]), int(data["stream"]), int(data["draw"]), int(data["turn"]))

    def call_seed(self, offset: int, again: int = 0, *, bits: int = 48) -> int:
        """The seed of one call to a server: an address of its own for every call that a draw takes.

        ``offset`` is that of the first token that the call draws, counted as everywhere from the first token
        of this draw's turn; ``again`` counts earlier tries at it. A server with a generator for each request
        begins that generator anew at every call, so two calls with one seed would give one token's noise to
        another. 48 bits are what our own server takes, and JSON's numbers hold them exactly everywhere.
        """
        name = f"{self.seed}/{self.stream}/{self.draw}/{self.turn}/{offset}/{again}"
        return stream_of("call", name) >> (64 - bits)

    def integer(self, bits: int = 63) -> int:
        """A number derived from this key, to seed something that is not a policy (a world)."""
        name = f"{self.seed}/{self.stream}/{self.draw}/{self.turn}"
        return stream_of("integer", name) >> (64 - bits)


def philox(counter: UInt32, key: UInt32) -> UInt32:
    """Philox4x32-10 of ``counter`` [..., 4] under ``key`` [..., 2]; returns uint32 [..., 4]."""
    c0, c1, c2, c3 = (counter[..., i].astype(np.uint64) for i in range(4))
    k0, k1 = (key[..., i].astype(np.uint64) for i in range(2))
    for round_ in range(10):
        if round_:
            k0 = (k0 + np.uint64(_W0)) & _LOW
            k1 = (k1 + np.uint64(_W1)) & _LOW
        p0, p1 = _M0 * c0, _M1 * c2
        c0, c1, c2, c3 = (p1 >> _SHIFT) ^ c1 ^ k0, p1 & _LOW, (p0 >> _SHIFT) ^ c3 ^ k1, p0 & _LOW
    return np.stack(np.broadcast_arrays(c0, c1, c2, c3), axis=-1).astype(np.uint32)


def _keys(noise: list[NoiseKey]) -> tuple[UInt32, UInt32, UInt32]:
    """Philox keys [n, 2], draws [n] and turns [n] of many noise keys."""
    packed: dict[tuple[int, int], tuple[int, int]] = {}
    key = np.empty((len(noise), 2), dtype=np.uint32)
    for row, item in enumerate(noise):
        name = (item.seed, item.stream)
        # Draws of a fork share seed and stream: one hash for all of them.
        if name not in packed:
            mixed = stream_of("philox", *name)
            packed[name] = (mixed & 0xFFFFFFFF, mixed >> 32)
        key[row] = packed[name]
    draws = np.array([item.draw for item in noise], dtype=np.uint32)
    turns = np.array([item.turn for item in noise], dtype=np.uint32)
    return key, draws, turns


def _open_interval(high: UInt32, low: UInt32) -> Float64:
    """53-bit doubles strictly between 0 and 1 from two words."""
    mantissa = (high >> np.uint32(5)).astype(np.float64) * 67108864.0 + (low >> np.uint32(6))
    # Half a step above the grid, so that 0, whose Gumbel is minus infinity, never comes.
    # The topmost half step rounds to 1, whose Gumbel is infinite.
    return np.minimum((mantissa + 0.5) / 9007199254740992.0, 1 - 2.0**-53)


def uniforms(noise: list[NoiseKey], count: int, start: int | NDArray[np.int64] = 0) -> Float64:
    """Uniforms in (0, 1), [len(noise), count]: one per token offset ``start .. start+count-1``.

    ``start`` is one for all keys, or one per key [len(noise)].
    """
    key, draws, turns = _keys(noise)
    counter = np.empty((len(noise), count, 4), dtype=np.uint32)
    begin = np.broadcast_to(np.asarray(start, dtype=np.int64), (len(noise),))[:, None]
    # One word for each coordinate, so no two addresses can meet; seed and stream are the key.
    counter[..., 0] = (begin + np.arange(count)).astype(np.uint32)
    counter[..., 1] = turns[:, None]
    counter[..., 2] = draws[:, None]
    counter[..., 3] = 0
    words = philox(counter, key[:, None, :])
    return _open_interval(words[..., 0], words[..., 1])


def gumbels(noise: list[NoiseKey], offset: int | NDArray[np.int64], size: int) -> Float64:
    """Standard Gumbel noise [len(noise), size] for one token offset (one, or one per key).

    Lane 0 belongs to :func:`uniforms`, so the two couplings never share a number.
    """
    key, draws, turns = _keys(noise)
    lanes = (size + 1) // 2
    counter = np.empty((len(noise), lanes, 4), dtype=np.uint32)
    counter[..., 0] = np.broadcast_to(np.asarray(offset, dtype=np.uint32), (len(noise),))[:, None]
    counter[..., 1] = turns[:, None]
    counter[..., 2] = draws[:, None]
    # From 1: the fourth word 0 is the uniforms' own.
    counter[..., 3] = np.arange(1, lanes + 1, dtype=np.uint32)
    words = philox(counter, key[:, None, :])
    pairs = np.stack(
        [_open_interval(words[..., 0], words[..., 1]), _open_interval(words[..., 2], words[..., 3])],
        axis=-1,
    )
    # A word pair makes one double, so one block of four words serves two tokens of the vocabulary.
    flat = pairs.reshape(len(noise), lanes * 2)[:, :size]
    return np.asarray(-np.log(-np.log(flat)), dtype=np.float64)
