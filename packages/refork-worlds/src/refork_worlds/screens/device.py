"""What a phone and a desktop have in common: rules as a pure function, and the search that solves tasks."""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass
from typing import Any, Protocol, TypeVar, final

from refork.types import Json
from refork.worlds.dice import Dice
from refork.worlds.environment import DomainName
from refork.worlds.expert import shortest

S = TypeVar("S", bound=Hashable)

#: The verdicts, in fixed words; no screen says them.
DONE = "the task is done"
NOT_DONE = "the task is not done"
INVALID = "nothing happens"


@final
@dataclass(frozen=True, slots=True)
class Step:
    """What an action led to: the state, what is seen, what decided it in words.

    ``valid``: whether the action meant anything here; ``done``: whether it ended the task, and ``met`` how.
    """

    state: Any
    text: str
    note: str
    valid: bool = True
    done: bool = False
    met: bool = False


class Device(Protocol[S]):
    """The rules of one task: a pure function over hashable states."""

    @property
    def begin(self) -> S:
        """The state an episode starts in."""
        ...

    def view(self, state: S) -> str:
        """The screen as text, the same whenever the state is the same."""
        ...

    def step(self, state: S, action: str) -> Step:
        """What an action leads to; a pure function."""
        ...

    def options(self, state: S) -> tuple[str, ...]:
        """Actions that mean something on this screen, in a fixed order."""
        ...

    def useful(self, state: S) -> tuple[str, ...]:
        """Actions among which a shortest way to the first thing that is still wrong keeps a member."""
        ...

    def wrong(self, state: S) -> int:
        """How many things are not as the task wants them; 0 where it is done."""
        ...

    def hidden(self, state: S) -> str:
        """Everything that a state holds, in words: what a simulator is told of the begin."""
        ...


class Model(Protocol[S]):
    """A kind of device: draws tasks and makes their rules."""

    name: str
    domain: DomainName
    version: str
    horizon: int
    finish: str
    actions: str

    def draw(self, dice: Dice) -> Json:
        """The data of a random task."""
        ...

    def prompt(self, data: Json) -> str:
        """What is asked, in words."""
        ...

    def device(self, data: Json) -> Device[S]:
        """The rules of a task; raises BadInput where the data is not of this kind."""
        ...

    def save(self, state: S) -> Any:
        """A state as JSON."""
        ...

    def load(self, data: Any) -> S:
        """Inverse of :meth:`save`; raises BadInput on other data."""
        ...

    def words(self) -> tuple[str, ...]:
        """Every word that prompts, screens, notes and the actions of actors are made of."""
        ...


@final
class _Nearer:
    """The search problem of putting one more thing right, as :func:`shortest` takes it."""

    def __init__(self, device: Device[Any], start: Any) -> None:
        self._device, self._wrong = device, device.wrong(start)

    def grade(self, state: Any) -> float | None:
        """1 where less is wrong than at the start."""
        return 1.0 if self._device.wrong(state) < self._wrong else None

    def useful(self, state: Any) -> tuple[str, ...]:
        """The actions that matter."""
        return self._device.useful(state)

    def act(self, state: Any, action: str) -> Any:
        """The state an action leads to."""
        step = self._device.step(state, action)
        return step.state if step.valid else None


def plan(device: Device[Any], state: Any) -> tuple[str, ...] | None:
    """The shortest way to put one more thing right; empty where all is, None where no way leads there."""
    if device.wrong(state) == 0:
        return ()
    problem: Any = _Nearer(device, state)
    return shortest(problem, state)
