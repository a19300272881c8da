"""``gymnasium:ENV-ID?setting=value``: Gymnasium environments whose spaces can be told in words.

Actions are a number (``2``), or a name in the toy-text environments (``right``; FrozenLake, CliffWalking,
Taxi, Blackjack), or free text where the action space is text. Observations are words for the toy-text
environments, else numbers separated by spaces. An action outside the space is answered
``nothing happens ; ...``.

A task is a seed for ``reset``; environments that always start alike have tasks that differ in nothing
else. The chance of turn t is a pure function of the episode's seed and t: before every step the
environment's generator is replaced, so replays, snapshots and paired draws agree. The reward is given
at the end and is the sum of the step rewards (``info["step_reward"]`` has each). Options: ``turns``
(default: the environment's own limit, else 100); all others are settings of the environment.

The toy-text environments are snapshot as plain JSON; others cannot be and are forked by checked replay.
"""

from __future__ import annotations

import json
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from importlib.metadata import version
from typing import Any, final

import numpy as np

from refork.errors import BadInput, CannotDo, MissingExtra
from refork.sampling.noise import stream_of
from refork.types import Json
from refork.worlds.base import Observation, Split, Task
from refork.worlds.dice import Dice, digest, split_of
from refork.worlds.game import clean, need
from refork.worlds.spec import Spec

_TAXI_STANDS = ("red", "green", "yellow", "blue")


@dataclass(frozen=True, slots=True)
class Toy:
    """Names of the actions, words for an observation, and the attributes that hold all changing state."""

    actions: tuple[str, ...]
    describe: Callable[[Any, Any], str]
    state: tuple[str, ...]


def _cell(env: Any, seen: Any) -> str:
    columns = env.ncol if hasattr(env, "ncol") else env.shape[1]
    row, column = divmod(int(seen), int(columns))
    return f"row {row} column {column}"


def _taxi(env: Any, seen: Any) -> str:
    row, column, passenger, goal = (int(n) for n in env.decode(int(seen)))
    where = "in taxi" if passenger == len(_TAXI_STANDS) else f"at {_TAXI_STANDS[passenger]}"
    return f"row {row} column {column} ; passenger {where} ; going to {_TAXI_STANDS[goal]}"


def _blackjack(env: Any, seen: Any) -> str:
    del env
    hand, dealer, ace = (int(n) for n in seen)
    return f"hand {hand} ; dealer {dealer} ; {'usable' if ace else 'no'} ace"


#: By environment name, the version left out.
TOYS = {
    "FrozenLake": Toy(("left", "down", "right", "up"), _cell, ("s", "lastaction")),
    "FrozenLake8x8": Toy(("left", "down", "right", "up"), _cell, ("s", "lastaction")),
    "CliffWalking": Toy(("up", "right", "down", "left"), _cell, ("s", "lastaction")),
    "CliffWalkingSlippery": Toy(("up", "right", "down", "left"), _cell, ("s", "lastaction")),
    "Taxi": Toy(
        ("south", "north", "east", "west", "pickup", "dropoff"),
        _taxi,
        ("s", "lastaction", "fickle_step", "taxi_orientation"),
    ),
    "Blackjack": Toy(("stick", "hit"), _blackjack, ("player", "dealer")),
}


_TURNS = 100


def _library() -> Any:
    try:
        import gymnasium
    except ImportError:
        raise MissingExtra("gymnasium", "worlds") from None
    return gymnasium


