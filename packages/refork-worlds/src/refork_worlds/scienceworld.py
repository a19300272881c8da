"""``scienceworld:TASK?option=value``: ScienceWorld's thirty kinds of experiments, on its own simulator.

TASK is a name (``boil``) or number (``1-1``) of the package. A task is a *variation* of it: training tasks
are the package's training variations, held-out ones those of ``part``: ``dev`` (default) or ``test``. Actions
are sentences (``open door to kitchen``); what cannot be understood is answered by the simulator.
``simplify=easy``, or any of its simplifications separated by commas, makes it easier. The reward at the end
is the simulator's score as a fraction: 1 where the task was completed, 0 where it was failed for good (-100
there). ``turns`` limits an episode (100).

The simulator is a Java program, one process per live episode. At most ``SEATS`` of them run for this process:
an episode that another displaced, or whose simulator ended, is opened again, its actions are replayed and
each answer is checked. There is no snapshot, an episode is forked in the same way. All episodes of a task
begin alike; the chance of turn t (which way an animal goes) is a pure function of the episode's seed and t.

Source: arXiv 2203.07540, and the package ``scienceworld``.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from importlib.metadata import version
from typing import Literal, final

from refork.errors import BadInput, CannotDo
from refork.worlds.base import Observation, Split, Task
from refork.worlds.dice import Dice, digest
from refork.worlds.fork import check_answer
from refork.worlds.game import need
from refork.worlds.spec import Spec
from refork_worlds import scienceworld_java as java
from refork_worlds.scienceworld_java import Simulator, SimulatorBroken, State

_TURNS = 100


@final
class ScienceWorldEpisode:
    """One run of a variation; it may have to take a seat again before it goes on."""

    def __init__(self, world: ScienceWorldWorld, task: Task, seed: int) -> None:
        self.task = task
        self._world = world
        self._seed = seed
        self._said: list[tuple[str, int, Observation]] = []
        self._sim: Simulator | None = None
        self._first = self._open()

    @property
    def first(self) -> Observation:
        """The room one starts in."""
        return self._first

    def step(self, action: str) -> Observation:
        """Act and see; after the end the last answer is given again.

        Raises:
            ReplayDiverged: it was displaced, and answers otherwise when replayed.
            SimulatorBroken: the simulator ended, and so did a new one at the same action.
        """
        last = self._said[-1][2] if self._said else self._first
        if last.done:
            return replace(last, info={})
        try:
            seen = self._act(self._seat(), action)
        except SimulatorBroken:
            seen = self._act(self._seat(), action)
        self._said.append((action, self._seed, seen))
        java.POOL.used(self)
        return seen

    def snapshot(self) -> None:
        """None: the recorded actions are replayed and every answer is checked."""

    def reseed(self, seed: int) -> None:
        """Draw the simulator's chance anew from here on."""
        self._seed = seed

    def close(self) -> None:
        """Free the simulator."""
        java.POOL.give(self)
        self._sim = None

    def lose_seat(self) -> None:
        """Another episode has taken the simulator."""
        self._sim = None

    def _open(self) -> Observation:
        self._sim = java.POOL.take(self)
        data = self.task.data
        self._sim.load(data["task"], int(data["variation"]), self._world.simplify)
        text = self._sim.tell("look around")
        return Observation(text, self._key(self._sim.state()))

    def _seat(self) -> Simulator:
        """The simulator at this turn; where it was taken away or ended, a new seat and a checked replay."""
        if self._sim is not None and self._sim.alive():
            return self._sim
        self.close()
        where = f"world {self._world.name}, task {self.task.id}"
        first = self._open()
        simulator = self._sim
        if simulator is None:
            raise SimulatorBroken("the simulator was taken away while it was opened")
        check_answer(0, "look around", self._first.text, first, where=where)
        for turn, (action, seed, seen) in enumerate(self._said, 1):
            simulator.seed(seed, turn)
            check_answer(turn, action, seen.text, Observation(simulator.tell(_plain(action))), where=where)
        return simulator

    def _act(self, simulator: Simulator, action: str) -> Observation:
        turn = len(self._said) + 1
        simulator.seed(self._seed, turn)
        text = simulator.tell(_plain(action))
        now = simulator.state()
        done = now.completed or now.score < 0 or turn >= self._world.max_turns
        reward = max(now.score, 0) / 100 if done else None
        return Observation(text, self._key(now), done, reward, {"score": now.score})

    def _key(self, now: State) -> str:
        """What stands around and what is held; what cannot be seen (a temperature, an age) is not in it."""
        return digest(self.task.id, now.around, now.held)


def _plain(action: str) -> str:
    """An action in one line, as the simulator reads it."""
    return " ".join(action.split())


