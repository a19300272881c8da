"""What the rows of a decoding batch are drawn with, have said so far, and have shown of their inside."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, final

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from refork.decoding.states import Capture, States
from refork.sampling import distribution
from refork.sampling.noise import NoiseKey, uniforms
from refork.types import Finish, FloatArray, IntArray

Ints = NDArray[np.int64]

AHEAD = 64
"""Uniforms are made for this many token offsets at a time."""


@dataclass(frozen=True, slots=True)
class Sampled:
    """What the decoder says about one request: tokens [m] and their log-probs [m] in nats.

    ``error``: why it could say no more, where it failed and the others did not.
    """

    index: int
    tokens: IntArray
    finish: Finish
    logprobs: FloatArray
    logprobs_t1: FloatArray
    entropy: FloatArray | None
    ties: int
    states: States | None = None
    error: str | None = None


@final
class RowOutputs:
    """What the rows of a batch have said so far, row by row."""

    def __init__(self, rows: int, length: int, entropy: bool) -> None:
        self.tokens: IntArray = np.zeros((rows, length), dtype=np.int32)
        self.logprobs: FloatArray = np.zeros((rows, length), dtype=np.float32)
        self.logprobs_t1: FloatArray = np.zeros((rows, length), dtype=np.float32)
        self.entropy: FloatArray | None = np.zeros((rows, length), dtype=np.float32) if entropy else None
        self.ties = np.zeros(rows, dtype=np.int64)

    def keep(self, stay: Ints, arriving: Ints) -> None:
        """Move rows to the front, as the batch does, and clear the newcomers'."""
        count = len(stay)
        for array in (self.tokens, self.logprobs, self.logprobs_t1, self.entropy, self.ties):
            if array is not None:
                array[:count] = array[stay]
        # All else is written before it is read, token by token.
        self.ties[count : count + len(arriving)] = 0

    def newest(self, generated: Ints) -> IntArray:
        """The last token of every row."""
        return self.tokens[np.arange(len(generated)), generated - 1]

    def put(
        self, rows: slice, offset: Ints, alive: NDArray[np.bool_], tokens: Ints, drawn: distribution.Drawn
    ) -> None:
        """Write one token per living row."""
        place = np.flatnonzero(alive)
        row, column = place + rows.start, offset[place]
        self.tokens[row, column] = tokens[place]
        self.logprobs[row, column] = drawn.logprobs.cpu().numpy()[place]
        self.logprobs_t1[row, column] = drawn.logprobs_t1.cpu().numpy()[place]
        self.ties[row] += drawn.ties.cpu().numpy()[place]
        if self.entropy is not None and drawn.entropy is not None:
            self.entropy[row, column] = drawn.entropy.cpu().numpy()[place]

    def get(self, row: int, count: int, request: int, stop: bool, error: str | None = None) -> Sampled:
        """A copy of one row, which ended with its ``count``-th token, or before another one for an error."""
        finish: Finish = "error" if error is not None else "stop" if stop else "length"
        return Sampled(
            index=request,
            tokens=self.tokens[row, :count].copy(),
            finish=finish,
            logprobs=self.logprobs[row, :count].copy(),
            logprobs_t1=self.logprobs_t1[row, :count].copy(),
            entropy=None if self.entropy is None else self.entropy[row, :count].copy(),
            ties=int(self.ties[row]),
            error=error,
        )


@final
class Noises:
    """Uniforms of rows, made for some token offsets at a time; ``begin`` [n] is the first of each row's."""

    def __init__(self) -> None:
        self.values = np.zeros((0, AHEAD), dtype=np.float64)
        self.begin = np.zeros(0, dtype=np.int64)

    def move_rows(self, source: Ints) -> None:
        """Row i becomes what row ``source[i]`` was; -1: a newcomer."""
        stay = np.flatnonzero(source >= 0)
        if len(self.begin) == len(source) and (source[stay] == stay).all():
            self.begin[source < 0] = -1
            return
        values, begin = self.values, self.begin
        self.values = np.zeros((len(source), AHEAD), dtype=np.float64)
        self.begin = np.full(len(source), -1, dtype=np.int64)
        self.values[stay], self.begin[stay] = values[source[stay]], begin[source[stay]]

    def take(self, keys: Sequence[NoiseKey], rows: Ints, offset: Ints) -> NDArray[np.float64]:
        """The uniform of each of ``rows`` [k], whose noise is ``keys`` [k], at its token ``offset`` [k]."""
        lane = offset % AHEAD
        begin = offset - lane
        # One call makes AHEAD numbers of a row: a call for a single one takes about as long.
        need = np.flatnonzero(self.begin[rows] != begin)
        if len(need):
            mine = rows[need]
            self.values[mine] = uniforms([keys[int(i)] for i in need], AHEAD, begin[need])
            self.begin[mine] = begin[need]
        return self.values[rows, lane]


@final
class CapturedStates:
    """States by request; ``opening`` [prefixes, layers, width] are those of the prompts' last tokens.

    ``waiting`` holds branches that are finished but for the states of their last token.
    """

    def __init__(self, capture: Capture, layers: tuple[int, ...], opening: Tensor | None) -> None:
        self.fresh: Literal["all", "first", "none"] = capture.fresh
        self.layers = layers
        self.waiting: dict[int, Sampled] = {}
        self._opening = None if opening is None else opening.float().cpu().numpy()
        self._rows: dict[int, list[FloatArray]] = {}

    def due(self, generated: int) -> bool:
        """Whether the states of the newest of ``generated`` tokens are wanted."""
        return self.fresh == "all" or (self.fresh == "first" and generated == 1)

    def put(self, request: int, generated: int, states: FloatArray) -> None:
        """Keep the states [layers, width] of a branch's newest token, if they are wanted."""
        if self.due(generated):
            self._rows.setdefault(request, []).append(states)

    def take(self, request: int, opening: int) -> States:
        """All that was kept of a finished branch."""
        rows = self._rows.pop(request, [])
        layers = len(self.layers)
        fresh = np.stack(rows, axis=1) if rows else np.zeros((layers, 0, 0), dtype=np.float32)
        if self._opening is None:
            return States(np.zeros((layers, 0, fresh.shape[2]), dtype=np.float32), fresh)
        return States(self._opening[opening][:, None].copy(), fresh)
