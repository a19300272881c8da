"""``scienceworld:TASK?option=value``: ScienceWorld's thirty kinds of experiments, on its own simulator.

TASK is a name (``boil``) or number (``1-1``) of the package. A task is a *variation* of it: training tasks
are the package's training variations, held-out ones those of ``part``: ``dev`` (default) or ``test``. Actions
are sentences (``open door to kitchen``); what cannot be understood is answered by the simulator.
``simplify=easy``, or any of its simplifications separated by commas, makes it easier. The reward at the end
is the simulator's score as a fraction: 1 where the task was completed, 0 where it was failed for good (-100
there). ``turns`` limits an episode (100).

The simulator is a Java program, one process per live episode. At most ``SEATS`` of them run for this process:
an episode that another displaced is opened again, its actions are replayed and each answer is checked. There
is no snapshot, an episode is forked in the same way.

Source: arXiv 2203.07540, and the package ``scienceworld``.
"""

from __future__ import annotations

import atexit
import contextlib
import shutil
import subprocess
import weakref
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from importlib.metadata import version
from typing import Any, Literal, final

from ramify.core.errors import BadInput, CannotDo, MissingExtra
from ramify.core.world.base import Observation, Split, Task
from ramify.core.world.dice import Dice, digest
from ramify.core.world.fork import check_answer
from ramify.core.world.game import need
from ramify.core.world.spec import Spec

#: Simulators that run at once in this process; each takes a few hundred megabytes.
SEATS = 2
_TURNS = 100
_JAVA = "apt-get install -y default-jre-headless, or any Java from 8 on"


def _library() -> Any:
    try:
        import scienceworld
    except ImportError:
        raise MissingExtra("scienceworld", "scienceworld") from None
    if shutil.which("java") is None:
        raise CannotDo("ScienceWorld runs on Java, and there is no `java` here", hint=_JAVA)
    return scienceworld


@final
@dataclass
class _Seats:
    """The simulators of this process and the episodes that hold them, the longest unused first."""

    idle: list[Any] = field(default_factory=list)
    held: list[tuple[weakref.ref[ScienceWorldEpisode], Any]] = field(default_factory=list)

    def take(self, episode: ScienceWorldEpisode) -> Any:
        """A simulator for an episode."""
        simulator = self.borrow()
        self.held.append((weakref.ref(episode), simulator))
        return simulator

    def borrow(self) -> Any:
        """A simulator that no episode holds: a free one, a new one, or the longest unused episode's."""
        self._collect()
        if self.idle:
            return self.idle.pop()
        if len(self.held) < SEATS:
            return _simulator()
        owner, simulator = self.held.pop(0)
        if (displaced := owner()) is not None:
            displaced.lose_seat()
        return simulator

    @contextlib.contextmanager
    def asked(self) -> Iterator[Any]:
        """A simulator for questions, free again afterwards."""
        simulator = self.borrow()
        try:
            yield simulator
        finally:
            self.idle.append(simulator)

    def used(self, episode: ScienceWorldEpisode) -> None:
        """Note that an episode has just used its simulator."""
        self.held.sort(key=lambda seat: seat[0]() is episode)

    def give(self, episode: ScienceWorldEpisode) -> None:
        """Take a simulator back from an episode that is closed."""
        self.idle += [simulator for owner, simulator in self.held if owner() is episode]
        self.held = [seat for seat in self.held if seat[0]() is not episode]

    def _collect(self) -> None:
        """Free the simulators of episodes that nobody holds any more."""
        self.idle += [simulator for owner, simulator in self.held if owner() is None]
        self.held = [seat for seat in self.held if seat[0]() is not None]

    def close(self) -> None:
        """End all simulators."""
        for simulator in [*self.idle, *(one for _, one in self.held)]:
            _end(simulator)
        self.idle, self.held = [], []


_POOL = _Seats()
atexit.register(_POOL.close)


def _simulator() -> Any:
    library = _library()
    try:
        return library.ScienceWorldEnv("", envStepLimit=2**30)
    except Exception as error:  # py4j raises many kinds where Java does not start
        raise CannotDo(f"ScienceWorld's simulator did not start: {error}", hint=_JAVA) from error


def _end(simulator: Any) -> None:
    """End a simulator and wait for its process, so that nothing is left open."""
    process = simulator._gateway.java_process
    simulator.close()
    process.stdin.close()
    try:
        process.wait(timeout=10)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


