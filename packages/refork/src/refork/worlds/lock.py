"""``lock``: one action of 32 characters, four of which must be right.

Prompt: ``open lock 173 :``. The action has a pivot at the characters 4, 12, 20 and 28 (counted from 0):
one of ``a b c d``; every other character is ``.``. The right pivots are hidden and drawn
uniformly for each lock. Reward 1 where the action is well formed and all four are right, else 0; white
space is ignored.
The answer is ``the lock opens`` or ``the lock stays shut``.

:func:`lock_distribution` is a policy for it whose success probabilities are known exactly: at a pivot it says
a, b, c, d with probabilities 0.4, 0.3, 0.2, 0.1. So a lock is opened with the product of its
four right ones' probabilities, 1/256 on average.

Source: the test environment of the reproduction of arXiv 2605.05262 (reward 1 and 0 where it says +1 and -1).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import prod
from typing import final

from refork.errors import BadInput
from refork.policies.scripted import ScriptedPolicy, bare
from refork.worlds.base import Observation, Split, Task
from refork.worlds.dice import Dice, digest, split_of
from refork.worlds.game import need
from refork.worlds.single_turn import SingleTurnEpisode, restore_single_turn
from refork.worlds.spec import Spec

LENGTH = 32
PIVOTS = (4, 12, 20, 28)
CHOICES = "abcd"
PROBABILITIES = (0.4, 0.3, 0.2, 0.1)
FORCED = "."
_SERIALS = 1_000_000


@final
@dataclass(frozen=True)
class LockWorld:
    """Locks that differ in their serial number and hidden right choices."""

    name = "lock"
    version = "1"
    max_turns = 1
    deterministic = True

    def vocabulary(self) -> tuple[str, ...]:
        """The characters of an action: each is one token of :func:`lock_distribution`."""
        return (FORCED, *CHOICES)

    def tasks(self, split: Split, count: int, seed: int = 0) -> list[Task]:
        """``count`` different locks; the serial number alone decides the split.

        Raises:
            BadInput: more locks than there are serial numbers.
        """
        # A quarter of the serials is held out; drawing half of those still ends soon, drawing all would not.
        if count > _SERIALS // 8:
            raise BadInput(f"{count} locks are too many", where="lock", hint=f"at most {_SERIALS // 8}")
        dice, found = Dice("lock", seed), dict[int, Task]()
        while len(found) < count:
            serial = dice.below(_SERIALS)
            if serial in found or split_of(digest("lock", serial)) != split:
                continue
            inner = Dice("lock code", serial)
            right = "".join(inner.choice(CHOICES) for _ in PIVOTS)
            found[serial] = Task(
                id=f"lock/{serial}",
                world=self.name,
                split=split,
                prompt=f"open lock {serial} :",
                data={"serial": serial, "right": right},
            )
        return list(found.values())

    def start(self, task: Task, seed: int) -> SingleTurnEpisode:
        """Begin; there is no chance."""
        del seed
        return SingleTurnEpisode(task, _Grader(_right(task)))

    def restore(self, task: Task, snapshot: bytes) -> SingleTurnEpisode:
        """An episode in the state of a snapshot."""
        return restore_single_turn(task, snapshot, _Grader(_right(task)))


def _right(task: Task) -> str:
    need(task.data, ("serial", "right"), "lock")
    right = str(task.data["right"])
    if len(right) != len(PIVOTS) or set(right) - set(CHOICES):
        raise BadInput(f"{right!r} is not four of {' '.join(CHOICES)}", where=f"task {task.id}")
    return right


@final
@dataclass(frozen=True)
class _Grader:
    right: str

    def __call__(self, action: str) -> Observation:
        opened = "".join(action.split()) == lock_action(self.right)
        return Observation(
            text="the lock opens" if opened else "the lock stays shut",
            state_key=digest("lock", opened),
            done=True,
            reward=1.0 if opened else 0.0,
        )


def lock_action(choices: str) -> str:
    """The action that makes these four choices."""
    marks = dict(zip(PIVOTS, choices, strict=True))
    return "".join(marks.get(place, FORCED) for place in range(LENGTH))


def lock_distribution(text: str) -> dict[str, float]:
    """The next character's probabilities after a prompt and the beginning of an action.

    The action is what follows the last colon, white space left out; after 32 characters the turn ends
    (the empty string). A distribution for ``ScriptedPolicy.from_text``.
    """
    place = len("".join(text.rpartition(":")[2].split()))
    if place >= LENGTH:
        return {"": 1.0}
    if place in PIVOTS:
        return dict(zip(CHOICES, PROBABILITIES, strict=True))
    return {FORCED: 1.0}


def lock_success(right: str, begun: str = "", probabilities: Sequence[float] = PROBABILITIES) -> float:
    """The exact probability that an action begun like this opens the lock under :func:`lock_distribution`.

    ``probabilities`` are those of a, b, c and d at a pivot.
    """
    goal = lock_action(right)
    if not goal.startswith(begun):
        return 0.0
    distribution = dict(zip(CHOICES, probabilities, strict=True))
    return prod(distribution[goal[place]] for place in PIVOTS if place >= len(begun))


def open_lock(spec: Spec) -> LockWorld:
    """``lock``: one action of 32 characters, four of which must be right."""
    spec.alone()
    spec.take({})
    return LockWorld()


def lock_player(argument: str) -> ScriptedPolicy:
    """``lock``: plays the lock world with the known distribution."""
    bare("lock", argument)
    return ScriptedPolicy.from_text(lock_distribution, name="scripted:lock")
