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

import atexit
import contextlib
import logging
import os
import shutil
import signal
import subprocess
import tempfile
import threading
import weakref
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache
from importlib.metadata import version
from pathlib import Path
from typing import IO, Any, Final, Literal, Protocol, TypeVar, final

from refork.errors import BadInput, CannotDo, MissingExtra
from refork.interrupt import Interrupt
from refork.sampling.noise import stream_of
from refork.worlds.base import Observation, Split, Task
from refork.worlds.dice import Dice, digest
from refork.worlds.fork import check_answer
from refork.worlds.game import need
from refork.worlds.spec import Spec

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
        # Once more on a new simulator: a crash may be chance, a second one at the same action is none.
        except SimulatorBroken:
            seen = self._act(self._seat(), action)
        self._said.append((action, self._seed, seen))
        POOL.used(self)
        return seen

    def snapshot(self) -> None:
        """None: the recorded actions are replayed and every answer is checked."""

    def reseed(self, seed: int) -> None:
        """Draw the simulator's chance anew from here on."""
        self._seed = seed

    def close(self) -> None:
        """Free the simulator."""
        POOL.give(self)
        self._sim = None

    def lose_seat(self) -> None:
        """Another episode has taken the simulator."""
        self._sim = None

    def _open(self) -> Observation:
        self._sim = POOL.take(self)
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
        with POOL.asked() as simulator:
            simulator.load(task.data["task"], int(task.data["variation"]), self.simplify, True)
            return simulator.gold()

    def _task(self, split: Split, number: int) -> Task:
        with POOL.asked() as simulator:
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
    with POOL.asked() as simulator:
        simulator.load(task, 0, simplify)
        return _Variations(*simulator.variations())


def open_scienceworld(spec: Spec) -> ScienceWorldWorld:
    """``scienceworld:TASK``: ScienceWorld's experiments, on Java (turns, simplify, part).

    Raises:
        BadInput: an unknown task, simplification or option.
        CannotDo: Java is missing or does not start.
        MissingExtra: scienceworld is not installed.
    """
    package = library()
    options = spec.take({"turns": int, "simplify": str, "part": str})
    turns, simplify, part = (
        options.get("turns", _TURNS),
        options.get("simplify", ""),
        options.get("part", "dev"),
    )
    names = dict(package.constants.ID2TASK)
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


# ScienceWorld's simulators: Java programs that this process starts, lends to episodes and ends.
#
# What a simulator answers depends on nothing but its task, the actions and our seeds. Its chance is one
# generator, which we set. Its sets of objects are ordered by hash, and Java makes a hash from where an
# object happens to lie; so it is started with one hash for all objects, which keeps the order in which they
# came.


T = TypeVar("T")
#: Simulators that run at once in this process; each takes a few hundred megabytes.
SEATS = 2
INSTALL: Final = "apt-get install -y default-jre-headless, or any Java from 8 on"
#: Hash code 2 is the same one for every object; Javas that know no such option do not mind it.
_OPTIONS: Final = (
    "-XX:+IgnoreUnrecognizedVMOptions",
    "-XX:+UnlockExperimentalVMOptions",
    "-XX:hashCode=2",
)
#: Seconds that a simulator has to end, and that a broken one has to be gone.
_PATIENCE: Final = 10
_MOMENT: Final = 0.5
_LAST_WORDS: Final = 300


class SimulatorBroken(RuntimeError):
    """The simulator ended or failed in the middle of an episode, which can then not be graded.

    No UserError: like whatever breaks in a world it ends one rollout, with the error on its tree, and no run.
    """


@dataclass(frozen=True, slots=True)
class State:
    """The score in hundredths, whether the task is completed, what stands around, and what is held."""

    score: int
    completed: bool
    around: str
    held: str


class Holder(Protocol):
    """An episode that holds a simulator."""

    def lose_seat(self) -> None:
        """Another episode has taken it."""
        ...


def java() -> str | None:
    """The Java to run: that of ``JAVA_HOME``, else the one on the search path."""
    home = os.environ.get("JAVA_HOME")
    named = shutil.which("java", path=str(Path(home) / "bin")) if home else None
    return named or shutil.which("java")


def library() -> Any:
    """The package.

    Raises:
        CannotDo: there is no Java.
        MissingExtra: scienceworld is not installed.
    """
    try:
        import scienceworld
    except ImportError:
        raise MissingExtra("scienceworld", "scienceworld") from None
    if java() is None:
        raise CannotDo("ScienceWorld runs on Java, and there is no `java` here", hint=INSTALL)
    return scienceworld