@final
class ScienceWorldEpisode:
    """One run of a variation; it may have to take a seat again before it goes on."""

    def __init__(self, world: ScienceWorldWorld, task: Task) -> None:
        self.task = task
        self._world = world
        self._said: list[tuple[str, Observation]] = []
        self._sim: Any = None
        self._first = self._open()

    @property
    def first(self) -> Observation:
        """The room one starts in."""
        return self._first

    def step(self, action: str) -> Observation:
        """Act and see; after the end the last answer is given again."""
        last = self._said[-1][1] if self._said else self._first
        if last.done:
            return replace(last, info={})
        if self._sim is None:
            self._again()
        seen = self._act(action)
        self._said.append((action, seen))
        _POOL.used(self)
        return seen

    def snapshot(self) -> None:
        """None: the recorded actions are replayed and every answer is checked."""

    def reseed(self, seed: int) -> None:
        """The simulator's own chance, where it has any, cannot be seeded."""

    def close(self) -> None:
        """Free the simulator."""
        _POOL.give(self)
        self._sim = None

    def lose_seat(self) -> None:
        """Another episode has taken the simulator."""
        self._sim = None

    def _open(self) -> Observation:
        self._sim = _POOL.take(self)
        data = self.task.data
        self._sim.load(data["task"], int(data["variation"]), self._world.simplify)
        self._sim.server.reset()
        text = str(self._sim.server.step("look around"))
        return Observation(text, self._key())

    def _again(self) -> None:
        """Take a seat and replay, checking every answer."""
        where = f"world {self._world.name}, task {self.task.id}"
        first = self._open()
        check_answer(0, "look around", self._first.text, first, where=where)
        for turn, (action, seen) in enumerate(self._said, 1):
            server = self._sim.server
            check_answer(turn, action, seen.text, Observation(str(server.step(_plain(action)))), where=where)

    def _act(self, action: str) -> Observation:
        server = self._sim.server
        text = str(server.step(_plain(action)))
        score = round(100 * float(server.getScore()))
        turns = len(self._said) + 1
        done = bool(server.getCompleted()) or score < 0 or turns >= self._world.max_turns
        reward = max(score, 0) / 100 if done else None
        return Observation(text, self._key(), done, reward, {"score": score})

    def _key(self) -> str:
        """What stands around and what is held; what cannot be seen (a temperature, an age) is not in it."""
        server = self._sim.server
        return digest(self.task.id, str(server.freeActionLook()), str(server.freeActionInventory()))


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

    #: Its plants and animals live by chance that cannot be seeded.
    deterministic = False

    @property
    def name(self) -> str:
        """The specification that opens this world."""
        return f"scienceworld:{self.task}" + (f"?{self.query}" if self.query else "")

    @property
    def version(self) -> str:
        """This adapter's version and the package's."""
        return f"1+scienceworld-{version('scienceworld')}"

    def tasks(self, split: Split, count: int, seed: int = 0) -> list[Task]:
        """``count`` different variations in seeded order.

        Raises:
            BadInput: there are not that many.
        """
        told = _told(self.task, self.simplify)
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
        """Begin an episode; its chance cannot be seeded."""
        del seed
        need(task.data, ("task", "variation"), self.name)
        if task.data["task"] != self.task:
            raise BadInput(f"this task is of {task.data['task']}", where=self.name)
        return ScienceWorldEpisode(self, task)

    def restore(self, task: Task, snapshot: bytes) -> ScienceWorldEpisode:
        """Not possible; raises CannotDo."""
        raise CannotDo(f"{self.name} cannot be restored", hint="replay the recorded actions instead")

    def gold(self, task: Task) -> tuple[str, ...]:
        """The simulator's own way to complete a task; not always the shortest."""
        with _POOL.asked() as simulator:
            simulator.load(task.data["task"], int(task.data["variation"]), self.simplify, True)
            return tuple(str(action) for action in simulator.get_gold_action_sequence())

    def _task(self, split: Split, number: int) -> Task:
        with _POOL.asked() as simulator:
            simulator.load(self.task, number, self.simplify)
            what = str(simulator.get_task_description()).removeprefix("Task Description:").strip()
            actions = " ; ".join(sorted(str(action) for action in simulator.get_possible_actions()))
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


def _told(task: str, simplify: str) -> _Variations:
    with _POOL.asked() as simulator:
        simulator.load(task, 0, simplify)
        lists = (simulator.get_variations_train, simulator.get_variations_dev, simulator.get_variations_test)
        return _Variations(*(sorted(int(n) for n in one()) for one in lists))


def scienceworld_world(spec: Spec) -> ScienceWorldWorld:
    """The world of ``scienceworld:TASK?options``.

    Raises:
        BadInput: an unknown task, simplification or option.
        CannotDo: Java is missing or does not start.
        MissingExtra: scienceworld is not installed.
    """
    library = _library()
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
        _told(task, simplify)
    except ValueError as error:
        raise BadInput(f"ScienceWorld refuses simplify={simplify!r}: {error}", where=spec.name) from error
    return ScienceWorldWorld(task, simplify, part, turns, spec.query)