@final
class GymnasiumEpisode:
    """One live environment."""

    def __init__(self, world: GymnasiumWorld, task: Task, seed: int) -> None:
        self.task = task
        self._world = world
        self._seed = seed
        self._env = world.make()
        seen, _ = self._env.reset(seed=int(task.data["reset_seed"]))
        self._turn, self._return, self._done = 0, 0.0, False
        self._text = self._first = self._tell(seen)

    @property
    def first(self) -> Observation:
        """What reset showed."""
        return self._observe(self._first, done=False)

    def step(self, action: str) -> Observation:
        """Act and see; after the end the last answer is given again."""
        if self._done:
            return self._observe(self._text, done=True)
        chosen = self._chosen(action)
        self._turn += 1
        info: Json = {}
        if chosen is None:
            info["invalid"] = True
        else:
            # A generator for each turn: a snapshot then needs no state of it, and a new seed holds at once.
            bits = np.random.Philox(key=stream_of("gymnasium", self._seed, self._turn))
            self._env.unwrapped.np_random = np.random.Generator(bits)
            seen, reward, ended, cut, _ = self._env.step(chosen)
            self._text = self._tell(seen)
            self._return += float(reward)
            self._done = bool(ended or cut)
            info["step_reward"] = float(reward)
        self._done = self._done or self._turn >= self._world.max_turns
        return self._observe(self._text, done=self._done, info=info)

    def snapshot(self) -> bytes | None:
        """The state as JSON; None for environments whose whole state is not known."""
        toy = self._world.toy
        if toy is None:
            return None
        inner = self._env.unwrapped
        record = {
            "task": self.task.id,
            "seed": self._seed,
            "turn": self._turn,
            "return": self._return,
            "done": self._done,
            "text": self._text,
            "state": {name: _plain(getattr(inner, name, None)) for name in toy.state},
        }
        return json.dumps(record, sort_keys=True).encode()

    def load(self, snapshot: bytes) -> None:
        """Go to the state of a snapshot; raises BadInput where it is not one of this task."""
        try:
            record = json.loads(snapshot)
            if record["task"] != self.task.id:
                raise ValueError(f"it is of task {record['task']!r}")
            self._seed, self._turn = int(record["seed"]), int(record["turn"])
            self._return, self._done = float(record["return"]), bool(record["done"])
            self._text = str(record["text"])
            state = dict(record["state"])
        except (ValueError, TypeError, KeyError) as error:
            raise BadInput(f"not a snapshot of {self._world.name}: {error}", where=self.task.id) from error
        toy = self._world.toy
        for name in toy.state if toy else ():
            setattr(self._env.unwrapped, name, state.get(name))

    def reseed(self, seed: int) -> None:
        """Draw the environment's chance anew from here on."""
        self._seed = seed

    def close(self) -> None:
        """Close the environment."""
        self._env.close()

    def _chosen(self, action: str) -> Any:
        """The action as the environment takes it; None where it is none."""
        space = self._env.action_space
        if type(space).__name__ == "Text":
            return action if space.contains(action) else None
        said, toy = clean(action), self._world.toy
        if toy is not None and said in toy.actions:
            return toy.actions.index(said)
        # Short ones only: `int` raises where a number has thousands of digits.
        number = int(said) if said.isdecimal() and len(said) < 10 else None
        return number if number is not None and space.contains(number) else None

    def _tell(self, seen: Any) -> str:
        toy = self._world.toy
        return toy.describe(self._env.unwrapped, seen) if toy else tell(self._env.observation_space, seen)

    def _observe(self, text: str, *, done: bool, info: Json | None = None) -> Observation:
        info = info or {}
        return Observation(
            text=f"nothing happens ; {text}" if info.get("invalid") else text,
            state_key=digest(self._world.env, self._world.settings, text),
            done=done,
            reward=self._return if done else None,
            info=info,
        )


@final
@dataclass(frozen=True)
class GymnasiumWorld:
    """One environment under one configuration."""

    env: str
    settings: Json
    max_turns: int
    deterministic: bool
    actions: str
    query: str = ""

    @property
    def name(self) -> str:
        """The specification that opens this world."""
        return f"gymnasium:{self.env}" + (f"?{self.query}" if self.query else "")

    @property
    def version(self) -> str:
        """This adapter's version and the library's."""
        return f"1+gymnasium-{version('gymnasium')}"

    @property
    def toy(self) -> Toy | None:
        """Words for this environment, if it is one of the toy-text ones."""
        return toy_of(self.env)

    def make(self) -> Any:
        """A new environment."""
        return make_env(self.env, self.settings, self.max_turns)

    def tasks(self, split: Split, count: int, seed: int = 0) -> list[Task]:
        """``count`` different reset seeds; the seed alone decides the split."""
        dice, found = Dice("gymnasium", self.env, seed), dict[int, Task]()
        while len(found) < count:
            reset = dice.below(2**31)
            if reset in found or split_of(digest("gymnasium", reset)) != split:
                continue
            found[reset] = Task(
                id=f"gymnasium:{self.env}/{reset}",
                world=self.name,
                split=split,
                prompt=f"{self.env} ; actions {self.actions}",
                data={"env": self.env, "reset_seed": reset},
            )
        return list(found.values())

    def start(self, task: Task, seed: int) -> GymnasiumEpisode:
        """Begin an episode; ``seed`` decides the environment's chance after the reset."""
        need(task.data, ("env", "reset_seed"), self.name)
        if task.data["env"] != self.env:
            raise BadInput(f"this task is of {task.data['env']}", where=self.name)
        return GymnasiumEpisode(self, task, seed)

    def restore(self, task: Task, snapshot: bytes) -> GymnasiumEpisode:
        """An episode in the state of a snapshot; raises CannotDo where this environment has none."""
        if self.toy is None:
            raise CannotDo(f"{self.env} cannot be restored", hint="replay the recorded actions instead")
        episode = self.start(task, 0)
        episode.load(snapshot)
        return episode


