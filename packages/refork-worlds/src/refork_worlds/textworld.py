"""``textworld:CHALLENGE?setting=value``: text games that TextWorld makes on the spot.

CHALLENGE is one that ``tw-make`` knows (``tw-simple``, ``tw-treasure_hunter``, ``tw-coin_collector``,
``tw-cooking``) with that command's settings as options (``level=5``), or ``custom`` with ``world_size``,
``nb_objects`` and ``quest_length``. An action is a command, an observation what the game answers in its own
words. Commands that are for the interpreter and not for the game (save, restart, ``tw-...``) are answered
``nothing happens``. ``info["commands"]`` of an observation holds what can be done, examining included.

Tasks are games: the prompt is the game's objective and the kinds of commands, the game itself decides the
split. Making and compiling one takes seconds; a compiled game lies in a folder of this process. The reward
at the end is the share of the game's points, 1 for a game that was won; ``turns`` (default 50) limits an
episode. Nothing is left to chance. There is no snapshot: forks replay the recorded commands and check each
answer. ``world.gold(task)`` is the game's walkthrough, ``episode.plan()`` the rest of one from where it is.

Source: arXiv 1806.11532, and the package ``textworld``.
"""

from __future__ import annotations

import argparse
import os
import re
import tempfile
import warnings
from collections import OrderedDict
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import cache
from importlib.metadata import version
from pathlib import Path
from typing import Any, Final, NoReturn, final

from refork.errors import BadInput, CannotDo, Mismatch, MissingExtra
from refork.types import Json
from refork.worlds.base import Observation, Split, Task
from refork.worlds.dice import Dice, digest, split_of
from refork.worlds.game import need
from refork.worlds.spec import Spec

_TURNS = 50
#: Draws in a row without a new game after which a challenge counts as exhausted.
_PATIENCE = 40
#: Games that are kept, so that one is made once for all its episodes.
_KEPT = 256
#: The Z-machine reads lines of this many characters.
_LINE = 120
#: What talks to the interpreter: it would write files, ask back, or take turns back.
_INTERPRETER: Final = frozenset(
    (
        "save",
        "restore",
        "restart",
        "undo",
        "quit",
        "q",
        "script",
        "transcript",
        "recording",
        "replay",
        "verify",
    )
)
_STATUS = re.compile(r"\n*>[ \t]*(-= .* =-\s*-?\d+/\d+)?\s*$")
_AGAIN = "Would you like to RESTART"


def _library() -> Any:
    try:
        import textworld
        import textworld.challenges
        import textworld.generator
    except ImportError:
        raise MissingExtra("textworld", "textworld") from None
    return textworld


@contextmanager
def _quietly() -> Iterator[None]:
    """Within, the interpreter does not warn that it cannot keep the score of a game that it does not know."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message=".*not fully supported", category=UserWarning)
        yield


class _Settings(argparse.ArgumentParser):
    """A challenge's own settings; what it refuses is the user's to mend."""

    def error(self, message: str) -> NoReturn:
        raise BadInput(message, where=self.prog, hint=self.format_usage().strip())


def _custom(parser: argparse.ArgumentParser) -> None:
    """The settings of ``tw-make custom`` that shape a game; the command's own defaults."""
    parser.add_argument("--world-size", type=int, default=5)
    parser.add_argument("--nb-objects", type=int, default=10)
    parser.add_argument("--quest-length", type=int, default=5)


def read_settings(challenge: str, options: Json) -> Json:
    """The settings of a challenge, those not given at its own defaults.

    Raises:
        BadInput: there is no such challenge, or it has no such setting or value.
        MissingExtra: textworld is not installed.
    """
    known = _library().challenges.CHALLENGES
    if challenge != "custom" and challenge not in known:
        raise BadInput(
            f"textworld has no challenge {challenge!r}", hint=f"custom, {', '.join(sorted(known))}"
        )
    parser = _Settings(prog=f"textworld:{challenge}", add_help=False, allow_abbrev=False)
    (_custom if challenge == "custom" else known[challenge][2])(parser)
    said = []
    for name, value in options.items():
        flag = "--" + name.replace("_", "-")
        said += [] if value is False else [flag] if value is True else [f"{flag}={value}"]
    return vars(parser.parse_args(said))


