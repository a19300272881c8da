"""``minigrid:ENV-ID?setting=value``: MiniGrid and BabyAI environments in words.

Actions are ``left right forward pickup drop toggle done`` (some environments have only the first three). The
prompt is the mission; an observation tells every cell in view (see ``minigrid_view.py``). What is no action,
and an action that changes nothing, is answered ``nothing happens ; ...`` and takes a turn, as all do.

The reward at the end is 1 where the mission was accomplished, else 0; with ``reward=own`` it is the
environment's, which is less the longer it took and in one family -1. ``turns`` limits an episode (default:
the environment's own limit); every other option is a setting of the environment.

Tasks are layouts: a reset seed whose layout and mission no earlier task has, in the split that the layout
decides. An environment with few layouts runs out of tasks. The chance of turn t (moving obstacles) is a pure
function of the episode's seed and t. A snapshot is the environment's whole state as JSON.
"""

from __future__ import annotations

import contextlib
import io
import json
import warnings
from collections import OrderedDict
from collections.abc import Iterator
from dataclasses import asdict, dataclass, replace
from importlib.metadata import version
from typing import Any, Literal, final

import numpy as np

from refork.errors import BadInput, CannotDo, Mismatch, MissingExtra
from refork.sampling.noise import stream_of
from refork.types import Json
from refork.worlds.base import Observation, Split, Task
from refork.worlds.dice import Dice, digest, split_of
from refork.worlds.game import clean, need
from refork.worlds.spec import Spec
from refork_worlds.minigrid_state import load_state, save_state, state_digest
from refork_worlds.minigrid_view import tell_view

#: Draws in a row without a new layout after which an environment counts as exhausted.
_PATIENCE = 200
#: Objects that a BabyAI instruction can send an agent to, at most: two pairs of actions, each on two objects.
_ERRANDS = 8
_BAD_SNAPSHOT = (ValueError, TypeError, KeyError, IndexError, AttributeError)


def _library() -> Any:
    try:
        import gymnasium
        import minigrid  # noqa: F401  (importing it registers its environments)
    except ImportError:
        raise MissingExtra("minigrid", "minigrid") from None
    return gymnasium


@final
class MiniGridEpisode:
    """One live environment."""

    def __init__(
        self, world: MiniGridWorld, task: Task, seed: int, env: Any, observation: Observation
    ) -> None:
        self.task = task
        self.env = env
        self._world = world
        self._seed = seed
        self._turn = 0
        self._first = self._seen = observation

    @property
    def first(self) -> Observation:
        """What reset showed."""
        return self._first

    @property
    def done(self) -> bool:
        """Whether the episode is over."""
        return self._seen.done

    def step(self, action: str) -> Observation:
        """Act and see; after the end the last answer is given again."""
        if self.done:
            return replace(self._seen, info={})
        self._turn += 1
        said, before = clean(action), self._seen.state_key
        known = said in self._world.actions
        own, over = self._move(said) if known else self._pass()
        text, key = look(self.env)
        if not known or (key == before and not over):
            text = f"nothing happens ; {text}"
        done = over or self._turn >= self._limit
        info: Json = {} if known else {"invalid": True}
        reward = (own if self._world.reward == "own" else float(own > 0)) if done else None
        self._seen = Observation(text, key, done, reward, info | ({"own_reward": own} if done else {}))
        return self._seen

    def snapshot(self) -> bytes | None:
        """The whole state as JSON; None where an environment of a third party cannot be saved."""
        try:
            state = save_state(self.env)
        except CannotDo:
            return None
        record = {
            "task": self.task.id,
            "seed": self._seed,
            "turn": self._turn,
            "first": asdict(self._first),
            "seen": asdict(self._seen),
            "state": state,
        }
        return json.dumps(record, sort_keys=True, separators=(",", ":")).encode()

    def load(self, snapshot: bytes) -> None:
        """Go to the state of a snapshot; raises BadInput where it is not one of this task."""
        try:
            record = json.loads(snapshot)
            if record["task"] != self.task.id:
                raise ValueError(f"it is of task {record['task']!r}")
            self._seed, self._turn = int(record["seed"]), int(record["turn"])
            self._first, self._seen = (Observation(**record[name]) for name in ("first", "seen"))
            load_state(self.env, record["state"])
        except _BAD_SNAPSHOT as error:
            raise BadInput(f"not a snapshot of {self._world.name}: {error}", where=self.task.id) from error

    def reseed(self, seed: int) -> None:
        """Draw the environment's chance anew from here on."""
        self._seed = seed

    def close(self) -> None:
        """Close the environment."""
        self.env.close()

    @property
    def _limit(self) -> int:
        return min(self._world.max_turns, int(self.env.max_steps))

    def _move(self, said: str) -> tuple[float, bool]:
        """Let the environment act; its reward, and whether it ended."""
        bits = np.random.Philox(key=stream_of("minigrid", self._seed, self._turn))
        self.env.np_random = np.random.Generator(bits)
        _, reward, ended, _, _ = self.env.step(self.env.actions[said])
        return float(reward), bool(ended)

    def _pass(self) -> tuple[float, bool]:
        """A turn that the environment does not hear of, but counts."""
        self.env.step_count += 1
        return 0.0, False


