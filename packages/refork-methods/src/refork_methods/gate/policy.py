"""What a policy is: the next action for a state, and how its state moves."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal, Protocol, TypeAlias

from refork.errors import BadInput
from refork_methods.gate.belief import State

#: ``terminal``: verifying ends the episode. ``retry``: a refused candidate may be refined.
Verify: TypeAlias = Literal["terminal", "retry"]
VERIFY: tuple[Verify, ...] = ("terminal", "retry")


@dataclass(frozen=True, slots=True)
class Choice:
    """The next action, what every open action is worth, the bracket of the state's value, and why.

    ``q`` is in the unit of the prices, from here on, and attainable; a rule that compares nothing leaves it
    empty and has no bracket.
    """

    action: str
    q: Mapping[str, float]
    bracket: tuple[float, float] | None
    reason: str


class Policy(Protocol):
    """Anything that says what to do next.

    ``blind`` ones look only at verdicts, never at the belief. ``charged`` has the critic prices that are not
    the model's (the reference release charges one rule wrongly; see ``released``).
    """

    @property
    def name(self) -> str:
        """What tables call it."""

    @property
    def blind(self) -> bool:
        """Whether the belief leaves it cold."""

    @property
    def charged(self) -> Mapping[str, float]:
        """Critic prices that differ from the model's."""

    def act(self, state: State) -> Choice:
        """The next action."""

    def update(self, state: State, critic: str, passed: bool) -> State:
        """Its state after a critic's verdict."""

    def refine(self, state: State) -> State:
        """Its state once the next candidate is there."""


def verify_from(text: str) -> Verify:
    """A way of verifying by name. Raises BadInput."""
    for known in VERIFY:
        if known == text:
            return known
    raise BadInput(f"unknown way of verifying {text!r}", hint=f"one of {', '.join(VERIFY)}")
