"""The judge seam: who says how well a trajectory did, where the world does not."""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol, final, runtime_checkable

from refork.errors import BadInput
from refork.registry import resolve, split, version_of
from refork.tree.node import Trajectory
from refork.tree.score import Producer
from refork.tree.turn import last_said


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

    def judge(self, trajectory: Trajectory) -> Verdict:
        """The verdict on a root-to-leaf trajectory."""
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

    def judge(self, trajectory: Trajectory) -> Verdict:
        """Whether the last turn's text matches."""
        said = "".join(turn.text for turn in last_said(trajectory))
        return Verdict(float(re.search(self.pattern, said) is not None))


@final
@dataclass(frozen=True, slots=True)
class FunctionJudge:
    """A function of a trajectory as a judge: its number, or None where it cannot say.

    Its producer carries a digest of the function's file, so that another version is another judge.
    """

    function: Callable[[Trajectory], float | None]
    name: str
    digest: str
    score: str = "success"

    @property
    def producer(self) -> Producer:
        """This function in this version."""
        return Producer(f"function:{self.name}", self.digest, {"score": self.score})

    def judge(self, trajectory: Trajectory) -> Verdict:
        """What the function says."""
        value = self.function(trajectory)
        return Verdict(None if value is None else float(value))


def load_judge(spec: str) -> Judge:
    """The judge that a registered name, ``FILE.py:NAME`` or ``package.module:NAME`` stands for.

    It is a judge, a function that is given the trajectory and returns a number or None, or what makes a
    judge: a class, called with the argument behind another colon (``regex:PATTERN``) or with none. A file is
    run.

    Raises:
        BadInput: no such name, file or module, or it is no judge.
    """
    name, argument = split("judges", spec)
    made: Any = resolve("judges", name)
    # A class is asked for first: it has a judge's methods too, and would pass for one.
    if inspect.isclass(made):
        make: Any = made
        try:
            made = make(argument) if argument else make()
        except TypeError as error:
            raise BadInput(f"this judge cannot be made: {error}", where=spec) from error
    elif argument:
        raise BadInput(f"{name!r} takes no argument", where=spec)
    if isinstance(made, Judge):
        return made
    if not callable(made):
        raise BadInput(f"{name!r} is neither a judge nor a function", where=spec)
    return FunctionJudge(made, name.rpartition(":")[2], version_of("judges", name, made))
