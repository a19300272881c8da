"""Invented worlds: 300 to 500 rows of consistent facts in SQLite, and the pages that say them.

Source: arXiv 2606.24597 for relational tables of invented facts from which questions, snippets and pages are
made; the schema and its sentences are ours.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Any, TypeAlias, final

from refork.errors import BadInput
from refork.worlds.dice import Dice

# The words of invented worlds: names, sentences and their slots. All are plain lower-case words.


_BEGIN = (
    "bel", "dor", "fen", "gar", "hal", "jun", "kes", "lor",
    "mir", "nov", "pel", "ras", "sol", "tar", "vel", "zan",
)  # fmt: skip


def _stems(ends: str) -> tuple[str, ...]:
    return tuple(begin + end for begin in _BEGIN for end in ends.split())


TOWNS = _stems("amora iwick oholm astad ufell egard oburg imind astrand ewald")
GIVEN = _stems("ra eno olin adis imo aka eve otu isha ari")
SURNAMES = _stems("akwin oberg asen idal ustrom avik erud ohaug ilund amoen")
FIRMS = _stems("avel itor enix opex udyn agon ilux ezim orok afab")
WARES = _stems("abo iki ezu olo upi amu ita evo one agi")
FORMS = ("works", "mills", "yards", "glass", "press")
GOODS = ("lamp", "clock", "kettle", "chair", "stove", "radio", "loom", "pump")
REGIONS = ("lowlands", "highlands", "islands", "marshes", "forests", "plains", "coast", "valley")
TRADES = ("potter", "weaver", "baker", "smith", "printer", "mason", "painter", "tailor")

YEARS = (1700, 1999)
PRICES = (5, 400)

#: Table -> columns. The name is the primary key and the title of the page.
COLUMNS: dict[str, tuple[str, ...]] = {
    "town": ("name", "region", "bridge", "library"),
    "person": ("name", "town", "trade", "born", "prize"),
    "company": ("name", "town", "founder", "founded"),
    "product": ("name", "company", "launched", "price"),
}
NUMBERS = frozenset({"bridge", "library", "born", "prize", "founded", "launched", "price"})
#: Column -> the table whose name it holds.
LINKS = {"town": "town", "founder": "person", "company": "company"}

#: What a page says of its row; every column stands in one sentence.
SENTENCES: dict[str, tuple[str, ...]] = {
    "town": (
        "{name} lies in the {region} .",
        "{name} built a bridge in {bridge} .",
        "{name} opened a library in {library} .",
    ),
    "person": (
        "{name} is a {trade} from {town} .",
        "{name} was born in {born} .",
        "{name} won a prize in {prize} .",
    ),
    "company": (
        "{name} has its seat in {town} .",
        "{name} was founded by {founder} in {founded} .",
    ),
    "product": (
        "{name} is made by {company} .",
        "{name} was launched in {launched} .",
        "{name} costs {price} crowns .",
    ),
}
#: What a page lists of the rows that name its own: (sentence, table, column).
LISTS: dict[str, tuple[tuple[str, str, str], ...]] = {
    "town": (
        ("companies of {name} : {items} .", "company", "town"),
        ("people of {name} : {items} .", "person", "town"),
    ),
    "person": (("companies founded by {name} : {items} .", "company", "founder"),),
    "company": (("products of {name} : {items} .", "product", "company"),),
    "product": (),
}
BETWEEN = " ; "

#: Words of a query that say nothing of what is searched.
_STOP = """
a an and are as at by did do does for from has have how in is it its of on or s that the their there these
this to was were what when where which who whom whose will with
"""
STOP = frozenset(_STOP.split())


Row: TypeAlias = tuple[str | int, ...]
Tables: TypeAlias = dict[str, list[Row]]

#: Shares of the four tables.
_SHARES = {"town": 0.10, "person": 0.36, "company": 0.20}
_ROWS = (300, 500)

#: Queries that must find nothing: what would contradict itself.
CONTRADICTIONS = {
    "a prize before the age of 20": "SELECT name FROM person WHERE prize < born + 20",
    "a founder under 20": (
        "SELECT c.name FROM company c JOIN person p ON p.name = c.founder WHERE c.founded < p.born + 20"
    ),
    "a product before its maker": (
        "SELECT x.name FROM product x JOIN company c ON c.name = x.company WHERE x.launched < c.founded"
    ),
    "one name of two things": (
        "SELECT name FROM (SELECT name FROM town UNION ALL SELECT name FROM person UNION ALL "
        "SELECT name FROM company UNION ALL SELECT name FROM product) GROUP BY name HAVING COUNT(*) > 1"
    ),
}


def draw_tables(number: int) -> Tables:
    """The rows of world ``number``; the same number gives the same rows everywhere."""
    dice = Dice("fiction", number)

    def between(low: int, high: int) -> int:
        return low + dice.below(high - low + 1)

    total = between(*_ROWS)
    size = {table: round(total * share) for table, share in _SHARES.items()}
    towns: list[Row] = [
        (name, dice.choice(REGIONS), between(*YEARS), between(*YEARS))
        for name in dice.sample(TOWNS, size["town"])
    ]
    people: list[Row] = []
    for surname in dice.sample(SURNAMES, min(size["person"], len(SURNAMES))):
        born = between(YEARS[0], 1900)
        name = f"{dice.choice(GIVEN)} {surname}"
        home = dice.choice(towns)[0]
        people.append((name, home, dice.choice(TRADES), born, born + between(20, 60)))
    firms: list[Row] = []
    for stem in dice.sample(FIRMS, size["company"]):
        founder = dice.choice(people)
        founded = int(founder[3]) + between(20, 60)
        firms.append((f"{stem} {dice.choice(FORMS)}", dice.choice(towns)[0], founder[0], founded))
    goods: list[Row] = []
    for stem in dice.sample(WARES, min(total - len(towns) - len(people) - len(firms), len(WARES))):
        firm = dice.choice(firms)
        launched = between(int(firm[3]), min(int(firm[3]) + 60, YEARS[1]))
        goods.append((f"{stem} {dice.choice(GOODS)}", firm[0], launched, between(*PRICES)))
    return {"town": towns, "person": people, "company": firms, "product": goods}


@final
class Fiction:
    """The facts of one invented world, in an SQLite database of its own (``db``).

    ``name`` says which: the number it was drawn from, or the file it was read from.

    Raises:
        BadInput: a table lacks columns, or the facts contradict each other.
    """

    def __init__(self, tables: Mapping[str, Sequence[Row]], name: str) -> None:
        self.name = name
        # Episodes of one world may step in several threads; SQLite serialises them.
        self.db = sqlite3.connect(":memory:", check_same_thread=False)
        for table, columns in COLUMNS.items():
            typed = ", ".join(f"{c} {'INTEGER' if c in NUMBERS else 'TEXT'} NOT NULL" for c in columns)
            self.db.execute(f"CREATE TABLE {table} ({typed}, PRIMARY KEY (name))")
            marks = ", ".join("?" * len(columns))
            try:
                self.db.executemany(f"INSERT INTO {table} VALUES ({marks})", tables[table])
            except (sqlite3.Error, KeyError) as error:
                raise BadInput(f"the table {table} is not one of a world: {error}", where=name) from error
        self.db.commit()
        for what, query in (CONTRADICTIONS | _dangling()).items():
            if found := self.db.execute(query).fetchone():
                raise BadInput(f"the facts contradict each other: {what} ({found[0]})", where=name)
        self._table = {
            str(row[0]): table for table in COLUMNS for row in self.db.execute(f"SELECT name FROM {table}")
        }

    def titles(self) -> list[str]:
        """The names of all things, sorted."""
        return sorted(self._table)

    def table_of(self, title: str) -> str | None:
        """The table that a thing stands in; None where there is no such thing."""
        return self._table.get(title)

    def row(self, title: str) -> dict[str, str | int]:
        """The row of a thing; raises BadInput where there is none."""
        table = self._table.get(title)
        if table is None:
            raise BadInput(f"there is no {title!r}", where=f"world {self.name}")
        values = self.db.execute(f"SELECT * FROM {table} WHERE name = ?", (title,)).fetchone()
        return dict(zip(COLUMNS[table], values, strict=True))

    def column(self, query: str, parameters: Mapping[str, Any] | Sequence[Any] = ()) -> tuple[str, ...]:
        """The different values of a query's first column as text, sorted: rows have no order."""
        return tuple(sorted({str(row[0]) for row in self.db.execute(query, parameters)}))

    def page(self, title: str, lists: bool = True) -> tuple[str, ...]:
        """The sentences of a thing's page: its row and, with ``lists``, the things that name it.

        Raises BadInput where there is no such thing.
        """
        row = self.row(title)
        table = self._table[title]
        said = [text.format(**row) for text in SENTENCES[table]]
        for text, other, column in LISTS[table] if lists else ():
            items = self.column(f"SELECT name FROM {other} WHERE {column} = ?", (title,))
            if items:
                said.append(text.format(name=title, items=BETWEEN.join(items)))
        return tuple(said)


def _dangling() -> dict[str, str]:
    """Queries for links that lead nowhere."""
    return {
        f"{table}.{column} names nothing": (
            f"SELECT {column} FROM {table} WHERE {column} NOT IN (SELECT name FROM {LINKS[column]})"
        )
        for table, columns in COLUMNS.items()
        for column in columns
        if column in LINKS
    }


@lru_cache(maxsize=128)
def fiction(number: int) -> Fiction:
    """World ``number``, kept while it is in use."""
    return Fiction(draw_tables(number), str(number))
