"""One turn of a trajectory as what is to be predicted, and which turn of each that is.

Source: arXiv 2606.24597 for exactly one target turn per trajectory in reinforcement learning: targets that
share a long prefix share their difficulty, and rewards within a batch lose their variance.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Literal, TypeAlias

from refork.errors import BadInput
from refork.sampling.noise import stream_of
from refork.types import Message
from refork.worlds.environment import Brief, EnvTrajectory, Seen, Transition
from refork_methods.simulate.prompt import TAG, messages

#: Which turns may be drawn: any, or those whose answer follows from what was said before.
Turns: TypeAlias = Literal["any", "exact"]


@dataclass(frozen=True, slots=True)
class Target:
    """The answer of turn ``index`` (0-based) of a trajectory, given what came before it."""

    trajectory: EnvTrajectory
    index: int

    def __post_init__(self) -> None:
        if not 0 <= self.index < len(self.trajectory.turns):
            raise BadInput(f"there is no turn {self.index}", where=f"trajectory {self.trajectory.id}")

    @property
    def turn(self) -> Transition:
        """The turn itself."""
        return self.trajectory.turns[self.index]

    @property
    def brief(self) -> Brief:
        """What the simulator is told first."""
        return self.trajectory.brief

    @property
    def seen(self) -> tuple[Seen, ...]:
        """The turns before."""
        return self.trajectory.seen(self.index)

    @property
    def action(self) -> str:
        """What was done."""
        return self.turn.action

    @property
    def truth(self) -> str:
        """What the environment answered."""
        return self.turn.observation

    @property
    def domain(self) -> str:
        """Which of the seven; ``other`` where none was named."""
        return self.trajectory.domain or "other"

    @property
    def key(self) -> str:
        """Names it among all targets."""
        return f"{self.trajectory.source}/{self.trajectory.id}/{self.index}"

    def messages(self, tag: str = TAG) -> list[Message]:
        """The chat in which the answer is due."""
        return messages(self.brief, self.seen, self.action, tag=tag)


def _eligible(trajectory: EnvTrajectory, turns: Turns) -> list[int]:
    """Numbers of the turns that may be predicted; what is kept as context only is never a target."""
    return [
        i for i, turn in enumerate(trajectory.turns)
        if turn.target is not False and (turns == "any" or turn.exact)
    ]  # fmt: skip


def pick(trajectories: Iterable[EnvTrajectory], seed: int, turns: Turns = "any") -> list[Target]:
    """One target of each trajectory, every eligible turn equally likely; none of one without such a turn.

    The choice is a function of the seed and the trajectory's own name, whatever the others are.
    """
    found: list[Target] = []
    for item in trajectories:
        open_ = _eligible(item, turns)
        if open_:
            at = stream_of("target", seed, item.source, item.id) % len(open_)
            found.append(Target(item, open_[at]))
    return found


def targets(
    trajectories: Iterable[EnvTrajectory], per_trajectory: int | None = None, seed: int = 0
) -> list[Target]:
    """All turns of trajectories in order, or so many drawn ones of each."""
    found: list[Target] = []
    for item in trajectories:
        numbers = _eligible(item, "any")
        if per_trajectory is not None:
            numbers.sort(key=lambda i: stream_of("targets", seed, item.source, item.id, i))
            numbers = sorted(numbers[:per_trajectory])
        found += [Target(item, i) for i in numbers]
    return found


def one_each(items: Sequence[Target]) -> None:
    """Refuse targets of which two come from one trajectory."""
    held: set[tuple[str, str]] = set()
    for item in items:
        name = (item.trajectory.source, item.trajectory.id)
        if name in held:
            raise BadInput(
                "two targets come from one trajectory",
                where=f"trajectory {item.trajectory.id} of {item.trajectory.source}",
                hint="reinforcement learning takes exactly one turn of each: use pick()",
            )
        held.add(name)
