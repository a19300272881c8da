"""Hidden states of the branches of one session, kept as their tokens are fed."""

from __future__ import annotations

from typing import Literal, final

import numpy as np
from torch import Tensor

from refork.decoding.record import Sampled
from refork.decoding.states import Capture, States
from refork.types import FloatArray


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