def _launch(package: Any) -> tuple[int, subprocess.Popen[bytes]]:
    """In the place of py4j's function: our options, Ctrl-C kept away, and what Java says where it fails."""
    from py4j.java_gateway import find_jar_path

    path, cwd = os.pathsep.join((find_jar_path(), package.constants.JAR_PATH)), package.constants.BASEPATH
    command = [str(java()), *_OPTIONS, "-classpath", path, "py4j.GatewayServer", "--die-on-broken-pipe", "0"]
    with tempfile.TemporaryFile() as said:
        process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=said, cwd=cwd, process_group=0
        )
        first = process.stdout.readline() if process.stdout else b""
        if not first.strip().isdigit():
            process.kill()
            process.communicate()
            said.seek(0)
            last = (first + said.read()).decode("utf-8", "replace").strip()[-_LAST_WORDS:]
            raise OSError(last or f"Java ended at once, with status {process.returncode}")
    threading.Thread(target=_drain, args=(process.stdout,), daemon=True).start()
    return int(first), process


def _drain(stream: IO[bytes]) -> None:
    """Read what Java prints until it ends: else it would wait for a reader."""
    with stream:
        for _ in stream:
            pass


def start() -> Any:
    """A live object of the package, which talks to a Java program of its own.

    Raises:
        CannotDo: it does not start.
    """
    package = library()
    try:
        found = _launch(package)
    except OSError as error:
        raise CannotDo(f"ScienceWorld's simulator did not start: {error}", hint=INSTALL) from error
    module = package.scienceworld
    before, module.launch_gateway = module.launch_gateway, lambda **_: found
    try:
        with _quiet():
            # Turns are counted here; the package's own limit is never to end an episode.
            env = package.ScienceWorldEnv("", envStepLimit=2**30)
    except BaseException as error:
        found[1].kill()
        if (stop := _stopped(error)) is not None:
            raise stop from None
        raise CannotDo(f"ScienceWorld's simulator did not start: {error}", hint=INSTALL) from error
    finally:
        module.launch_gateway = before
    env._obj_tree_tempdir.cleanup()  # for a question that is never asked; Python would warn of it at its end
    env.close = lambda: None  # else its finalizer ends it again, or in a fork of this process
    return env


@final
class Simulator:
    """One Java program; ``usable`` is False once it broke or was interrupted."""

    def __init__(self) -> None:
        with _undisturbed():
            self._env = start()
            self._chance = getattr(getattr(self._env._gateway.jvm.scala.util, "Random$"), "MODULE$")
        self.usable = True

    def alive(self) -> bool:
        """Whether it can be asked."""
        return self.usable and self._env._gateway.java_process.poll() is None

    def seed(self, *parts: object) -> None:
        """Draw its chance from here on by an address."""
        number = stream_of("scienceworld", *parts)
        # An address is unsigned, Java's long is signed.
        self._asked(lambda: self._chance.setSeed(number - 2**63))

    def load(self, task: str, variation: int, simplify: str, gold: bool = False) -> None:
        """Make a variation; all that load it find it alike.

        Raises:
            SimulatorBroken: it is gone.
            ValueError: a simplification that it does not know.
        """
        self.seed("load", task, variation)
        self._asked(lambda: self._env.load(task, variation, simplify, gold))
        # The reset draws, too, and is to find the same chance in every episode.
        self.seed("reset", task, variation)
        self._asked(self._env.server.reset)

    def tell(self, action: str) -> str:
        """Act, and what it says."""
        return str(self._asked(lambda: self._env.server.step(action)))

    def state(self) -> State:
        """How far it is, and what is seen at no cost."""
        return self._asked(self._state)

    def _state(self) -> State:
        server = self._env.server
        score = round(100 * float(server.getScore()))
        around, held = str(server.freeActionLook()), str(server.freeActionInventory())
        return State(score, bool(server.getCompleted()), around, held)

    def words(self) -> tuple[str, list[str]]:
        """The task and the kinds of actions."""
        env = self._env
        said = self._asked(lambda: (str(env.get_task_description()), list(env.get_possible_actions())))
        return said[0], sorted(map(str, said[1]))

    def gold(self) -> tuple[str, ...]:
        """Its own way to complete what was loaded with ``gold``."""
        return tuple(str(one) for one in self._asked(self._env.get_gold_action_sequence))

    def variations(self) -> tuple[list[int], list[int], list[int]]:
        """The numbers of the training, ``dev`` and ``test`` variations of the loaded task."""
        env = self._env
        lists = (env.get_variations_train, env.get_variations_dev, env.get_variations_test)
        train, dev, test = self._asked(lambda: [sorted(int(n) for n in one()) for one in lists])
        return train, dev, test

    def _asked(self, question: Callable[[], T]) -> T:
        try:
            with _undisturbed():
                return question()
        except ValueError:
            raise
        except BaseException as error:
            self.usable = False  # what it was asked is done in part, or its answer unread
            stop = _stopped(error)
            how = "" if stop is not None else self._how(error)
            # Else every Java object that is forgotten asks to be, and py4j logs that nobody listens.
            self._env._gateway._gateway_client.is_connected = False
            if stop is not None:
                raise stop from None
            raise SimulatorBroken(f"ScienceWorld's simulator broke: {how}") from error

    def _how(self, error: BaseException) -> str:
        """What went wrong, without Java's own traceback."""
        try:
            return f"it ended, with status {self._env._gateway.java_process.wait(timeout=_MOMENT)}"
        except subprocess.TimeoutExpired:
            cause = str(getattr(error, "java_exception", None) or error).strip()
            return cause.partition("\n")[0] or type(error).__name__

    def end(self) -> None:
        """End it and wait for its process, so that nothing is left open."""
        self.usable = False
        process = self._env._gateway.java_process
        with contextlib.suppress(Exception), _quiet():  # one that is gone cannot be told
            type(self._env).close(self._env)
        with contextlib.suppress(OSError):
            process.stdin.close()
        try:
            process.wait(timeout=_PATIENCE)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


