"""Scripted agents of the screens: one that solves, one that errs and mends it, one that explores."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final, final

from refork.worlds.dice import Dice
from refork.worlds.environment import ActionObservation
from refork_worlds.screens.device import Device, plan

#: Probability of a random action in a turn, by kind of agent; what an explorer ends with is up to chance.
ERRS: Final = {"solve": 0.0, "err": 0.25, "explore": 0.8}
#: An action that cannot be read, for a simulator to see one.
NONSENSE: Final = ("click", "open the app", "jump")


@final
class ScreenAgent:
    """An agent that knows the rules: it replays what was done and plans from there."""

    def __init__(self, device: Device[Any], finish: str, dice: Dice) -> None:
        self._device, self._finish = device, finish
        self.kind = dice.choice(("solve", "solve", "err", "err", "explore"))
        self._dice = dice
        self._plan: tuple[str, ...] = ()
        self._at: Any = None

    def act(self, history: Sequence[ActionObservation]) -> str | None:
        """The next action; None after the verdict."""
        state = self._device.begin
        for action, _ in history:
            step = self._device.step(state, action)
            if step.done:
                return None
            state = step.state
        if self._dice.uniform() < ERRS[self.kind]:
            self._plan = ()
            return self._strayed(state)
        if not self._plan or self._at != state:
            found = plan(self._device, state)
            # An agent that sees no way gives up, and says that it is done.
            self._plan = found or (self._finish,)
        action, self._plan = self._plan[0], self._plan[1:]
        self._at = self._device.step(state, action).state
        return action

    def _strayed(self, state: Any) -> str:
        if self._dice.uniform() < 0.05:
            return self._dice.choice(NONSENSE)
        return self._dice.choice(self._device.options(state))
