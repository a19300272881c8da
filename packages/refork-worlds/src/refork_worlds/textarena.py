"""``textarena:GAME?setting=value``: TextArena's games for one, or for two against a scripted opponent.

GAME is an id of the package: ``FifteenPuzzle-v0``, ``Sudoku-v0-easy``, ``ConnectFour-v0``. An action is the
whole turn, most games look for brackets in it (``[up]``); an observation is what the game says since, in its
own words. A wrong move is answered as the game does: it says why, and a second one in a row ends the game,
mostly with -1.

In a game for two the other player takes a legal move: ``opponent=random`` (default) any, ``first`` the first
of those that the game or our table names. ``seat=1`` lets it begin. The reward is the game's: 1 for won or
solved, -1 for lost, often a share between; 0 where the turns ran out. ``turns`` limits an episode (default:
twice the game's own limit, for wrong moves do not count there, else 100); every other option is a setting of
the game.

Tasks are openings, hidden parts included, and the opening decides the split; a game that always opens alike
has tasks that differ in name only. The chance of turn t, the opponent's choices included, is a pure function
of the episode's seed and t. There is no snapshot: an episode is forked by replaying its actions and checking
each answer.

Nothing is downloaded: games with a dictionary need NLTK's word lists on this machine and say so. Games that
ask a model on the network to judge or answer are refused. Source: arXiv 2504.11442, and the package
``textarena``.
"""

from __future__ import annotations

import contextlib
import copy
import io
import json
import random
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from importlib.metadata import version
from itertools import product
from typing import Any, Final, Literal, final

import numpy as np

from refork.errors import BadInput, CannotDo, Mismatch, MissingExtra
from refork.sampling.noise import stream_of
from refork.types import Json
from refork.worlds.base import Observation, Split, Task
from refork.worlds.dice import Dice, digest, split_of
from refork.worlds.game import need
from refork.worlds.spec import Spec

_TURNS = 100
#: Draws in a row without a new opening after which a game counts as exhausted.
_PATIENCE = 200
_MODELS = ("Crosswords", "Debate", "GuessWho", "ScenarioPlanning", "TwentyQuestions")
_OWN = ("turns", "opponent", "seat")


def _library() -> Any:
    try:
        import textarena
    except ImportError:
        raise MissingExtra("textarena", "textarena") from None
    return textarena


@contextlib.contextmanager
def addressed(*parts: object) -> Iterator[None]:
    """Within, the process-wide generators that games draw from start at an address; after, as before."""
    before, arrays = random.getstate(), np.random.get_state()
    seed = stream_of("textarena", *parts)
    random.seed(seed)
    np.random.seed(seed % 2**32)
    try:
        with contextlib.redirect_stdout(io.StringIO()):
            yield
    finally:
        random.setstate(before)
        np.random.set_state(arrays)


