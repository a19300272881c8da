"""Whether a run took the action in question, as the world's last answer tells it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from refork.judge import Verdict
from refork.tree.node import Trajectory
from refork.tree.score import Producer


@dataclass(frozen=True, slots=True)
class TargetJudge:
    """1.0 where the run took the action in question, 0.0 where it ended otherwise; unfinished is ungraded.

    Read from the ``info`` of the world's last answer: ``ending`` (a word) and ``target`` (whether it did).
    """

    score: str = "target"

    @property
    def producer(self) -> Producer:
        """This judge."""
        return Producer("motive-target", "1")  # its name on trees since there were motive scenes alone

    def judge(self, trajectory: Trajectory) -> Verdict:
        """What the last answer's info says."""
        said = ending_of(trajectory)
        if said is None:
            return Verdict(None, "the run did not end")
        ending, target = said
        return Verdict(None if ending == "unfinished" else float(target), ending)


def ending_of(trajectory: Trajectory) -> tuple[str, bool] | None:
    """How a recorded run ended and whether the action in question was taken; None where it did not end."""
    for step in reversed(trajectory.steps):
        extra: Mapping[str, Any] = step.node.extra
        if step.node.kind == "observation" and "ending" in extra:
            return extra["ending"], bool(extra["target"])
    return None
