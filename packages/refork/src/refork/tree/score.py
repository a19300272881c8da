"""Scores, who gave them, and the records of forks and draws."""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from refork.types import Json


@dataclass(frozen=True, slots=True)
class Producer:
    """A judge, verifier, estimator or model in one exact version.

    ``reads`` are the ids of the producers whose scores it read: retiring one of those retires this.
    """

    name: str
    version: str = "1"
    config: Json = field(default_factory=dict)
    reads: tuple[str, ...] = ()

    @property
    def id(self) -> str:
        """Digest of everything that could change what it says."""
        # As it is read again: keys that are numbers are texts then, and are sorted as texts.
        config = json.loads(json.dumps(self.config))
        # The order in which sources are named changes nothing of what is said.
        body = json.dumps([self.name, self.version, config, sorted(self.reads)], sort_keys=True)
        return hashlib.blake2b(body.encode(), digest_size=16).hexdigest()


@dataclass(frozen=True, slots=True)
class Score:
    """What a producer gave a node under a name: one value, or one per token of the node."""

    node: str
    name: str
    value: float | NDArray[np.float64]
    producer: str
    reason: str | None = None


@dataclass(frozen=True, slots=True)
class Retirement:
    """What a retirement took out of sight: producers (the named one first) and scores per name."""

    producers: tuple[str, ...]
    scores: dict[str, int]
    reason: str


@dataclass(frozen=True, slots=True)
class ForkRecord:
    """One arm: where it starts, what was changed, who samples, with what noise.

    ``change`` is the serialised change, None for the control. ``seed`` and ``stream`` address the
    noise; a draw's number completes the address.
    """

    id: str
    node: str
    token: int | None
    change: Json | None
    policy: Json
    settings: Json
    world: str | None
    seed: int
    stream: int
    extra: Json = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class DrawRecord:
    """One finished draw of an arm; ``leaf`` is its last node. ``error`` draws are data, not failures.

    ``end``: ``done`` (the world ended it, or the continuation stopped), ``limit`` (out of turns or
    tokens), ``error``.
    """

    fork: str
    draw: int
    leaf: str
    end: str
    error: str | None = None