def make_game(challenge: str, settings: Json, seed: int) -> Any:
    """The game of a seed.

    Raises:
        BadInput: the challenge refuses the settings.
        CannotDo: there is no game of this seed.
    """
    library = _library()
    options = library.GameOptions()
    options.seeds = seed
    try:
        with _quietly():
            if challenge != "custom":
                return library.challenges.CHALLENGES[challenge][1](settings, options)
            options.nb_rooms, options.nb_objects = settings["world_size"], settings["nb_objects"]
            options.quest_length = settings["quest_length"]
            return library.generator.make_game(options)
    except library.generator.QuestGenerationError as error:
        raise CannotDo(f"no game of {challenge} with seed {seed}: {error}") from error
    except (ValueError, TypeError, KeyError, AssertionError) as error:
        raise BadInput(f"textworld cannot make {challenge!r}: {error!r}", where="textworld") from error


def digest_of(game: Any) -> str:
    """What makes a game another one: its rooms and things with all that is true at first, and its goal."""
    facts = sorted(map(str, game.world.facts))
    return digest("textworld", facts, game.objective, list(game.walkthrough), game.max_score)


_GAMES: OrderedDict[tuple[str, str, int], Any] = OrderedDict()


def _game(challenge: str, settings: Json, seed: int) -> Any:
    """A game, made once."""
    key = (challenge, digest(settings), seed)
    if key not in _GAMES:
        _GAMES[key] = make_game(challenge, settings, seed)
        if len(_GAMES) > _KEPT:
            _GAMES.popitem(last=False)
    return _GAMES[key]


@cache
def _folder(process: int) -> tempfile.TemporaryDirectory[str]:
    """Where this process keeps compiled games; a fork of it has a folder of its own."""
    return tempfile.TemporaryDirectory(prefix=f"refork-textworld-{process}-")


def _compiled(game: Any) -> Path:
    """The compiled game, made once.

    Raises:
        CannotDo: Inform 7, which the package brings, does not run here or refuses the game.
    """
    library = _library()
    place = Path(_folder(os.getpid()).name) / f"{digest_of(game)[:24]}.z8"
    if not place.exists():
        options = library.GameOptions()
        options.path, options.force_recompile = str(place), True
        try:
            library.generator.compile_game(game, options)
        except (library.generator.inform7.CouldNotCompileGameError, OSError) as error:
            raise CannotDo(f"TextWorld could not compile a game: {error}") from error
    return place


def tidy(answer: str) -> str:
    """What a game answers, without its status line, its closing question and empty lines."""
    plain = _STATUS.sub("", answer.partition(_AGAIN)[0])
    return "\n".join(line.strip() for line in plain.split("\n") if line.strip() not in ("", ">"))


@final
class TextWorldEpisode:
    """One live game."""

    def __init__(self, world: TextWorldWorld, task: Task, game: Any) -> None:
        library = _library()
        self.task = task
        self._world = world
        self._turn = 0
        told = library.EnvInfos(
            facts=True, admissible_commands=True, policy_commands=True, score=True, max_score=True
        )
        with _quietly():
            self._env = library.start(str(_compiled(game)), told)
        self._state = self._env.reset()
        self._most = int(game.max_score)
        opening = self._state.feedback
        # The banner and the objective stand before it: the objective is the prompt.
        self._first = self._seen = self._tell(tidy(opening[max(0, opening.find("\n-= ")) :]))

    @property
    def first(self) -> Observation:
        """The room where the game begins."""
        return self._first

    def step(self, action: str) -> Observation:
        """Say a command and hear the answer; after the end the last answer is given again."""
        if self._seen.done:
            return replace(self._seen, info={})
        self._turn += 1
        said = " ".join(action.split())[:_LINE]
        words = re.findall(r"[\w-]+", said.lower())
        if not words or _INTERPRETER.intersection(words) or any(w.startswith("tw-") for w in words):
            text = "nothing happens"
        else:
            self._state, _, _ = self._env.step(said)
            text = tidy(self._state.feedback)
        self._seen = self._tell(text)
        return self._seen

    def plan(self) -> tuple[str, ...]:
        """The rest of the game's own solution from here; empty where it is over or cannot be won."""
        return () if self._seen.done else tuple(self._state.policy_commands or ())

    def snapshot(self) -> None:
        """None: the recorded commands are replayed and every answer is checked."""

    def reseed(self, seed: int) -> None:
        """Nothing is left to chance."""

    def close(self) -> None:
        """End the interpreter."""
        self._env.close()

    def _tell(self, text: str) -> Observation:
        state = self._state
        over = bool(state.get("won") or state.get("lost"))
        done = over or self._turn >= self._world.max_turns
        score = int(state.get("score") or 0)
        key = digest("textworld", self.task.id, sorted(map(str, state["_facts"])), score, over)
        earned = 1.0 if state.get("won") else score / self._most if self._most else 0.0
        info: Json = {"commands": list(state.admissible_commands), "score": score}
        return Observation(text, key, done, earned if done else None, info)


