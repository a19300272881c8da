"""Three small databases: their tables, columns and constraints, and the words their rows are made of."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, TypeAlias

from refork.errors import BadInput

Kind: TypeAlias = Literal["text", "number", "choice", "ref"]
Verb: TypeAlias = Literal["list", "get", "search", "create", "update", "delete", "count", "sum"]
Value: TypeAlias = str | int
Row: TypeAlias = dict[str, Value]
Rows: TypeAlias = dict[str, list[Row]]

#: Ids and numbers of columns stay below this.
MOST = 99


@dataclass(frozen=True, slots=True)
class Column:
    """One column. ``text`` columns are unique; ``to`` is the table that a ``ref`` points into."""

    name: str
    kind: Kind
    low: int = 0
    high: int = 9
    choices: tuple[str, ...] = ()
    to: str = ""


@dataclass(frozen=True, slots=True)
class Table:
    """One table; ``id`` is its first column. ``size``: how many rows a task begins with, least and most."""

    name: str
    one: str
    columns: tuple[Column, ...]
    verbs: tuple[Verb, ...]
    size: tuple[int, int]

    def column(self, name: str) -> Column:
        """The column of that name."""
        return next(column for column in self.columns if column.name == name)

    @property
    def key(self) -> Column | None:
        """The text column that names a row, if there is one."""
        return next((column for column in self.columns if column.kind == "text"), None)

    def of(self, *kinds: Kind) -> tuple[Column, ...]:
        """The columns of these kinds."""
        return tuple(column for column in self.columns if column.kind in kinds)


@dataclass(frozen=True, slots=True)
class Database:
    """Tables, those before others that refer to them."""

    name: str
    tables: tuple[Table, ...]

    def table(self, name: str) -> Table:
        """The table of that name."""
        return next(table for table in self.tables if table.name == name)

    def children(self, name: str) -> tuple[tuple[Table, Column], ...]:
        """Tables with a column that refers to this one."""
        return tuple((t, c) for t in self.tables for c in t.of("ref") if c.to == name)


#: Names of things; none is part of another, so that a search for one finds it alone.
THINGS = (
    "anchor", "apple", "arrow", "basket", "bell", "bottle", "branch", "bridge", "brush", "button", "candle",
    "castle", "chair", "circle", "cloud", "comet", "copper", "cotton", "dragon", "feather", "forest",
    "garden", "hammer", "harbor", "island", "jacket", "kettle", "ladder", "lantern", "lemon", "mirror",
    "mountain", "needle", "ocean", "paper", "pepper", "pillow", "planet", "pocket", "river", "rocket",
    "saddle", "shadow", "silver", "spider", "storm", "summer", "table", "temple", "thunder", "tiger",
    "tunnel", "velvet", "violin", "wagon", "walnut", "window", "winter",
)  # fmt: skip
PEOPLE = (
    "ada", "ben", "cleo", "dora", "eric", "finn", "gina", "hugo", "iris", "jack", "kate", "liam", "mona",
    "nora", "omar", "paul", "rosa", "sven", "tina", "vera",
)  # fmt: skip

_LIBRARY = Database(
    "library",
    (
        Table(
            "books",
            "book",
            (Column("title", "text"), Column("copies", "number", 0, 9)),
            ("list", "get", "search", "create", "update", "delete"),
            (3, 5),
        ),
        Table(
            "members",
            "member",
            (Column("name", "text"), Column("level", "choice", choices=("basic", "gold"))),
            ("get", "search", "update"),
            (2, 3),
        ),
        Table(
            "loans",
            "loan",
            (
                Column("book", "ref", to="books"),
                Column("member", "ref", to="members"),
                Column("days", "number", 1, 9),
            ),
            ("list", "get", "create", "update", "delete", "count", "sum"),
            (2, 4),
        ),
    ),
)
_SHOP = Database(
    "shop",
    (
        Table(
            "products",
            "product",
            (Column("name", "text"), Column("price", "number", 1, 20), Column("stock", "number", 0, 9)),
            ("list", "get", "search", "create", "update", "delete"),
            (3, 5),
        ),
        Table(
            "orders",
            "order",
            (
                Column("product", "ref", to="products"),
                Column("amount", "number", 1, 9),
                Column("state", "choice", choices=("open", "paid", "sent")),
            ),
            ("list", "get", "create", "update", "delete", "count", "sum"),
            (2, 4),
        ),
    ),
)
_TICKETS = Database(
    "tickets",
    (
        Table(
            "people",
            "person",
            (Column("name", "text"), Column("team", "choice", choices=("red", "blue", "green"))),
            ("list", "get", "search", "update"),
            (2, 4),
        ),
        Table(
            "tickets",
            "ticket",
            (
                Column("title", "text"),
                Column("person", "ref", to="people"),
                Column("points", "number", 1, 9),
                Column("state", "choice", choices=("open", "closed")),
            ),
            ("list", "get", "search", "create", "update", "delete", "count", "sum"),
            (3, 5),
        ),
    ),
)
DATABASES = {database.name: database for database in (_LIBRARY, _SHOP, _TICKETS)}


def database(name: str) -> Database:
    """The database of that name; raises BadInput where there is none."""
    if name not in DATABASES:
        raise BadInput(f"there is no database {name!r}", where="tools", hint=", ".join(DATABASES))
    return DATABASES[name]
