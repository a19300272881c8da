"""Who can say how well a draw did, asked before anything is drawn."""

from __future__ import annotations

from typing import Final

from refork.errors import BadInput
from refork.judge import Judge
from refork.worlds.base import World

#: The scores that a world gives the rollouts it ends.
WORLD_SCORES: Final = frozenset({"reward", "success"})

#: The ways to have draws graded, as a hint.
WAYS: Final = (
    "name a world that grades (--world SPEC), a pattern that a right last turn matches "
    "(--success-regex PATTERN), or a judge (--judge FILE.py:NAME)"
)


def is_graded(score: str, world: World | None, judge: Judge | None) -> bool:
    """Whether somebody will give draws this score: the world, or a judge of it."""
    return (judge is not None and judge.score == score) or (world is not None and score in WORLD_SCORES)


def need_grader(score: str, world: World | None, judge: Judge | None, where: str) -> None:
    """Refuse to draw what nobody will grade.

    Raises:
        BadInput: neither a world nor a judge gives the score.
    """
    if not is_graded(score, world, judge):
        raise BadInput(f"nobody would give these draws a {score!r} score", where=where, hint=WAYS)