def look(env: Any) -> tuple[str, str]:
    """What the agent sees, in words, and the key of the state; where that cannot be told, of the text."""
    seen = env.gen_obs()
    text = tell_view(seen["image"], int(seen["direction"]), env.carrying)
    try:
        return text, state_digest(env)
    except CannotDo:
        return text, digest("minigrid", str(env.spec), env.mission, text)


@final
@dataclass(frozen=True)
class MiniGridWorld:
    """One environment under one configuration."""

    env: str
    settings: Json
    actions: tuple[str, ...]
    max_turns: int
    deterministic: bool
    reward: Literal["success", "own"] = "success"
    query: str = ""

    @property
    def name(self) -> str:
        """The specification that opens this world."""
        return f"minigrid:{self.env}" + (f"?{self.query}" if self.query else "")

    @property
    def version(self) -> str:
        """This adapter's version and the library's."""
        return f"1+minigrid-{version('minigrid')}"

    def tasks(self, split: Split, count: int, seed: int = 0) -> list[Task]:
        """``count`` different layouts; the layout alone decides the split.

        Raises:
            BadInput: the environment does not have that many different layouts.
        """
        dice, found = Dice("minigrid", self.env, seed), dict[str, Task]()
        env, vain = make_env(self.env, self.settings), 0
        while len(found) < count:
            number = dice.below(2**31)
            mark = begin(env, number).state_key or ""
            vain += 1
            if mark not in found and split_of(mark) == split:
                found[mark], vain = self._task(split, env.mission, number, mark), 0
            if vain > _PATIENCE:
                raise BadInput(
                    f"found only {len(found)} different {split} layouts, not {count}",
                    where=self.name,
                    hint="ask for fewer tasks, the other split, or an environment with random layouts",
                )
        env.close()
        return list(found.values())

    def start(self, task: Task, seed: int) -> MiniGridEpisode:
        """Begin an episode; ``seed`` decides the environment's chance after the reset.

        Raises:
            BadInput: the task is of another environment.
            Mismatch: this version of the library, or these settings, lay it out otherwise.
        """
        need(task.data, ("env", "reset_seed", "layout"), self.name)
        if task.data["env"] != self.env:
            raise BadInput(f"this task is of {task.data['env']}", where=self.name)
        env = make_env(self.env, self.settings)
        seen = begin(env, int(task.data["reset_seed"]))
        if seen.state_key != task.data["layout"]:
            raise Mismatch(
                "the reset seed now gives another layout than the task's",
                where=f"task {task.id}",
                hint="use the version of minigrid and the settings that the task was made with",
            )
        _remember(self, task, seen.text)
        return MiniGridEpisode(self, task, seed, env, seen)

    def restore(self, task: Task, snapshot: bytes) -> MiniGridEpisode:
        """An episode in the state of a snapshot; raises BadInput where it is not one of this task."""
        need(task.data, ("env", "reset_seed", "layout"), self.name)
        env = make_env(self.env, self.settings)
        episode = MiniGridEpisode(self, task, 0, env, Observation(""))
        episode.load(snapshot)
        _remember(self, task, episode.first.text)
        return episode

    def _task(self, split: Split, mission: str, number: int, mark: str) -> Task:
        return Task(
            id=f"minigrid:{self.env}/{mark[:16]}",
            world=self.name,
            split=split,
            prompt=f"{mission} ; actions {' '.join(self.actions)}",
            data={"env": self.env, "reset_seed": number, "layout": mark},
        )


