"""Worlds whose rules are pure functions: one engine for turns, slips, snapshots and splits.

A :class:`Game` is the rules of one task; a :class:`Family` draws tasks and builds their games;
:class:`GameWorld` makes a :class:`~refork.worlds.base.World` of a family. Texts are words
separated by single spaces (punctuation is a word of its own), so ``text.split(" ")`` tokenises them.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Hashable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Generic, Protocol, TypeVar, final

from refork.errors import BadInput
from refork.sampling.noise import NoiseKey, stream_of, uniforms
from refork.types import Json
from refork.worlds.base import Observation, Split, Task
from refork.worlds.dice import Dice, digest, split_of

S = TypeVar("S", bound=Hashable)

#: Words that the engine itself may say.
ENGINE_WORDS = ("nothing", "happens", "time", "is", "up", ";")


class Game(Protocol[S]):
    """The rules of one task over hashable states."""

    @property
    def begin(self) -> S:
        """The state an episode starts in."""
        ...

    def view(self, state: S) -> str:
        """What is seen in a state; the same text whenever the state is the same."""
        ...

    def canonical(self, state: S) -> str:
        """What the state key hashes: states that should merge have the same text here."""
        ...

    def actions(self, state: S) -> tuple[str, ...]:
        """Every admissible action, in a fixed order."""
        ...

    def useful(self, state: S) -> tuple[str, ...]:
        """Admissible actions among which every shortest way to the goal keeps at least one member."""
        ...

    def act(self, state: S, action: str) -> S | None:
        """The state an action leads to; None where it is not admissible."""
        ...

    def grade(self, state: S) -> float | None:
        """The reward where the state ends the episode; None where it goes on."""
        ...

    def save(self, state: S) -> Any:
        """The state as JSON."""
        ...

    def load(self, data: Any) -> S:
        """Inverse of :meth:`save`; raises ValueError, TypeError, KeyError or IndexError on other data."""
        ...


class Family(Protocol[S]):
    """Tasks of one kind and size."""

    @property
    def name(self) -> str:
        """``household:2``, without options."""
        ...

    @property
    def version(self) -> str:
        """Changes whenever an action could be answered or graded differently."""
        ...

    @property
    def horizon(self) -> int:
        """Turns an episode may take."""
        ...

    @property
    def words(self) -> tuple[str, ...]:
        """Every word of prompts, observations and actions, the engine's left out."""
        ...

    def draw(self, dice: Dice) -> Json:
        """The data of a random task, as JSON."""
        ...

    def prompt(self, data: Json) -> str:
        """What the policy is told."""
        ...

    def game(self, data: Json) -> Game[S]:
        """The rules of a task; raises BadInput where the data is not of this family."""
        ...


def clean(action: str) -> str:
    """An action as it is compared: lower case, words separated by single spaces."""
    return " ".join(action.lower().split())


@final
class GameEpisode(Generic[S]):
    """One live run of a game.

    The chance of turn t is a pure function of (seed, task, t): a slip replaces an admissible action
    by one drawn uniformly from all admissible actions. Actions that are not admissible never slip;
    they are answered ``nothing happens ; <what is seen>``, leave the state alone, and use a turn.
    """

    def __init__(
        self, game: Game[S], task: Task, *, horizon: int, slip: float, seed: int, turn: int, state: S
    ) -> None:
        self.game = game
        self.task = task
        self.turn = turn
        self.state = state
        self._horizon = horizon
        self._slip = slip
        self._seed = seed
        self._stream = stream_of("slip", task.id)

    @property
    def first(self) -> Observation:
        """What is seen before any action."""
        # Of the beginning, also where the episode was restored in the middle.
        return self._see(self.game.begin, 0)

    @property
    def done(self) -> bool:
        """Whether the episode is over."""
        return self.game.grade(self.state) is not None or self.turn >= self._horizon

    def step(self, action: str) -> Observation:
        """Act and see; after the end the last answer is given again."""
        if self.done:
            return self._see(self.state, self.turn)
        said = clean(action)
        after = self.game.act(self.state, said)
        info: Json = {}
        if after is None:
            info["invalid"] = True
        elif (slipped := self._slipped()) is not None:
            info["slipped"] = slipped
            after = self.game.act(self.state, slipped)
        # Nonsense uses a turn too: else a policy could stall without end.
        self.turn += 1
        if after is not None:
            self.state = after
        return self._see(self.state, self.turn, info)

    def snapshot(self) -> bytes:
        """The exact state as JSON."""
        record = {
            "task": self.task.id,
            "turn": self.turn,
            "seed": self._seed,
            "state": self.game.save(self.state),
        }
        return json.dumps(record, sort_keys=True).encode()

    def reseed(self, seed: int) -> None:
        """Draw slips anew from here on."""
        self._seed = seed

    def close(self) -> None:
        """Nothing is held."""

    def _slipped(self) -> str | None:
        """The action that chance puts in the place of the chosen one, if it does."""
        if self._slip <= 0:
            return None
        # Addressed by the turn: what is restored from a snapshot slips as the episode that it was taken of.
        hit, which = uniforms([NoiseKey(self._seed, self._stream, 0, self.turn)], 2)[0]
        if hit >= self._slip:
            return None
        options = self.game.actions(self.state)
        return options[min(int(which * len(options)), len(options) - 1)]

    def _see(self, state: S, turn: int, info: Json | None = None) -> Observation:
        info = info or {}
        text = self.game.view(state)
        if info.get("invalid"):
            text = f"nothing happens ; {text}"
        reward = self.game.grade(state)
        if reward is None and turn >= self._horizon:
            text, reward = f"{text} ; time is up", 0.0
        return Observation(
            text=text,
            state_key=digest(self.game.canonical(state)),
            done=reward is not None,
            reward=reward,
            info=info,
        )