@final
class TextArenaEpisode:
    """One live game."""

    def __init__(self, world: TextArenaWorld, task: Task, seed: int) -> None:
        self.task = task
        self._world = world
        self._seed = seed
        self._turn = 0
        self._said: list[str] = []
        self.game = world.make()
        begin(self.game, world.players, int(task.data["reset_seed"]))
        if opening_of(self.game) != task.data["opening"]:
            raise Mismatch(
                "the reset seed now opens another game than the task's",
                where=f"task {task.id}",
                hint="use the version of textarena and the settings that the task was made with",
            )
        with addressed("first move", task.data["reset_seed"]):  # all episodes of a task begin alike
            self._rival()
        self._first = self._seen = Observation(self._heard(), self._key())

    @property
    def first(self) -> Observation:
        """What the game says before the first move."""
        return self._first

    def step(self, action: str) -> Observation:
        """Move and hear what the game says; after the end the last answer is given again."""
        if self._seen.done:
            return replace(self._seen, info={})
        self._turn += 1
        self._said.append(action)
        trouble = ""
        with addressed(self._seed, self._turn):
            try:
                over, _ = self.game.step(action)
                over = over or self._rival()
            except Exception as error:  # games fail in many ways at what they cannot read
                over, trouble = False, f"nothing happens ; the game could not read this: {error!r}"
        text, rewards = self._heard() or trouble, self.game.state.rewards
        done = bool(over) or self._turn >= self._world.max_turns
        reward = float((rewards or {}).get(self._world.seat, 0.0)) if done else None
        why = (self.game.state.game_info[self._world.seat].get("reason") or "") if over else ""
        if why and why not in text:
            text = f"{text}\n{why}".strip()
        self._seen = Observation(text, self._key(), done, reward)
        return self._seen

    def snapshot(self) -> None:
        """None: the recorded actions are replayed and every answer is checked."""

    def reseed(self, seed: int) -> None:
        """Draw the game's chance and the opponent's choices anew from here on."""
        self._seed = seed

    def close(self) -> None:
        """Nothing is held."""

    def _rival(self) -> bool:
        """Let the other player move until it is our turn; whether that ended the game."""
        state = self.game.state
        while not state.done and state.current_player_id != self._world.seat:
            moves = legal_moves(self.game, self._world.game)
            if self._world.opponent == "random":
                random.shuffle(moves)
            # Where it takes none, a wrong move: the game then ends as its rules have it.
            move = next((m for m in moves if _allowed(self.game, m)), "[none]")
            self.game.step(move)
        return bool(state.done)

    def _heard(self) -> str:
        """What the game told us since we last listened, our own moves left out."""
        mine, names = self._world.seat, self.game.state.role_mapping
        told = self.game.state.observations[mine]
        self.game.state.observations[mine] = []
        lines = [
            text if who == -1 else f"[{names.get(who, f'Player {who}')}] {text}"
            for who, text, kind in told
            if not (kind.name == "PLAYER_ACTION" and (who == mine or text in self._said[-1:]))
        ]
        return "\n".join(line.strip("\n") for line in lines)

    def _key(self) -> str:
        """A digest of the way here: what a game hides cannot be compared in general, so ways do not merge."""
        return digest("textarena", self.task.id, self._seed if self._turn else 0, self._said)


def _allowed(game: Any, move: str) -> bool:
    """Whether a copy of the game takes a move of its present player."""
    trial = copy.deepcopy(game)
    # A trial may draw, and the true move after it is to meet the same chance.
    player, luck = trial.state.current_player_id, random.getstate()
    try:
        trial.step(move)
    except Exception:  # a game may fail at what it cannot read: that is no move
        return False
    finally:
        random.setstate(luck)
    wrong = trial.state.game_info[player].get("invalid_move")
    return not wrong and not getattr(trial.state, "error_count", 0)


@final
@dataclass(frozen=True)
class TextArenaWorld:
    """One game under one configuration."""

    game: str
    settings: Json
    players: int
    max_turns: int
    fixed: bool
    opponent: Literal["random", "first"] = "random"
    seat: int = 0
    query: str = ""

    #: Games draw during play, and nothing of a game says that it does not.
    deterministic = False

    @property
    def name(self) -> str:
        """The specification that opens this world."""
        return f"textarena:{self.game}" + (f"?{self.query}" if self.query else "")

    @property
    def version(self) -> str:
        """This adapter's version and the library's."""
        return f"1+textarena-{version('textarena')}"

    def make(self) -> Any:
        """A new game."""
        return make_game(self.game, self.settings)

    def tasks(self, split: Split, count: int, seed: int = 0) -> list[Task]:
        """``count`` different openings; the opening alone decides the split.

        Raises:
            BadInput: the game does not have that many different openings.
        """
        dice, found, vain = Dice("textarena", self.game, seed), dict[str, Task](), 0
        while len(found) < count:
            number = dice.below(2**31)
            game = self.make()  # a new one: some games keep a deck or a dealer when they are reset
            begin(game, self.players, number)
            opening = opening_of(game)
            mark = digest("textarena", number) if self.fixed else opening
            vain += 1
            if mark not in found and split_of(mark) == split:
                found[mark], vain = self._task(split, mark, number, opening), 0
            if vain > _PATIENCE:
                raise BadInput(
                    f"found only {len(found)} different {split} openings, not {count}",
                    where=self.name,
                    hint="ask for fewer tasks or the other split",
                )
        return list(found.values())

    def start(self, task: Task, seed: int) -> TextArenaEpisode:
        """Begin a game; ``seed`` decides its chance after the opening, and the opponent.

        Raises:
            BadInput: the task is of another game.
            Mismatch: this version of the library, or these settings, open it otherwise.
        """
        need(task.data, ("game", "reset_seed", "opening"), self.name)
        if task.data["game"] != self.game:
            raise BadInput(f"this task is of {task.data['game']}", where=self.name)
        return TextArenaEpisode(self, task, seed)

    def restore(self, task: Task, snapshot: bytes) -> TextArenaEpisode:
        """Not possible; raises CannotDo."""
        raise CannotDo(f"{self.name} cannot be restored", hint="replay the recorded actions instead")

    def _task(self, split: Split, mark: str, number: int, opening: str) -> Task:
        return Task(
            id=f"textarena:{self.game}/{mark[:16]}",
            world=self.name,
            split=split,
            prompt=f"{self.game} ; you are player {self.seat}" if self.players > 1 else self.game,
            data={"game": self.game, "reset_seed": number, "opening": opening},
        )