#: Tasks that this process has started, by the text that a policy reads first.
_STARTED: OrderedDict[str, list[tuple[MiniGridWorld, Task]]] = OrderedDict()
_REMEMBERED = 4096


def _remember(world: MiniGridWorld, task: Task, first: str) -> None:
    known = _STARTED.setdefault(f"{task.prompt}\n{first}", [])
    if (world, task) not in known:
        known.append((world, task))
    if len(_STARTED) > _REMEMBERED:
        _STARTED.popitem(last=False)


def started(opening: str) -> list[tuple[MiniGridWorld, Task]]:
    """Tasks that this process has started whose prompt and first observation read so."""
    return list(_STARTED.get(opening, ()))


def begin(env: Any, seed: int) -> Observation:
    """Reset an environment and see; BabyAI prints the missions that it rejects, which is swallowed."""
    with contextlib.redirect_stdout(io.StringIO()):
        env.reset(seed=seed)
    return Observation(*look(env))


@contextlib.contextmanager
def _refusals(env: str) -> Iterator[None]:
    """What the library raises at an id, a setting or a missing package, in our words."""
    library = _library()
    try:
        yield
    except library.error.DependencyNotInstalled as error:
        raise CannotDo(f"{env} needs another package: {error}") from error
    except (library.error.Error, TypeError, ValueError, KeyError, AssertionError) as error:
        raise BadInput(
            f"minigrid cannot make {env!r}: {error}", hint="gymnasium.pprint_registry()"
        ) from error


def make_env(env: str, settings: Json) -> Any:
    """A MiniGrid environment without wrappers.

    Raises:
        BadInput: there is none of this id, or it refuses the settings.
        CannotDo: it needs another package.
        MissingExtra: minigrid is not installed.
    """
    library = _library()
    if not env.startswith(("MiniGrid-", "BabyAI-")) and env not in library.registry:
        raise BadInput(f"there is no environment {env!r}", hint="for example minigrid:BabyAI-GoToLocal-v0")
    with _refusals(env), warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        made = library.make(env, disable_env_checker=True, **settings).unwrapped
    from minigrid.minigrid_env import MiniGridEnv

    if not isinstance(made, MiniGridEnv):
        raise BadInput(f"{env} is no MiniGrid environment", hint=f"gymnasium:{env}")
    return made


def _most_turns(env: Any) -> int:
    """The environment's limit; where a BabyAI mission decides it, the largest that one can give."""
    if getattr(env, "fixed_max_steps", True):
        return int(env.max_steps)
    return _ERRANDS * int(env.room_size) ** 2 * int(env.num_rows) * int(env.num_cols)


def _certain(env: Any) -> bool:
    """Whether nothing is left to chance after the reset; what others wrote is not known."""
    kinds = {kind.__name__ for kind in type(env).__mro__}
    return type(env).__module__.startswith("minigrid.") and "DynamicObstaclesEnv" not in kinds


def open_minigrid(spec: Spec) -> MiniGridWorld:
    """``minigrid:ENV-ID``: any MiniGrid or BabyAI world in words (its settings as options; turns, reward).

    Raises:
        BadInput: an unknown environment or setting.
        CannotDo: the environment needs another package.
        MissingExtra: minigrid is not installed.
    """
    options = dict(spec.options)
    turns, reward = options.pop("turns", None), options.pop("reward", "success")
    if turns is not None and (not isinstance(turns, int) or isinstance(turns, bool) or turns < 1):
        raise BadInput(f"turns is {turns!r}; it must be at least 1", where=spec.name)
    if reward not in ("success", "own"):
        raise BadInput(f"reward cannot be {reward!r}", where=spec.name, hint="reward=success or reward=own")
    for name, instead in {"render_mode": "nothing is drawn", "max_steps": "use turns"}.items():
        if name in options:
            raise BadInput(f"{name} is not an option: {instead}", where=spec.name)
    env = make_env(spec.argument, options)
    with _refusals(spec.argument):
        begin(env, 0)
    names = tuple(action.name for action in env.actions)[: int(env.action_space.n)]
    limit = turns or _most_turns(env)
    env.close()
    return MiniGridWorld(
        spec.argument, options, names, limit, _certain(env), reward, spec.query,
    )  # fmt: skip
