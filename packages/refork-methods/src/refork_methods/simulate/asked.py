"""One question to a simulator, and its answer."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import final

from refork.policies.base import Cost
from refork.sampling.noise import NoiseKey
from refork.worlds.environment import Brief, Seen

#: Why there is no prediction where the model did answer.
NO_TAG = "no complete tag"


@final
@dataclass(frozen=True, slots=True)
class Asked:
    """One answer that is due: what came before, the action, and the address of the answer's noise."""

    brief: Brief
    seen: tuple[Seen, ...]
    action: str
    noise: NoiseKey
    instruction: str = ""


@final
@dataclass(frozen=True, slots=True)
class Prediction:
    """What the model says the environment answers; ``text`` None where it gave no valid answer.

    ``raw`` is all that it said at the last of its ``tries``, ``cost`` that of all of them. ``cut`` turns, the
    oldest, were left out of its context because they did not fit.
    """

    text: str | None
    raw: str
    cost: Cost = field(default_factory=Cost)
    error: str | None = None
    tries: int = 1
    cut: int = 0
