"""Array and message types shared by every seam."""

from __future__ import annotations

from typing import Any, Literal, TypeAlias

import numpy as np
from numpy.typing import NDArray

IntArray: TypeAlias = NDArray[np.int32]
FloatArray: TypeAlias = NDArray[np.float32]
Json: TypeAlias = dict[str, Any]

#: An OpenAI-style chat message: ``{"role": ..., "content": ..., "tool_calls": ...}``.
Message: TypeAlias = dict[str, Any]

NodeKind: TypeAlias = Literal["task", "observation", "action", "rewrite", "verdict"]
Origin: TypeAlias = Literal["real", "replayed", "simulated"]
Finish: TypeAlias = Literal["stop", "length", "error"]
Coupling: TypeAlias = Literal["inverse", "gumbel"]


def token_array(tokens: Any) -> IntArray:
    """Token ids as a one-dimensional, read-only int32 array."""
    # A copy: to forbid writing to the caller's own array would change it for them.
    array = np.array(tokens, dtype=np.int32).reshape(-1)
    array.flags.writeable = False
    return array
