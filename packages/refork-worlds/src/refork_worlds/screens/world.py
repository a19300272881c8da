"""``phone`` and ``desktop``: worlds of screens whose every answer follows from what was said before.

The brief holds the whole hidden state in words, so a simulator can answer to the letter; a screen that an
action leaves as it was is marked by ``info["changed"]``, for data sets that drop such turns.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any, Final, final

from refork.errors import BadInput
from refork.types import Json
from refork.worlds.base import Observation, Split, Task
from refork.worlds.dice import Dice, digest, split_of
from refork.worlds.environment import ActionObservation, Brief, DomainName
from refork.worlds.game import different, reading
from refork.worlds.spec import Spec
from refork_worlds.screens.actions import action_in
from refork_worlds.screens.desktop import DesktopModel
from refork_worlds.screens.device import DONE, NOT_DONE, Device, Model, plan
from refork_worlds.screens.phone import PhoneModel

# Scripted agents of the screens: one that solves, one that errs and mends it, one that explores.


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
        # A plan is for one state: an error in between has led to another.
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


@final
@dataclass(frozen=True)
class ScreenWorld:
    """The world of a phone or a desktop; ``turns`` ends an episode that nobody ended."""

    model: Model[Any]
    turns: int
    options: str = ""

    deterministic = True

    @property
    def name(self) -> str:
        """The specification that opens this world."""
        return f"{self.model.name}?{self.options}" if self.options else self.model.name

    @property
    def version(self) -> str:
        """The version of the rules."""
        return self.model.version

    @property
    def max_turns(self) -> int:
        """Turns after which a run counts as failed."""
        return self.turns

    @property
    def domain(self) -> DomainName:
        """Phone or desktop."""
        return self.model.domain

    def vocabulary(self) -> tuple[str, ...]:
        """Every word (between white space) of prompts, screens, notes and scripted actions, sorted."""
        stray = [word for said in NONSENSE for word in said.split(" ")]
        return tuple(sorted({*self.model.words(), *stray}))

    def tasks(self, split: Split, count: int, seed: int = 0) -> list[Task]:
        """``count`` different seeded tasks; a shorter list is a prefix of a longer one.

        Raises:
            BadInput: there are not so many.
        """

        def draw(number: int) -> Task | None:
            data = self.model.draw(Dice("screens", self.model.name, seed, number))
            mark = digest(data)
            if split_of(mark) != split:
                return None
            return Task(f"{self.model.name}/{mark[:16]}", self.name, split, self.model.prompt(data), data)

        return different(count, draw, f"{split} tasks of {self.name}")

    def device(self, task: Task) -> Device[Any]:
        """The rules of a task."""
        return self.model.device(task.data)

    def start(self, task: Task, seed: int) -> ScreenEpisode:
        """Begin; there is no chance."""
        del seed
        device = self.device(task)
        return ScreenEpisode(self, task, device, device.begin)

    def restore(self, task: Task, snapshot: bytes) -> ScreenEpisode:
        """An episode in the state of a snapshot; raises BadInput where it is not one of this task."""
        device = self.device(task)
        with reading(self.name, task, snapshot) as record:
            turn = int(record["turn"])
            state = self.model.load(record["state"])
            last = None if record["last"] is None else Observation(**record["last"])
        return ScreenEpisode(self, task, device, state, turn, last)

    def brief(self, task: Task) -> Brief:
        """The request, the actions, and everything the device holds."""
        device = self.device(task)
        return Brief(
            task_description=f"a {self.model.name} ; the user wants : {task.prompt}",
            action_space=self.model.actions,
            initial_state=f"{device.hidden(device.begin)}\n{device.view(device.begin)}",
        )

    def agent(self, task: Task, seed: int) -> ScreenAgent:
        """A scripted agent; the seed draws whether it solves, errs or explores."""
        return ScreenAgent(self.device(task), self.model.finish, Dice("actor", task.id, seed))

    def action_in(self, turn: str) -> str:
        """The action alone, out of a policy's whole turn."""
        return action_in(turn)

    def standing(self, task: Task, history: Sequence[ActionObservation]) -> tuple[bool, float | None]:
        """Over with a verdict, or when the turns are used up."""
        del task
        for _, text in history:
            if text.strip() in (DONE, NOT_DONE):
                return True, float(text.strip() == DONE)
        return (True, 0.0) if len(history) >= self.turns else (False, None)


@final
class ScreenEpisode:
    """One live run of a task."""

    def __init__(
        self,
        world: ScreenWorld,
        task: Task,
        device: Device[Any],
        state: Any,
        turn: int = 0,
        last: Observation | None = None,
    ) -> None:
        self.world, self.task, self.device = world, task, device
        self.state, self.turn = state, turn
        self._last = last

    @property
    def first(self) -> Observation:
        """The screen before any action."""
        begin = self.device.begin
        return Observation(self.device.view(begin), self._key(begin))

    def step(self, action: str) -> Observation:
        """Act and see; after the end the last answer is given again."""
        if self._last is not None and self._last.done:
            return self._last
        before = self.state
        step = self.device.step(before, action)
        self.state, self.turn = step.state, self.turn + 1
        info: Json = {"exact": True, "note": step.note}
        info["changed"] = step.done or self.device.view(before) != self.device.view(step.state)
        if not step.valid:
            info["invalid"] = True
        late = self.turn >= self.world.turns
        reward = float(step.met) if step.done else 0.0 if late else None
        self._last = Observation(step.text, self._key(step.state), reward is not None, reward, info)
        return self._last

    def _key(self, state: Any) -> str:
        return digest(self.world.model.name, self.task.id, self.world.model.save(state))

    def snapshot(self) -> bytes:
        """The exact state as JSON."""
        last = None if self._last is None else asdict(self._last)
        state = self.world.model.save(self.state)
        record = {"task": self.task.id, "turn": self.turn, "state": state, "last": last}
        return json.dumps(record, sort_keys=True).encode()

    def reseed(self, seed: int) -> None:
        """There is no chance."""

    def close(self) -> None:
        """Nothing is held."""


def _open(spec: Spec, model: Model[Any]) -> ScreenWorld:
    if spec.argument:
        raise BadInput(f"{model.name} takes no argument, not {spec.argument!r}", where=model.name)
    turns = spec.take({"turns": int}).get("turns", model.horizon)
    if turns < 1:
        raise BadInput(f"an episode has at least one turn, not {turns}", where=model.name)
    return ScreenWorld(model, turns, spec.query)


def open_phone(spec: Spec) -> ScreenWorld:
    """``phone``: a phone's screens as view hierarchies (option turns)."""
    return _open(spec, PhoneModel())


def open_desktop(spec: Spec) -> ScreenWorld:
    """``desktop``: a desktop's windows as an accessibility tree (option turns)."""
    return _open(spec, DesktopModel())