@final
@dataclass(frozen=True)
class TextWorldWorld:
    """One challenge under one configuration."""

    challenge: str
    settings: Json
    max_turns: int = _TURNS
    query: str = ""

    deterministic = True

    @property
    def name(self) -> str:
        """The specification that opens this world."""
        return f"textworld:{self.challenge}" + (f"?{self.query}" if self.query else "")

    @property
    def version(self) -> str:
        """This adapter's version and the library's."""
        return f"1+textworld-{version('textworld')}"

    def tasks(self, split: Split, count: int, seed: int = 0) -> list[Task]:
        """``count`` different games; the game alone decides the split.

        Raises:
            BadInput: the challenge does not make that many different games.
        """
        dice, found, vain = Dice("textworld", self.challenge, seed), dict[str, Task](), 0
        while len(found) < count:
            number = dice.below(2**31)
            vain += 1
            if vain > _PATIENCE:
                raise BadInput(
                    f"found only {len(found)} different {split} games, not {count}",
                    where=self.name,
                    hint="ask for fewer tasks, the other split, or larger games",
                )
            try:
                game = _game(self.challenge, self.settings, number)
            except CannotDo:
                continue
            mark = digest_of(game)
            if mark not in found and split_of(mark) == split:
                found[mark], vain = self._task(split, mark, number, game), 0
        return list(found.values())

    def gold(self, task: Task) -> tuple[str, ...]:
        """The game's walkthrough."""
        return tuple(self._game(task).walkthrough)

    def start(self, task: Task, seed: int) -> TextWorldEpisode:
        """Begin a game; ``seed`` decides nothing, for nothing is left to chance.

        Raises:
            BadInput: the task is of another challenge.
            CannotDo: the game cannot be compiled here.
            Mismatch: this version of the library, or these settings, make another game.
        """
        return TextWorldEpisode(self, task, self._game(task))

    def restore(self, task: Task, snapshot: bytes) -> TextWorldEpisode:
        """Not possible; raises CannotDo."""
        raise CannotDo(f"{self.name} cannot be restored", hint="replay the recorded actions instead")

    def _game(self, task: Task) -> Any:
        need(task.data, ("challenge", "seed", "game"), self.name)
        if task.data["challenge"] != self.challenge:
            raise BadInput(f"this task is of {task.data['challenge']}", where=self.name)
        game = _game(self.challenge, self.settings, int(task.data["seed"]))
        if digest_of(game) != task.data["game"]:
            raise Mismatch(
                "the seed now makes another game than the task's",
                where=f"task {task.id}",
                hint="use the version of textworld and the settings that the task was made with",
            )
        return game

    def _task(self, split: Split, mark: str, number: int, game: Any) -> Task:
        kinds = " ; ".join(dict.fromkeys(re.sub(r"\{[^}]*\}", "...", one) for one in game.command_templates))
        return Task(
            id=f"textworld:{self.challenge}/{mark[:16]}",
            world=self.name,
            split=split,
            prompt=f"{game.objective}\nCommands: {kinds}".strip(),
            data={"challenge": self.challenge, "seed": number, "game": mark},
        )


def open_textworld(spec: Spec) -> TextWorldWorld:
    """``textworld:CHALLENGE``: games that TextWorld makes on the spot (turns; its own settings as options).

    Raises:
        BadInput: an unknown challenge, setting or value.
        MissingExtra: textworld is not installed.
    """
    options = dict(spec.options)
    turns = options.pop("turns", _TURNS)
    if not isinstance(turns, int) or isinstance(turns, bool) or turns < 1:
        raise BadInput(f"turns is {turns!r}; it must be at least 1", where=spec.name)
    return TextWorldWorld(spec.argument, read_settings(spec.argument, options), turns, spec.query)
