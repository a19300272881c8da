"""What the rows of a decoding batch have said so far."""

from __future__ import annotations

from dataclasses import dataclass
from typing import final

import numpy as np
from numpy.typing import NDArray

from refork.decoding.states import States
from refork.sampling import distribution
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
        self.uniforms = np.zeros((rows, AHEAD), dtype=np.float64)

    def keep(self, stay: Ints, arriving: Ints) -> None:
        """Move rows to the front, as the batch does, and clear the newcomers'."""
        count = len(stay)
        for array in (self.tokens, self.logprobs, self.logprobs_t1, self.entropy, self.ties, self.uniforms):
            if array is not None:
                array[:count] = array[stay]
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
