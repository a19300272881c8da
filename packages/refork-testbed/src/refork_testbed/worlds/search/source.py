"""What is searched: an invented world drawn by number. A folder of texts is in ``folder``."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Protocol, final

from refork.errors import BadInput
from refork.types import Json
from refork.worlds.base import Split
from refork.worlds.dice import Dice, digest, split_of
from refork.worlds.game import need
from refork_testbed.worlds.search.engine import Index
from refork_testbed.worlds.search.fiction import fiction
from refork_testbed.worlds.search.questions import KINDS, Question, draw_question, make_question
from refork_testbed.worlds.search.words import COLUMNS, vocabulary

#: World numbers are below this.
_NUMBERS = 2**31


class Source(Protocol):
    """Where pages and questions come from; a question is data with ``question``, ``answer``, ``path``."""

    @property
    def argument(self) -> str:
        """As it stands in the world's name, after the colon."""
        ...

    @property
    def version(self) -> str:
        """Changes whenever a page or a question could differ."""
        ...

    @property
    def words(self) -> tuple[str, ...] | None:
        """Every word of its pages and questions; None where that is not known beforehand."""
        ...

    def draw(self, split: Split, seed: int, number: int) -> Json | None:
        """The data of the ``number``-th question of a seed; None where that is of the other split."""
        ...

    def index(self, data: Json) -> Index:
        """The index that a question is asked of; raises BadInput where it is no question of this source."""
        ...

    def known(self, data: Json) -> str:
        """What a simulator is told of the pages as a whole."""
        ...


@final
@dataclass(frozen=True)
class Fictions:
    """Invented worlds; each is asked ``each`` questions of these kinds, and is in one split with all of them.

    Without ``lists`` a page says its row and nothing of the things that name it.
    """

    kinds: tuple[str, ...] = tuple(KINDS)
    each: int = 4
    lists: bool = True

    argument = ""
    version = "1"

    def __post_init__(self) -> None:
        unknown = sorted(set(self.kinds) - set(KINDS))
        if unknown or not self.kinds:
            what = f"there are no questions of kind {unknown[0]!r}" if unknown else "there is no kind"
            raise BadInput(what, where="search", hint="kinds: " + ", ".join(KINDS))
        told = sorted(kind for kind in self.kinds if KINDS[kind].listed)
        if told and not self.lists:
            raise BadInput(f"without lists no page answers questions of kind {told[0]!r}", where="search")
        if self.each < 1:
            raise BadInput(f"a world is asked at least one question, not {self.each}", where="search")

    @property
    def words(self) -> tuple[str, ...]:
        """Of pages and questions."""
        asked = {word for kind in KINDS.values() for word in kind.words.split() if "{" not in word}
        return tuple(sorted({*vocabulary(), *asked}))

    def draw(self, split: Split, seed: int, number: int) -> Json | None:
        """A question of the world that this number leads to."""
        world = Dice("search world", seed, number // self.each).below(_NUMBERS)
        if split_of(digest("fiction", world)) != split:
            return None
        dice = Dice("search question", world, seed, number % self.each)
        found = draw_question(fiction(world), self.kinds, dice)
        return _data(world, found) | ({} if self.lists else {"lists": False})

    def index(self, data: Json) -> Index:
        """The index of the question's world."""
        need(data, ("world", "kind", "subject", "value", "answer", "path", "question"), "search")
        return _index(_checked(data), data.get("lists", True))

    def known(self, data: Json) -> str:
        """Schema and size."""
        world = fiction(data["world"])
        lines = []
        for table, columns in COLUMNS.items():
            count = world.db.execute(f"SELECT COUNT(*) FROM {table}").fetchone()[0]
            lines.append(f"table {table} : {' , '.join(columns)} ; {count} rows")
        return "\n".join([*lines, "every row has a page of its name ; all pages say what the rows say"])


def _data(world: int, question: Question) -> Json:
    """A question as plain data.

    ``needs`` are the names that lead to the answer and stand neither in the question nor in the answer.
    """
    hidden = [name for name in question.path[1:] if name not in question.answer]
    return {
        "world": world,
        "kind": question.kind,
        "subject": question.subject,
        "value": question.value,
        "question": question.words,
        "answer": list(question.answer),
        "path": list(question.path),
        "needs": hidden if len(question.path) == 2 else [],
    }


def _checked(data: Json) -> int:
    """The number of the world, if the question is indeed one of it."""
    number, kind = data["world"], KINDS.get(data["kind"])
    whole = isinstance(number, int) and not isinstance(number, bool) and 0 <= number < _NUMBERS
    if kind is None or not whole:
        raise BadInput("the task's question is of no known world or kind", where="search")
    made = make_question(fiction(number), kind, data["subject"], data["value"])
    if made is None or list(made.answer) != list(data["answer"]):
        raise BadInput(
            "the task's answer is not what its world says",
            where=f"search world {number}",
            hint="use a task of this version of Refork",
        )
    return int(number)


@lru_cache(maxsize=128)
def _index(number: int, lists: bool) -> Index:
    world = fiction(number)
    return Index({title: world.page(title, lists) for title in world.titles()}, world.name)


def text_of(title: str, page: Sequence[str]) -> str:
    """A page as it is shown: its title, then its sentences, a line each."""
    return "\n".join([title, *page])
