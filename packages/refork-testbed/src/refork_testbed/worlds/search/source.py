"""What is searched: invented worlds, and the questions about them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import final

from refork.errors import BadInput
from refork.types import Json
from refork.worlds.base import Split
from refork.worlds.dice import Dice, digest, split_of
from refork.worlds.game import need
from refork_testbed.worlds.search.engine import Index
from refork_testbed.worlds.search.fiction import COLUMNS, Fiction, fiction

# Questions about an invented world, made backwards: a query is drawn and run, its words come after.
#
# Source: arXiv 2606.24597 for gold answers by SQL and questions made backwards from the query.


#: More items than this make a question too long.
_MOST = 6


@dataclass(frozen=True, slots=True)
class Kind:
    """A kind of question about one thing of ``table`` (and, where ``other`` is set, a value of a column).

    ``sql`` gives the answer; ``path`` the pages that say it besides the thing's own, in the order in which
    they are found. Both take the thing as ``:x`` and the value as ``:y``.
    """

    name: str
    table: str
    words: str
    sql: str
    path: str | None = None
    other: str | None = None


@dataclass(frozen=True, slots=True)
class Question:
    """A question with its one set of right items, and the pages on the way to it, the subject's first."""

    kind: str
    subject: str
    value: str | None
    words: str
    answer: tuple[str, ...]
    path: tuple[str, ...]


def _fact(table: str, column: str, words: str) -> Kind:
    return Kind(column, table, words, f"SELECT {column} FROM {table} WHERE name = :x")


#: Kinds whose answer, or the way to it, stands in a page's list.
_LISTED = ("companies", "founders_products", "people", "products")
_FOUNDER = "SELECT founder FROM company WHERE name = :x"
_MAKER = "SELECT company FROM product WHERE name = :x"
_SMITHS = "SELECT name FROM person WHERE town = :x AND trade = :y"
_FIRMS = "SELECT name FROM company WHERE founder = :x"

KINDS: dict[str, Kind] = {
    kind.name: kind
    for kind in (
        _fact("town", "region", "in which region does {x} lie ?"),
        _fact("town", "bridge", "in which year did {x} build a bridge ?"),
        _fact("town", "library", "in which year did {x} open a library ?"),
        _fact("person", "trade", "what is the trade of {x} ?"),
        _fact("person", "born", "in which year was {x} born ?"),
        _fact("person", "prize", "in which year did {x} win a prize ?"),
        _fact("company", "founder", "who founded {x} ?"),
        _fact("company", "founded", "in which year was {x} founded ?"),
        _fact("product", "launched", "in which year was {x} launched ?"),
        _fact("product", "price", "how many crowns does {x} cost ?"),
        Kind(
            "seat", "company", "in which town has {x} its seat ?",
            "SELECT town FROM company WHERE name = :x",
        ),
        Kind(
            "founder_born", "company", "in which year was the founder of {x} born ?",
            f"SELECT born FROM person WHERE name = ({_FOUNDER})", _FOUNDER,
        ),
        Kind(
            "founder_trade", "company", "what is the trade of the founder of {x} ?",
            f"SELECT trade FROM person WHERE name = ({_FOUNDER})", _FOUNDER,
        ),
        Kind(
            "maker_seat", "product", "in which town has the maker of {x} its seat ?",
            f"SELECT town FROM company WHERE name = ({_MAKER})", _MAKER,
        ),
        Kind(
            "maker_founder", "product", "who founded the maker of {x} ?",
            f"SELECT founder FROM company WHERE name = ({_MAKER})", _MAKER,
        ),
        Kind(
            "products", "company", "which products does {x} make ?",
            "SELECT name FROM product WHERE company = :x",
        ),
        Kind(
            "companies", "town", "which companies have their seat in {x} ?",
            "SELECT name FROM company WHERE town = :x",
        ),
        Kind(
            "people", "town", "which people of {x} have the trade {y} ?", _SMITHS,
            "SELECT name FROM person WHERE town = :x", "SELECT trade FROM person WHERE town = :x",
        ),
        Kind(
            "founders_products", "person", "which products come from companies that {x} founded ?",
            f"SELECT name FROM product WHERE company IN ({_FIRMS})", _FIRMS,
        ),
    )
}  # fmt: skip


def make_question(world: Fiction, kind: Kind, subject: str, value: str | None = None) -> Question | None:
    """The question of a kind about one thing; None where its answer is empty, too long, or told in it."""
    parameters = {"x": subject, "y": value}
    answer = world.column(kind.sql, parameters)
    words = kind.words.format(x=subject, y=value)
    if not 1 <= len(answer) <= _MOST or any(f" {item} " in f" {words} " for item in answer):
        return None
    steps = world.column(kind.path, parameters) if kind.path else ()
    return Question(kind.name, subject, value, words, answer, (subject, *steps))


def draw_question(world: Fiction, kinds: tuple[str, ...], dice: Dice) -> Question:
    """A question of a random kind about a random thing; every world has some of every kind."""
    while True:
        kind = KINDS[dice.choice(kinds)]
        subject = dice.choice(world.column(f"SELECT name FROM {kind.table}"))
        value = None
        if kind.other is not None:
            values = world.column(kind.other, {"x": subject})
            if not values:
                continue
            value = dice.choice(values)
        if (found := make_question(world, kind, subject, value)) is not None:
            return found


#: World numbers are below this.
_NUMBERS = 2**31


@final
@dataclass(frozen=True)
class Fictions:
    """Invented worlds; each is asked ``each`` questions of these kinds, and is in one split with all of them.

    Without ``lists`` a page says its row and nothing of the things that name it.
    """

    kinds: tuple[str, ...] = tuple(KINDS)
    each: int = 4
    lists: bool = True

    def __post_init__(self) -> None:
        unknown = sorted(set(self.kinds) - set(KINDS))
        if unknown or not self.kinds:
            what = f"there are no questions of kind {unknown[0]!r}" if unknown else "there is no kind"
            raise BadInput(what, where="search", hint="kinds: " + ", ".join(KINDS))
        told = [kind for kind in _LISTED if kind in self.kinds]
        if told and not self.lists:
            raise BadInput(f"without lists no page answers questions of kind {told[0]!r}", where="search")
        if self.each < 1:
            raise BadInput(f"a world is asked at least one question, not {self.each}", where="search")

    def draw(self, split: Split, seed: int, number: int) -> Json | None:
        """A question of the world that this number leads to."""
        world = Dice("search world", seed, number // self.each).below(_NUMBERS)
        # All questions of a fiction are of one split: what training learns of it is no help in the other.
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
