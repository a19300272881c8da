"""Questions about an invented world, made backwards: a query is drawn and run, its words come after.

Source: arXiv 2606.24597 for gold answers by SQL and questions made backwards from the query.
"""

from __future__ import annotations

from dataclasses import dataclass

from refork.worlds.dice import Dice
from refork_testbed.worlds.search.fiction import Fiction

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

    @property
    def listed(self) -> bool:
        """Whether the answer, or the way to it, stands in a page's list."""
        return self.name in _LISTED


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


_LISTED = frozenset({"products", "companies", "people", "founders_products"})
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