def toy_of(env: str) -> Toy | None:
    """The words for an environment id, whatever its version."""
    return TOYS.get(env.rpartition("-v")[0])


def make_env(env: str, settings: Json, turns: int | None) -> Any:
    """A Gymnasium environment; raises BadInput where there is none of this id or it refuses the settings."""
    library = _library()
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", DeprecationWarning)
            return library.make(env, max_episode_steps=turns, disable_env_checker=True, **settings)
    except (library.error.Error, TypeError, ValueError, KeyError, AssertionError) as error:
        raise BadInput(
            f"gymnasium cannot make {env!r}: {error}", hint="gymnasium.pprint_registry()"
        ) from error
    except ImportError as error:
        raise CannotDo(
            f"{env} needs another package: {error}", hint="install what Gymnasium names"
        ) from error


def tell(space: Any, value: Any) -> str:
    """A value of a space in words; raises CannotDo for spaces of real numbers."""
    match type(space).__name__:
        case "Discrete":
            return str(int(value))
        case "Text":
            return str(value)
        case "MultiDiscrete" | "MultiBinary":
            return " ".join(str(int(v)) for v in np.asarray(value).reshape(-1))
        case "Tuple":
            return " ".join(tell(part, v) for part, v in zip(space.spaces, value, strict=True))
        case "Dict":
            return " ; ".join(f"{name} {tell(part, value[name])}" for name, part in space.spaces.items())
    raise CannotDo(
        f"observations in a {type(space).__name__} space cannot be told in words", where="gymnasium"
    )


def _plain(value: Any) -> Any:
    if isinstance(value, (list, tuple)):
        return [_plain(v) for v in value]
    return value.item() if isinstance(value, np.generic) else value


def _fixed(env: Any) -> bool:
    """Whether a table of transitions shows that nothing is left to chance."""
    table = getattr(env, "P", None)
    if not isinstance(table, dict) or getattr(env, "fickle_passenger", False):
        return False
    return all(len(outcomes) == 1 for row in table.values() for outcomes in row.values())


def open_gymnasium(spec: Spec) -> GymnasiumWorld:
    """``gymnasium:ENV-ID``: any Gymnasium environment with discrete or text spaces (its settings as options).

    Raises:
        BadInput: an unknown environment or setting.
        CannotDo: its spaces cannot be told in words.
        MissingExtra: gymnasium is not installed.
    """
    if ":" in spec.argument:
        spec.typed(f"the module of {spec.argument}")
    settings = {key: value for key, value in spec.options.items() if key != "turns"}
    turns = spec.options.get("turns")
    if turns is not None and (not isinstance(turns, int) or isinstance(turns, bool) or turns < 1):
        raise BadInput(f"turns is {turns!r}; it must be at least 1", where=spec.name)
    env = make_env(spec.argument, settings, turns)
    seen, _ = env.reset(seed=0)
    kind, toy = type(env.action_space).__name__, toy_of(spec.argument)
    if kind not in ("Discrete", "Text"):
        raise CannotDo(f"actions in a {kind} space cannot be told in words", where=spec.argument)
    if toy is None:
        tell(env.observation_space, seen)
    low, count = (int(env.action_space.start), int(env.action_space.n)) if kind == "Discrete" else (0, 0)
    numbers = [str(low + n) for n in range(count)]
    limit = turns or (env.spec.max_episode_steps if env.spec else None) or _TURNS
    world = GymnasiumWorld(
        env=spec.argument,
        settings=settings,
        max_turns=int(limit),
        deterministic=_fixed(env.unwrapped),
        actions=" ".join(toy.actions if toy else numbers) if kind == "Discrete" else "text",
        query=spec.query,
    )
    env.close()
    return world