def begin(game: Any, players: int, seed: int) -> None:
    """Reset a game, whose own seeding of the process-wide generators ends with it."""
    with addressed("reset", seed):
        game.reset(num_players=players, seed=seed)


def opening_of(game: Any) -> str:
    """A digest of what a game was reset to: what each player is told, and its state as far as it is data."""
    told = [[text for _, text, _ in heard] for _, heard in sorted(game.state.observations.items())]
    return digest(told, _data(game.state.game_state))


def _data(value: Any) -> Any:
    if value is None or isinstance(value, (bool, int, float, str)):
        return value
    if isinstance(value, (list, tuple)):
        return [_data(item) for item in value]
    if isinstance(value, (set, frozenset)):
        return sorted(json.dumps(_data(item), sort_keys=True) for item in value)
    if isinstance(value, dict):
        return {str(key): _data(item) for key, item in value.items()}
    if isinstance(value, (np.ndarray, np.generic)):
        return value.tolist()
    return type(value).__name__


@contextlib.contextmanager
def _offline(game: str) -> Iterator[None]:
    """Within, a game that wants to download word lists gets those of this machine, or a clear refusal."""
    import nltk

    def here(wanted: Any = None, *_: Any, **__: Any) -> bool:
        for name in [wanted] if isinstance(wanted, str) else list(wanted or ()):
            folders = ("corpora", "taggers", "tokenizers")
            if not any(
                _has_data(nltk, f"{folder}/{name}{end}") for folder in folders for end in ("", ".zip")
            ):
                raise CannotDo(
                    f"{game} needs NLTK's {name!r} on this machine",
                    hint=f"python -m nltk.downloader {name}",
                )
        return True

    before, nltk.download = nltk.download, here
    try:
        yield
    finally:
        nltk.download = before


def _has_data(nltk: Any, path: str) -> bool:
    try:
        nltk.data.find(path)
    except LookupError:
        return False
    return True


def make_game(name: str, settings: Json) -> Any:
    """A game without wrappers.

    Raises:
        BadInput: there is no game of this id, or it refuses the settings.
        CannotDo: it needs a model, word lists or another Python.
        MissingExtra: textarena is not installed.
    """
    library = _library()
    base, _, kind = name.partition("-v0")
    if name not in library.envs.registration.ENV_REGISTRY or kind.endswith(("-train", "-raw")):
        raise BadInput(f"textarena has no game {name!r}", hint="for example textarena:FifteenPuzzle-v0")
    if base in _MODELS:
        raise CannotDo(f"{name} asks a model on the network", hint="choose a game that does not")
    try:
        with _offline(name), contextlib.redirect_stdout(io.StringIO()):
            game = library.make(name, **settings)
    except (TypeError, ValueError, KeyError, AssertionError) as error:
        raise BadInput(f"{name} refuses its settings: {error}", where="textarena") from error
    except (ImportError, SyntaxError, OSError) as error:
        raise CannotDo(f"this installation cannot load {name}: {error}") from error
    while isinstance(game, library.Wrapper):
        game = game.env
    return game