@final
@dataclass(frozen=True)
class ScienceWorldWorld:
    """One kind of experiment."""

    task: str
    simplify: str = ""
    part: Literal["dev", "test"] = "dev"
    max_turns: int = _TURNS
    query: str = ""

    #: Its plants and animals live by chance.
    deterministic = False

    @property
    def name(self) -> str:
        """The specification that opens this world."""
        return f"scienceworld:{self.task}" + (f"?{self.query}" if self.query else "")

    @property
    def version(self) -> str:
        """This adapter's version and the package's."""
        return f"2+scienceworld-{version('scienceworld')}"

    def tasks(self, split: Split, count: int, seed: int = 0) -> list[Task]:
        """``count`` different variations in seeded order.

        Raises:
            BadInput: there are not that many.
        """
        told = _variations(self.task, self.simplify)
        numbers = told.train if split == "train" else told.test if self.part == "test" else told.dev
        if count > len(numbers):
            raise BadInput(
                f"there are {len(numbers)} {split} variations, not {count}",
                where=self.name,
                hint="ask for fewer",
            )
        order = Dice("scienceworld", self.task, seed).sample(numbers, len(numbers))[:count]
        return [self._task(split, number) for number in order]

    def start(self, task: Task, seed: int) -> ScienceWorldEpisode:
        """Begin an episode.

        Raises:
            BadInput: the task is of another kind, or of no variation.
        """
        need(task.data, ("task", "variation"), self.name)
        if task.data["task"] != self.task:
            raise BadInput(f"this task is of {task.data['task']}", where=self.name)
        number = task.data["variation"]
        if type(number) is not int or number not in _variations(self.task, self.simplify).every:
            raise BadInput(f"{self.task} has no variation {number!r}", where=self.name)
        return ScienceWorldEpisode(self, task, seed)

    def restore(self, task: Task, snapshot: bytes) -> ScienceWorldEpisode:
        """Not possible; raises CannotDo."""
        raise CannotDo(f"{self.name} cannot be restored", hint="replay the recorded actions instead")

    def gold(self, task: Task) -> tuple[str, ...]:
        """The simulator's own way to complete a task; not always the shortest."""
        with java.POOL.asked() as simulator:
            simulator.load(task.data["task"], int(task.data["variation"]), self.simplify, True)
            return simulator.gold()

    def _task(self, split: Split, number: int) -> Task:
        with java.POOL.asked() as simulator:
            simulator.load(self.task, number, self.simplify)
            said, kinds = simulator.words()
        what, actions = said.removeprefix("Task Description:").strip(), " ; ".join(kinds)
        return Task(
            id=f"scienceworld:{self.task}/{number}",
            world=self.name,
            split=split,
            prompt=f"{what}\nActions: {actions}",
            data={"task": self.task, "variation": number},
        )


@dataclass(frozen=True, slots=True)
class _Variations:
    train: Sequence[int]
    dev: Sequence[int]
    test: Sequence[int]

    @property
    def every(self) -> frozenset[int]:
        """All of them."""
        return frozenset((*self.train, *self.dev, *self.test))


@lru_cache(maxsize=64)
def _variations(task: str, simplify: str) -> _Variations:
    with java.POOL.asked() as simulator:
        simulator.load(task, 0, simplify)
        return _Variations(*simulator.variations())


def open_scienceworld(spec: Spec) -> ScienceWorldWorld:
    """``scienceworld:TASK``: ScienceWorld's experiments, on Java (turns, simplify, part).

    Raises:
        BadInput: an unknown task, simplification or option.
        CannotDo: Java is missing or does not start.
        MissingExtra: scienceworld is not installed.
    """
    library = java.library()
    options = spec.take({"turns": int, "simplify": str, "part": str})
    turns, simplify, part = (
        options.get("turns", _TURNS),
        options.get("simplify", ""),
        options.get("part", "dev"),
    )
    names = dict(library.constants.ID2TASK)
    task = names.get(spec.argument, spec.argument)
    if task not in names.values():
        raise BadInput(
            f"ScienceWorld has no task {spec.argument!r}", hint="tasks: " + ", ".join(sorted(names.values()))
        )
    if turns < 1:
        raise BadInput(f"turns is {turns!r}; it must be at least 1", where=spec.name)
    if part not in ("dev", "test"):
        raise BadInput(f"part cannot be {part!r}", where=spec.name, hint="part=dev or part=test")
    try:
        _variations(task, simplify)
    except ValueError as error:
        raise BadInput(f"ScienceWorld refuses simplify={simplify!r}: {error}", where=spec.name) from error
    return ScienceWorldWorld(task, simplify, part, turns, spec.query)
