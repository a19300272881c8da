"""The judge seam: who says how well a trajectory did, where the world does not."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Protocol, runtime_checkable

from ramify.core.errors import BadInput
from ramify.core.tree.node import Trajectory
from ramify.core.tree.score import Producer


@dataclass(frozen=True, slots=True)
class Verdict:
    """A judge's answer; ``value`` None means ungraded, which is not 0."""

    value: float | None
    reason: str | None = None


@runtime_checkable
class Judge(Protocol):
    """Scores a finished trajectory. ``score`` names what it gives, ``success`` for most."""

    @property
    def producer(self) -> Producer:
        """Name, version and configuration of this judge."""
        ...

    @property
    def score(self) -> str:
        """Name of the score it writes."""
        ...

    def judge(self, walk: Trajectory) -> Verdict:
        """The verdict on a root-to-leaf walk."""
        ...


@dataclass(frozen=True, slots=True)
class MatchJudge:
    """1.0 where the text that follows the last observation matches a regular expression, else 0.0."""

    pattern: str
    score: str = "success"

    def __post_init__(self) -> None:
        try:
            re.compile(self.pattern)
        except re.error as error:
            raise BadInput(f"not a regular expression: {error}", where=repr(self.pattern)) from error

    @property
    def producer(self) -> Producer:
        """This judge with its pattern."""
        return Producer("match", "1", {"pattern": self.pattern, "score": self.score})

    def judge(self, walk: Trajectory) -> Verdict:
        """Whether the last turn's text matches."""
        said: list[str] = []
        for step in walk:
            if step.node.kind == "action":
                said.append(step.text)
            elif step.node.kind in ("observation", "task"):
                said = []
        return Verdict(float(re.search(self.pattern, "".join(said)) is not None))