def _players(make: Callable[[], Any], name: str) -> int:
    """Whether a game is for one or for two; raises CannotDo where for more."""
    why: Exception | None = None
    for players in (1, 2):
        game = make()
        try:
            begin(game, players, 1)
        except Exception as error:  # games say in many ways that they want another number of players
            why = error
            continue
        if players == 2 or type(game.state).__name__ == "SinglePlayerState":
            return players
    raise CannotDo(f"{name} cannot be played by one or two: {why}", where="textarena")


def open_textarena(spec: Spec) -> TextArenaWorld:
    """``textarena:GAME``: games for one, or two against a scripted player (turns, opponent, seat).

    Raises:
        BadInput: an unknown game, setting or option.
        CannotDo: it needs a model, word lists, more players, or an opponent that we do not have.
        MissingExtra: textarena is not installed.
    """
    known = {key: value for key, value in spec.options.items() if key in _OWN}
    own = Spec(spec.name, spec.argument, known, spec.query).take({"turns": int, "opponent": str, "seat": int})
    settings = {key: value for key, value in spec.options.items() if key not in _OWN}
    turns, opponent, seat = own.get("turns"), own.get("opponent", "random"), own.get("seat", 0)
    if turns is not None and turns < 1:
        raise BadInput(f"turns is {turns!r}; it must be at least 1", where=spec.name)
    if opponent not in ("random", "first"):
        raise BadInput(f"opponent cannot be {opponent!r}", where=spec.name, hint="random or first")
    players = _players(lambda: make_game(spec.argument, settings), spec.argument)
    if seat not in range(players) or (players == 1 and "opponent" in own):
        raise BadInput(f"{spec.argument} is for {players}", where=spec.name, hint="no seat, no opponent")
    openings = set()
    for number in (1, 2, 3):
        game = make_game(spec.argument, settings)
        begin(game, players, number)
        openings.add(opening_of(game))
    if players == 2 and not legal_moves(game, spec.argument):
        raise CannotDo(f"there is no scripted opponent for {spec.argument}", where=spec.name)
    most = getattr(game.state, "max_turns", None)
    return TextArenaWorld(
        spec.argument, settings, players, turns or (2 * int(most) if most else _TURNS), len(openings) == 1,
        opponent, seat, spec.query,
    )  # fmt: skip


# What the other player of a TextArena game may say: moves that the game names, or all it knows.


_SQUARES: Final = [f"{column}{row}" for column in "abcdefgh" for row in range(1, 9)]


def _steps(start: str, end: str) -> bool:
    """Whether a move is one row on or back, straight or aslant."""
    return abs(int(start[1]) - int(end[1])) == 1 and abs(ord(start[0]) - ord(end[0])) <= 1


_BRACKETS: Final = re.compile(r"\[[^\[\]\n]{1,24}\]")

#: Every move that a game's rules know, for games that do not list those that are open.
_MOVES: Final[dict[str, list[str]]] = {
    "TicTacToe": [f"[{cell}]" for cell in range(9)],
    "ConnectFour": [f"[col {column}]" for column in range(7)],
    "Nim": [f"[{pile} {count}]" for pile, count in product(range(8), range(1, 10))],
    "IteratedMatchingPennies": ["[heads]", "[tails]"],
    "IteratedPrisonersDilemma": ["[cooperate]", "[defect]"],
    "IteratedRockPaperScissors": ["[rock]", "[paper]", "[scissors]"],
    "IteratedTwoThirdsAverage": [f"[{number}]" for number in range(101)],
    "PigDice": ["[roll]", "[hold]"],
    "KuhnPoker": ["[check]", "[bet]", "[call]", "[fold]"],
    "Breakthrough": [f"[{a}{b}]" for a, b in product(_SQUARES, _SQUARES) if _steps(a, b)],
}
#: Games that tell each player the moves that are open, in brackets, with every board.
_LISTED: Final = ("Othello", "GameOfPureStrategy", "SimpleTak", "Crusade")


def legal_moves(game: Any, name: str) -> list[str]:
    """Moves that may be legal now, in a fixed order; empty where we know of none."""
    base = name.partition("-v0")[0]
    if base in _MOVES:
        return list(_MOVES[base])
    if base not in _LISTED:
        return []
    told = game.state.observations[game.state.current_player_id]
    for _, text, _kind in reversed(told):
        moves = list(dict.fromkeys(_BRACKETS.findall(text)))
        if moves:
            return moves
    return []
