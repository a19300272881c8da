"""What a step costs: seconds over the tokens of the target's pass, and of drafting over the requests."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, final

import numpy as np
from jaxtyping import Float, Shaped

from refork.errors import BadInput
from refork.settings import present_mark
from refork.stats.results import Array
from refork.types import Json
from refork_methods.speculate.files import read_json, write_json

_FORMAT = "refork step cost 2"
_FORMATS = ("refork step cost 1", _FORMAT)
MAX_RATIO = 2.0
"""Neighbouring shapes further apart than this factor leave a gap (ours)."""


@final
@dataclass(frozen=True, slots=True, eq=False)
class StepCost:
    """Seconds of a pass over B tokens, and of drafting for R requests; linear between profiled shapes.

    ``tokens`` [n] rise and ``seconds`` [n] never fall; so with ``requests`` [m] and ``draft_seconds`` [m],
    which are empty where the draft's cost is not known (it then counts as nothing). ``shares`` [m] in [0, 1]
    say what a draft's token costs as a share of what one more request's costs, which has a context of its
    own; 1 where that is not known. ``about`` says where the table is from.

    Raises:
        BadInput: nothing profiled, times that are not positive or fall, a gap between shapes, shares outside
            [0, 1].
    Source: arXiv 2607.05147 (steps per second over batch tokens); the draft's cost is added as
        in vLLM's adaptive verification. The shares are ours.
    """

    tokens: Shaped[Array, "n"]
    seconds: Float[Array, "n"]
    requests: Shaped[Array, "m"] = field(default_factory=lambda: np.zeros(0, dtype=np.int64))
    draft_seconds: Float[Array, "m"] = field(default_factory=lambda: np.zeros(0))
    about: Json = field(default_factory=dict)
    max_ratio: float = MAX_RATIO
    shares: Float[Array, "m"] | None = None

    def __post_init__(self) -> None:
        if not len(self.tokens):
            raise BadInput("a step-cost table needs at least one shape", where="verify")
        _check(self.tokens, self.seconds, self.max_ratio, "verify", "tokens")
        if len(self.requests):
            _check(self.requests, self.draft_seconds, self.max_ratio, "draft", "requests")
        if self.shares is not None:
            inside = (self.shares >= 0) & (self.shares <= 1)
            if len(self.shares) != len(self.requests) or not inside.all():
                raise BadInput("every profiled number of requests needs a share in [0, 1]", where="shares")

    @classmethod
    def of(
        cls,
        verify: Mapping[int, float],
        draft: Mapping[int, float] | None = None,
        *,
        shares: Mapping[int, float] | None = None,
        about: Json | None = None,
        max_ratio: float = MAX_RATIO,
    ) -> StepCost:
        """A table of measured seconds, sorted and forced monotone (each at least what smaller shapes took).

        ``shares`` are those of numbers of requests in ``draft``; of others 1.

        Raises:
            BadInput: as the class, and for missing (None, NaN) or non-positive seconds.
        """
        tokens, seconds = _sorted(verify, "verify")
        requests, drafting = _sorted(draft or {}, "draft")
        alien = set(shares or {}) - set(requests.tolist())
        if alien:
            raise BadInput(f"there is a share of {min(alien)} requests and no draft of them", where="shares")
        known = np.array([shares.get(int(r), 1.0) for r in requests]) if shares else None
        return cls(tokens, seconds, requests, drafting, about or {}, max_ratio, known)

    @property
    def range(self) -> tuple[int, int]:
        """The fewest and the most tokens of a pass it knows."""
        return int(self.tokens[0]), int(self.tokens[-1])

    def verify(self, tokens: Shaped[Array, "k"]) -> Float[np.ndarray, "k"]:
        """Seconds of passes over so many tokens.

        Raises:
            BadInput: tokens outside the profiled range.
        """
        return _read(np.asarray(tokens), self.tokens, self.seconds, "tokens in a pass")

    def draft(self, requests: int) -> float:
        """Seconds of drafting one block for so many requests; 0 where no draft was profiled.

        Raises:
            BadInput: requests outside the profiled range.
        """
        if not len(self.requests):
            return 0.0
        return float(
            _read(np.array([requests]), self.requests, self.draft_seconds, "requests to draft for")[0]
        )

    def share(self, requests: int) -> float:
        """What a draft's token costs as a share of one more request's, for so many requests."""
        if self.shares is None:
            return 1.0
        return float(np.interp(requests, self.requests, self.shares))

    def step(
        self, tokens: Shaped[Array, "k"], requests: int | None = None, others: int = 0
    ) -> Float[np.ndarray, "k"]:
        """Seconds of whole steps: the passes, and a draft for ``requests`` where they are given.

        Of the tokens so many as there are requests, and ``others`` beside them, are not drafted.

        Raises:
            BadInput: tokens or requests outside the profiled range.
        """
        passes = self.verify(tokens)
        if requests is None:
            return passes
        share = self.share(requests)
        if share < 1.0:
            bare = self.verify(np.array([requests + others]))
            passes = bare + share * (passes - bare)
        return np.asarray(passes + self.draft(requests))

    def sps(
        self, tokens: Shaped[Array, "k"], requests: int | None = None, others: int = 0
    ) -> Float[np.ndarray, "k"]:
        """Steps per second; arguments as of :meth:`step`."""
        return np.asarray(1.0 / self.step(tokens, requests, others))

    def covers(self, requests: int, block: int, others: int = 0) -> bool:
        """Whether every step of so many requests with 0 to ``block`` drafts each can be looked up.

        ``others`` are requests beside them, of one token each.
        """
        low, high = self.range
        inside = low <= requests + others and requests * (1 + block) + others <= high
        return inside and self.drafts_for(requests)

    def drafts_for(self, requests: int) -> bool:
        """Whether the draft's cost for so many requests can be looked up."""
        known = self.requests
        return not len(known) or bool(known[0] <= requests <= known[-1])

    def to_json(self) -> Json:
        """Plain fields."""
        return {
            "format": _FORMAT,
            "verify": [[int(b), float(s)] for b, s in zip(self.tokens, self.seconds, strict=True)],
            "draft": [[int(r), float(s)] for r, s in zip(self.requests, self.draft_seconds, strict=True)],
            "shares": []
            if self.shares is None
            else [[int(r), float(s)] for r, s in zip(self.requests, self.shares, strict=True)],
            "max_ratio": self.max_ratio,
            "about": self.about,
        }

    @classmethod
    def from_json(cls, data: Json) -> StepCost:
        """Inverse of :meth:`to_json`; tables written by hand are forced monotone, older ones have no shares.

        Raises:
            BadInput: what is no such table, or holds a shape twice.
        """
        if present_mark(data.get("format", _FORMAT)) not in _FORMATS:
            raise BadInput(f"unknown step-cost format {data['format']!r}", hint=_FORMAT)
        try:
            verify, draft, shares = (
                _pairs(data.get(key) or [], key) for key in ("verify", "draft", "shares")
            )
            about, ratio = dict(data.get("about") or {}), float(data.get("max_ratio", MAX_RATIO))
        except (TypeError, ValueError) as error:
            raise BadInput(
                f"this is no step-cost table: {error}", hint='{"verify": [[tokens, seconds], ...]}'
            ) from error
        return cls.of(verify, draft, shares=shares, about=about, max_ratio=ratio)

    def save(self, path: Path) -> None:
        """Write the table, whole or not at all."""
        write_json(path, self.to_json())

    @classmethod
    def load(cls, path: Path) -> StepCost:
        """Read a table. Raises BadInput as :meth:`from_json`."""
        try:
            return cls.from_json(read_json(path))
        except BadInput as error:
            raise BadInput(
                error.what, where=error.where or str(path), hint="refork speculate profile --out writes one"
            ) from error