@final
@dataclass(frozen=True)
class GameWorld(Generic[S]):
    """The world of a family; ``slip`` is the probability that a turn does something else."""

    family: Family[S]
    slip: float = 0.0
    options: str = ""

    def __post_init__(self) -> None:
        if not 0.0 <= self.slip <= 1.0:
            raise BadInput(f"slip is {self.slip!r}; it must be a probability", where=self.family.name)

    @property
    def name(self) -> str:
        """The specification that opens this world."""
        # A slip that no option names belongs to the name too: it says which world this is.
        options = self.options or (f"slip={self.slip:g}" if self.slip else "")
        return f"{self.family.name}?{options}" if options else self.family.name

    @property
    def version(self) -> str:
        """The version of the rules."""
        return self.family.version

    @property
    def max_turns(self) -> int:
        """Turns after which a run counts as failed."""
        return self.family.horizon

    @property
    def deterministic(self) -> bool:
        """Whether nothing slips."""
        return self.slip == 0.0

    def vocabulary(self) -> tuple[str, ...]:
        """Every word that prompts, observations and admissible actions are made of, sorted."""
        return tuple(sorted({*self.family.words, *ENGINE_WORDS}))

    def tasks(self, split: Split, count: int, seed: int = 0) -> list[Task]:
        """``count`` different seeded tasks; a shorter list is a prefix of a longer one.

        Raises:
            BadInput: the family does not hold that many different tasks.
        """

        def draw(number: int) -> Task | None:
            data = self.family.draw(Dice(self.family.name, seed, number))
            mark = digest(data)
            if split_of(mark) != split:
                return None
            return Task(f"{self.family.name}/{mark[:16]}", self.name, split, self.family.prompt(data), data)

        hint = "ask for fewer tasks or a larger world"
        return different(count, draw, f"{split} tasks of {self.name}", hint=hint)

    def start(self, task: Task, seed: int) -> GameEpisode[S]:
        """Begin an episode; ``seed`` decides the slips."""
        game = self.family.game(task.data)
        return self._episode(game, task, seed=seed, turn=0, state=game.begin)

    def restore(self, task: Task, snapshot: bytes) -> GameEpisode[S]:
        """An episode in the state of a snapshot; raises BadInput where it is not one of this task."""
        game = self.family.game(task.data)
        with reading(self.name, task, snapshot) as record:
            turn, seed = int(record["turn"]), int(record["seed"])
            state = game.load(record["state"])
        return self._episode(game, task, seed=seed, turn=turn, state=state)

    def game(self, task: Task) -> Game[S]:
        """The rules of a task."""
        return self.family.game(task.data)

    def _episode(self, game: Game[S], task: Task, *, seed: int, turn: int, state: S) -> GameEpisode[S]:
        return GameEpisode(
            game, task, horizon=self.max_turns, slip=self.slip, seed=seed, turn=turn, state=state
        )


def need(data: Json, keys: Sequence[str], family: str) -> None:
    """Raise BadInput where task data lacks a key of its family."""
    missing = [key for key in keys if key not in data]
    if missing:
        raise BadInput(f"task data lacks {missing[0]!r}", where=family, hint="use a task of this world")


def different(
    count: int,
    draw: Callable[[int], Task | None],
    what: str,
    *,
    hint: str | None = None,
    patience: int = 2000,
) -> list[Task]:
    """``count`` tasks with different ids from numbered draws; a shorter list is a prefix of a longer one.

    A draw gives None where it is of the other split. ``patience``: draws in a row without a new task after
    which there are no more.

    Raises:
        BadInput: there are not so many.
    """
    found: dict[str, Task] = {}
    number = last = 0
    while len(found) < count:
        # Counted from the last new task: a large family may be asked for any number.
        if number - last > patience:
            raise BadInput(f"found only {len(found)} different {what}, not {count}", hint=hint)
        task = draw(number)
        number += 1
        if task is not None and task.id not in found:
            found[task.id] = task
            last = number
    return list(found.values())


@contextmanager
def reading(world: str, task: Task, snapshot: bytes, *errors: type[Exception]) -> Iterator[Any]:
    """Within, the JSON record of a snapshot of a task: what fails there means that it is none.

    Raises:
        BadInput: it is no snapshot of this world, or one of another task. ``errors``: what else says so.
    """
    where = f"task {task.id}"
    wrong: tuple[type[Exception], ...] = (
        ValueError, TypeError, KeyError, AttributeError, IndexError, *errors,
    )  # fmt: skip
    try:
        record = json.loads(snapshot)
        other = record["task"]
        if other != task.id:
            raise BadInput(f"the snapshot is of task {other!r}", where=where)
        yield record
    except wrong as error:
        raise BadInput(f"not a snapshot of {world}: {error!r}", where=where) from error