@contextlib.contextmanager
def _quiet() -> Iterator[None]:
    """Within, py4j does not log the tracebacks of what it raises; it logs some of them as nobody's."""
    loggers = (logging.getLogger("py4j.java_gateway"), logging.getLogger())
    before = [one.disabled for one in loggers]
    for one in loggers:
        one.disabled = True
    try:
        yield
    finally:
        for one, was in zip(loggers, before, strict=True):
            one.disabled = was


@contextlib.contextmanager
def _undisturbed() -> Iterator[None]:
    """Within, a first Ctrl-C waits until the answer is read, and py4j is quiet."""
    with Interrupt() as stop, _quiet():
        yield
    if stop.asked:
        signal.raise_signal(signal.SIGINT)


def _stopped(error: BaseException | None) -> BaseException | None:
    """The interruption behind an error: py4j fails at some while it tidies up."""
    while error is not None and isinstance(error, Exception):
        error = error.__context__
    return error


@final
@dataclass
class Seats:
    """The simulators of this process and the episodes that hold them, the longest unused first."""

    idle: list[Simulator] = field(default_factory=list)
    held: list[tuple[weakref.ref[Holder], Simulator]] = field(default_factory=list)
    process: int = field(default_factory=os.getpid)

    def take(self, episode: Holder) -> Simulator:
        """A simulator for an episode."""
        simulator = self.borrow()
        self.held.append((weakref.ref(episode), simulator))
        return simulator

    def borrow(self) -> Simulator:
        """A simulator that no episode holds: a free one, a new one, or the longest unused episode's."""
        self._collect()
        if self.idle:
            return self.idle.pop()
        if len(self.held) < SEATS:
            return Simulator()
        owner, simulator = self.held.pop(0)
        if (displaced := owner()) is not None:
            displaced.lose_seat()
        return simulator

    @contextlib.contextmanager
    def asked(self) -> Iterator[Simulator]:
        """A simulator for questions, free again afterwards.

        Raises:
            CannotDo: it broke.
        """
        simulator = self.borrow()
        try:
            yield simulator
        except SimulatorBroken as error:
            raise CannotDo(str(error), where="scienceworld", hint="run the same command again") from error
        finally:
            self._free(simulator)

    def used(self, episode: Holder) -> None:
        """Note that an episode has just used its simulator."""
        # A stable sort by yes or no: the used one goes to the end, and the others keep their order.
        self.held.sort(key=lambda seat: seat[0]() is episode)

    def give(self, episode: Holder) -> None:
        """Take a simulator back from an episode that is closed, or whose simulator broke."""
        back = [simulator for owner, simulator in self.held if owner() is episode]
        self.held = [seat for seat in self.held if seat[0]() is not episode]
        for simulator in back:
            self._free(simulator)

    def close(self) -> None:
        """End all simulators; a fork of the process leaves them to it."""
        simulators = [*self.idle, *(one for _, one in self.held)]
        self.idle, self.held = [], []
        for simulator in simulators if self.process == os.getpid() else ():
            simulator.end()

    def _free(self, simulator: Simulator) -> None:
        if simulator.alive():
            self.idle.append(simulator)
        else:
            simulator.end()

    def _collect(self) -> None:
        """Free the simulators of episodes that nobody holds any more, and end those that are gone."""
        if self.process != os.getpid():
            self.idle, self.held, self.process = [], [], os.getpid()
        freed = [*self.idle, *(simulator for owner, simulator in self.held if owner() is None)]
        self.idle, self.held = [], [seat for seat in self.held if seat[0]() is not None]
        for simulator in freed:
            self._free(simulator)


POOL = Seats()
atexit.register(POOL.close)