def shapes(most: int) -> list[int]:
    """Sizes to profile: 1, 2, 3, 4, 6, 8, 12, ... and ``most``, never more than twice apart."""
    found = {most}
    size = 1
    while size < most:
        found |= {size, min(size + size // 2, most)}
        size *= 2
    return sorted(found)


def _pairs(rows: Any, name: str) -> dict[int, float]:
    found = {int(size): math.nan if seconds is None else float(seconds) for size, seconds in rows}
    if len(found) != len(rows):
        raise BadInput("a shape stands in the table twice", where=name)
    return found


def _sorted(table: Mapping[int, float], name: str) -> tuple[Array, Array]:
    """Shapes [n] and seconds [n], rising."""
    sizes = np.array(sorted(table), dtype=np.int64)
    raw = [table[int(size)] for size in sizes]
    seconds = np.array([math.nan if s is None else s for s in raw], dtype=np.float64)
    bad = np.flatnonzero(~np.isfinite(seconds) | (seconds <= 0))
    if len(bad):
        raise BadInput(
            f"the time at {sizes[bad[0]]} is {seconds[bad[0]]}; every profiled shape needs a positive time",
            where=name,
        )
    return sizes, np.maximum.accumulate(seconds) if len(seconds) else seconds


def _check(sizes: Array, seconds: Array, ratio: float, name: str, unit: str) -> None:
    """Refuse what no honest profile holds."""
    if len(sizes) != len(seconds) or sizes.ndim != 1:
        raise BadInput(f"{len(sizes)} shapes and {len(seconds)} times", where=name)
    if not (np.isfinite(seconds).all() and (seconds > 0).all()):
        raise BadInput("every profiled shape needs a positive time", where=name)
    if sizes[0] < 1 or (np.diff(sizes) <= 0).any() or (np.diff(seconds) < 0).any():
        raise BadInput("shapes must rise from 1 or more and times must not fall", where=name,
                       hint="StepCost.of sorts a table and forces it monotone")  # fmt: skip
    wide = np.flatnonzero(sizes[1:] > ratio * sizes[:-1])
    if len(wide):
        low, high = int(sizes[wide[0]]), int(sizes[wide[0] + 1])
        raise BadInput(
            f"the table has a gap between {low} and {high} {unit}",
            where=name,
            hint=f"profile shapes at most {ratio:g} times apart, or raise max_ratio",
        )


def _read(wanted: Array, sizes: Array, seconds: Array, what: str) -> Array:
    """Times by linear interpolation, inside the profiled range only."""
    if wanted.size and (wanted.min() < sizes[0] or wanted.max() > sizes[-1]):
        outside = wanted.min() if wanted.min() < sizes[0] else wanted.max()
        raise BadInput(
            f"{int(outside)} {what}: the table covers {int(sizes[0])} to {int(sizes[-1])}",
            hint="profile the shapes that are served (refork speculate profile)",
        )
    return np.interp(wanted, sizes, seconds)
