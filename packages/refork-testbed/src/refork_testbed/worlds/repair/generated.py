"""Generated projects: packages of 8 to 19 modules in one trade's words, which import one another."""

# ruff: noqa: E501  one trade a row

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any, final

from refork.errors import BadInput
from refork.worlds.dice import Dice
from refork_testbed.worlds.repair.package import Check
from refork_testbed.worlds.repair.templates import BLOCKS

# The trades that generated projects belong to: words for what their modules are about.


@final
@dataclass(frozen=True, slots=True)
class Trade:
    """Words of one trade; ``goods`` and ``places`` are what its test data is made of."""

    name: str
    item: str
    items: str
    group: str
    amount: str
    place: str
    person: str
    goods: tuple[str, ...]
    places: tuple[str, ...]

    def spoken(self, text: str) -> str:
        """A template's text in the words of this trade."""
        for mark, word in (
            ("qitems", self.items), ("qitem", self.item), ("qgroup", self.group), ("qamount", self.amount),
            ("qplace", self.place), ("qperson", self.person),
        ):  # fmt: skip
            text = text.replace(mark, word)
        return text


_ROWS = """
harbour   | vessel vessels fleet tonnage dock pilot | barge tug ferry cutter trawler yacht | north south mole basin
bakery    | loaf loaves oven weight counter baker | rye spelt roll bagel tart bun | front cellar market stall
clinic    | patient patients ward dosage practice nurse | saline gauze insulin splint mask syrup | east west annex lab
library   | volume volumes shelf pages desk reader | atlas novel poem guide diary comic | hall attic branch archive
orchard   | tree trees row harvest field picker | apple pear plum quince cherry medlar | slope valley ridge terrace
theatre   | play plays season seats stage actor | opera farce drama ballet revue mime | main studio garden barn
garage    | car cars depot mileage bay mechanic | brake clutch filter hose bulb wiper | pit ramp yard office
winery    | bottle bottles cellar vintage barrel grower | riesling merlot gamay pinot malbec syrah | hill bank cave press
museum    | exhibit exhibits collection visitors gallery curator | vase coin mask bust scroll mosaic | rotunda wing court vault
railway   | wagon wagons train load station guard | tanker hopper coach flatcar caboose sleeper | junction halt depot border
apiary    | hive hives colony honey meadow keeper | acacia clover heather linden thyme sage | forest heath brook hedge
brewery   | keg kegs batch volume tank brewer | pilsner stout porter bock lager amber | kettle cooler loft tap
school    | lesson lessons class marks room teacher | algebra music latin art biology chess | gym aula library court
airport   | flight flights airline delay gate steward | jet glider shuttle charter cargo heli | alpha bravo delta echo
hotel     | booking bookings chain nights room porter | single double suite loft cabin studio | lobby tower court garden
foundry   | casting castings mould heat furnace founder | bell gear valve anchor wheel plate | hall pit shed crane
nursery   | seedling seedlings bed height greenhouse gardener | tulip aster dahlia fern lupin iris | glass frame plot border
postoffice | parcel parcels route postage branch clerk | letter packet card crate tube roll | city village island suburb
mill      | sack sacks store grain wheel miller | wheat oats barley maize millet bran | upper lower left right
observatory | star stars catalogue brightness dome astronomer | vega rigel deneb altair spica mira | zenith horizon east west
"""


def trades() -> tuple[Trade, ...]:
    """The twenty trades, in order."""
    found = []
    for row in _ROWS.strip().split("\n"):
        name, words, goods, places = (part.strip() for part in row.replace(" | ", "|").split("|"))
        found.append(Trade(name, *words.split(), tuple(goods.split()), tuple(places.split())))  # type: ignore[call-arg, arg-type]
    return tuple(found)


# Drawn arguments: a call with fields such as ``<ints 4|0|9>`` becomes one with values.


_FIELD = re.compile(r"<([a-z]+)(?: ([^<>]*))?>")
PEOPLE = ("ada", "bruno", "cleo", "dario", "edda", "franz", "gita", "hugo")
WORDS = (
    "early", "cold", "green", "the", "of", "late", "open", "double", "new", "in", "quiet", "second", "and",
    "small",
)  # fmt: skip
ROLES = ("guest", "member", "staff", "owner", "helper")


@final
class Draw:
    """Values for fields, from dice and a trade's words."""

    def __init__(self, dice: Dice, goods: Sequence[str], places: Sequence[str], amount: str) -> None:
        self._dice, self._goods, self._places, self._amount = dice, list(goods), list(places), amount

    def filled(self, call: str) -> str:
        """The call with a value for each of its fields."""
        return _FIELD.sub(lambda found: self._value(found[1], found[2].split("|") if found[2] else []), call)

    def _value(self, kind: str, given: list[str]) -> str:
        if kind == "choice":
            return self._dice.choice(given)
        drawer: Callable[..., Any] | None = getattr(self, f"_{kind}", None)
        if drawer is None:
            raise BadInput(f"there is no field {kind!r}", where="a call of a template")
        return repr(drawer(*(int(one) for one in given)))

    def _int(self, low: int, high: int) -> int:
        return low + self._dice.below(high - low + 1)

    def _ints(self, count: int, low: int, high: int) -> list[int]:
        return [self._int(low, high) for _ in range(count)]

    def _float(self, low: int, high: int) -> float:
        return round(low + self._dice.uniform() * (high - low), 2)

    def _floats(self, count: int, low: int, high: int) -> list[float]:
        return [self._float(low, high) for _ in range(count)]

    def _skewed(self, count: int) -> list[int]:
        values = self._ints(count, 10, 14)
        values[self._dice.below(count)] = self._int(30, 60)
        return values

    def _span(self) -> tuple[int, int]:
        start = self._int(0, 18)
        return start, start + self._int(1, 8)

    def _spans(self, count: int) -> list[tuple[int, int]]:
        return [self._span() for _ in range(count)]

    def _dayspans(self, count: int) -> list[tuple[int, int]]:
        starts = sorted(self._ints(count, 8, 17))
        return [(start, start + self._int(1, 3)) for start in starts]

    def _name(self) -> str:
        return self._dice.choice(PEOPLE)

    def _names(self, count: int) -> list[str]:
        return self._dice.sample(PEOPLE, count)

    def _word(self) -> str:
        return self._dice.choice(self._goods)

    _key = _word

    def _words(self, count: int) -> list[str]:
        return [self._word() for _ in range(count)]

    def _plan(self, count: int) -> list[tuple[str, str]]:
        return [(word, self._dice.choice(PEOPLE[:3])) for word in self._dice.sample(self._goods, count)]

    def _table(self, count: int) -> dict[str, int]:
        return {word: self._int(1, 12) for word in self._dice.sample(self._goods, count)}

    def _floor(self) -> list[str]:
        return ["." + self._marks(3), self._marks(4), self._marks(4)]

    def _marks(self, count: int) -> str:
        return "".join(self._dice.choice("...#") for _ in range(count))

    def _point(self) -> tuple[int, int]:
        return self._int(-1, 9), self._int(-1, 8)

    def _points(self, count: int) -> list[tuple[int, int]]:
        return [self._point() for _ in range(count)]

    def _links(self) -> dict[str, dict[str, int]]:
        links: dict[str, dict[str, int]] = {stop: {} for stop in "abcde"}
        for one, two in ("ab", "ac", "bc", "bd", "cd", "ce", "de"):
            links[one][two] = links[two][one] = self._int(1, 9)
        return links

    def _needs(self) -> dict[str, list[str]]:
        steps = self._goods[:5]
        return {
            step: sorted(self._dice.sample(steps[:at], min(at, self._dice.below(3))))
            for at, step in enumerate(steps)
        }

    def _times(self) -> dict[str, int]:
        return {step: self._int(1, 6) for step in self._goods[:4]}

    def _holes(self, count: int) -> list[int | None]:
        inner = [None if self._dice.uniform() < 0.5 else self._int(0, 30) for _ in range(count - 2)]
        return [self._int(0, 30), *inner, self._int(0, 30)]

    def _loads(self, count: int) -> list[tuple[int, int]]:
        return [(self._int(1, 6), self._int(2, 20)) for _ in range(count)]

    def _text(self, count: int) -> str:
        return " ".join(self._dice.choice((*WORDS, *self._goods)) for _ in range(count)).capitalize()

    _sentence = _text

    def _paragraph(self, count: int) -> str:
        return "\n".join("  " * self._dice.below(3) + self._text(4) for _ in range(count))

    def _taken(self) -> list[str]:
        return [f"{a}-{b}" for a in WORDS[:6] for b in self._goods] + self._goods

    def _cells(self, count: int) -> list[list[str | int]]:
        return [[self._word(), self._int(1, 400), self._dice.choice(self._places)] for _ in range(count)]

    def _notation(self) -> str:
        quoted = f'"{self._text(2)}"'
        parts = [self._word(), "=", quoted, "+", str(self._int(1, 99)), f"* {self._word()}.x", "(", ")"]
        return self._dice.choice(["", " "]).join(self._dice.sample(parts, 5))

    def _number(self) -> str:
        whole = f"{self._int(0, 40000):,}"
        rest = self._dice.choice(["", ".5", ".25"])
        return self._dice.choice(["", "-", "+", " "]) + whole + rest + self._dice.choice(["", "", "%"])

    def _remark(self) -> str:
        value = self._dice.choice([self._word(), f'"{self._word()} # {self._word()}"'])
        return f"{self._word()} = {value} " + self._dice.choice(["", f"# {self._text(2)}"])

    def _formula(self) -> str:
        text = str(self._int(1, 20))
        for _ in range(self._int(1, 3)):
            part = self._dice.choice([str(self._int(1, 9)), f"({self._int(1, 9)} - {self._int(1, 9)})"])
            text += self._dice.choice([" + ", " * ", " - ", " / "]) + part
        return text

    def _rows(self, count: int) -> list[dict[str, Any]]:
        return [
            {"name": self._word(), "place": self._dice.choice(self._places), self._amount: self._int(1, 60)}
            for _ in range(count)
        ]

    def _recordtext(self) -> str:
        rows = [f"{row['name']}; {row['place']};{row[self._amount]}" for row in self._rows(3)]
        if self._dice.uniform() < 0.5:
            rows[1] = rows[1].rpartition(";")[0]
        rows.insert(self._dice.below(3), self._dice.choice(["", "# a remark", "  "]))
        return "\n".join([f"name;place;{self._amount}", *rows])

    def _settingstext(self) -> str:
        values = ["yes", "off", "12", "1,000", "3%", "plain", '"a # b"']
        lines = [f"{word} = {self._dice.choice(values)}" for word in self._dice.sample(self._goods, 4)]
        lines.insert(self._int(0, 3), f"[{self._dice.choice(self._places)}]")
        return "\n".join(lines)

    def _sections(self) -> dict[str, dict[str, int]]:
        return {place: self._table(2) for place in self._dice.sample(self._places, 2)}

    def _query(self) -> str:
        return " ".join(word[: self._int(2, 9)] for word in self._words(2))

    def _phrase(self) -> str:
        return self._text(4)

    def _phrases(self, count: int) -> list[str]:
        return [self._phrase() for _ in range(count)]

    def _typo(self) -> str:
        word = self._word()
        place = self._dice.below(len(word))
        return word[:place] + self._dice.choice(["", "x", word[place] * 2]) + word[place + 1 :]

    def _vocabulary(self) -> list[str]:
        return self._goods + self._places

    def _prefixed(self) -> list[str]:
        start = self._word()
        return [start + other[: self._int(0, 4)] for other in self._words(3)]

    def _letter(self) -> str:
        fields = self._dice.sample(["name", "day", "place", "sum"], 3)
        return " ".join(f"{self._dice.choice(WORDS)} <{field}>" for field in (*fields, fields[0]))

    def _letterdata(self) -> dict[str, Any]:
        known = {"name": self._name(), "day": self._int(1, 28), "place": self._dice.choice(self._places)}
        return {key: known[key] for key in sorted(self._dice.sample(list(known), 2))}

    def _digits(self, count: int) -> str:
        return "".join(str(self._int(0, 9)) for _ in range(count))

    def _code(self) -> str:
        digits = self._digits(6)
        total = sum(int(one) * (3 if at % 2 == 0 else 1) for at, one in enumerate(reversed(digits)))
        last = (10 - total % 10) % 10 if self._dice.uniform() < 0.6 else self._int(0, 9)
        return f"{digits[:3]}-{digits[3:]} {last}"

    def _runs(self) -> str:
        return "".join(self._dice.choice("abc.") * self._int(1, 4) for _ in range(5))

    def _packed(self) -> str:
        return "".join(self._dice.choice(["", "2", "3", "12"]) + self._dice.choice("abx.") for _ in range(4))

    def _vouchers(self) -> list[tuple[str, int]]:
        return [(self._dice.choice(["percent", "sum"]), self._int(5, 30)) for _ in range(self._int(1, 3))]

    def _orderline(self) -> tuple[str, int, int]:
        count = self._dice.choice([1, 3, 10, 20, 50, 60, 100, -1])
        return self._word(), self._int(10, 400), count

    def _orderlines(self, count: int) -> list[tuple[str, int, int]]:
        rows = [self._orderline() for _ in range(count)]
        return [(name, price, abs(units)) for name, price, units in rows]

    def _lots(self, count: int) -> list[tuple[str, int, int]]:
        return [(word, self._int(1, 25), self._int(0, 5)) for word in self._dice.sample(self._goods, count)]

    def _clock(self) -> str:
        minute = self._dice.choice(["00", "05", "30", "59"])
        if self._dice.uniform() < 0.4:
            return f"{self._int(1, 12)}:{minute}{self._dice.choice(['am', 'pm'])}"
        return f"{self._int(0, 23)}:{minute}"

    def _transfers(self, count: int) -> list[tuple[str, str, int]]:
        pairs = [self._dice.sample(PEOPLE[:4], 2) for _ in range(count)]
        return [(one, two, self._int(1, 90)) for one, two in pairs]

    def _changes(self, count: int) -> list[int]:
        return self._ints(count, -40, 40)

    def _person(self) -> dict[str, str]:
        first, middle, last = self._names(3)
        whole = {"first": first.title(), "middle": middle.title(), "last": last.title()}
        return {key: whole[key] for key in whole if key == "last" or self._dice.uniform() < 0.7}

    def _fullname(self) -> str:
        first, middle, last = self._names(3)
        between = self._dice.choice(["", f"{middle} ", "van ", f"{middle} van ", "von der "])
        return f"{first} {between}{last}"

    def _roles(self) -> list[str]:
        return self._dice.sample(ROLES, self._int(1, 2))

    def _includes(self) -> dict[str, list[str]]:
        return {
            role: self._dice.sample(ROLES[:at], min(at, self._int(1, 2)))
            for at, role in enumerate(ROLES)
            if at
        }

    def _pauses(self) -> list[tuple[int, int]]:
        return [(start, start + self._int(0, 4)) for start in self._ints(self._int(0, 2), 1, 30)]

    def _meter(self, count: int) -> list[int]:
        value, readings = self._int(8000, 9900), list[int]()
        for _ in range(count):
            readings.append(value % 10000)
            value += self._int(0, 700)
        return readings

    def _csvtext(self) -> str:
        mark = self._dice.choice([",", ";", "\t", "|"])
        rows = [mark.join([row["name"], row["place"], str(row[self._amount])]) for row in self._rows(4)]
        return "\n".join([mark.join(["name", "place", self._amount]), *rows]) + "\n"

    def _shell(self) -> str:
        parts = [
            self._word(),
            f"'{self._text(2)}'",
            f'"{self._word()} \\"x\\""',
            "--all",
            "a\\ b",
            "# remark",
            "x=1;",
        ]
        return " ".join(self._dice.sample(parts, 4))

    def _path(self) -> str:
        parts = [
            *self._dice.sample(["..", ".", "", *self._goods[:3]], 4),
            self._word() + self._dice.choice(["", ".txt"]),
        ]
        return self._dice.choice(["/", "", "//"]) + "/".join(parts)

    def _winpath(self) -> str:
        start = self._dice.choice(["C:\\", "c:", "\\\\host\\share\\", "", "\\"])
        return start + self._path().strip("/").replace("/", self._dice.choice(["\\", "/"]))

    def _address(self) -> str:
        return ".".join(
            str(self._dice.choice([0, 10, 127, 172, 192, 224, 255, self._int(1, 254)])) for _ in range(4)
        )

    def _network(self) -> str:
        return f"{self._dice.choice(['10.0.0.0', '192.168.8.0', '172.16.0.0'])}/{self._int(24, 30)}"

    def _six(self) -> str:
        groups = [f"{self._int(0, 65535):x}" if self._dice.uniform() < 0.6 else "0" for _ in range(8)]
        return ":".join(groups)

    def _page(self) -> str:
        parts = [
            "&amp;",
            "&lt;b&gt;",
            "&#65;",
            "&#x2014;",
            "&notit;",
            "&copy",
            "a < b",
            "'x'",
            '"y" & z',
            "&#0;",
            "&bogus;",
        ]
        return " ".join(self._dice.sample(parts, 4))

    def _url(self) -> str:
        user = self._dice.choice(["", "ann@", "ann:pw@"])
        host = self._dice.choice(["example.org", "[::1]", "HOST"]) + self._dice.choice(["", ":8080"])
        tail = self._dice.choice(["", "?a=1&b=2", "?a=%20x;c", "#top", "?q=1#end"])
        scheme, last = self._dice.choice(["http", "ftp", "https"]), self._dice.choice(["", "x;p=1", "../y"])
        return f"{scheme}://{user}{host}/{self._word()}/{last}{tail}"

    def _queries(self) -> str:
        parts = ["a=1", "b=", "c=x+y", "d=%2F%20", "a=2", "e", "f=%zz"]
        return "&".join(self._dice.sample(parts, 4))

    def _pattern(self) -> str:
        word = self._word()
        return self._dice.choice(
            [
                f"{word[:2]}*",
                f"*{word[-2:]}",
                f"?{word[1:]}",
                f"[!{word[0]}]*",
                "*[a-m]?",
                f"[{word[0]}-z]*{word[-1]}",
            ]
        )

    def _inifile(self) -> str:
        lines = [
            f"[{place}]\n" + "\n".join(f"{w} = {self._int(1, 99)}" for w in self._dice.sample(self._goods, 2))
            for place in self._places[:2]
        ]
        extra = self._dice.choice(
            [
                "on = yes\nratio: 0.5",
                "path = %(base)s/x\nbase = /srv",
                "text = one\n  two\n\nempty",
                "; remark\nbad",
            ]
        )
        return "\n\n".join(lines) + "\n" + extra + "\n"


#: How many calls are drawn from each line of a block.
CALLS = 6
LEAST = 8
#: Folders of a package, in the order in which a project takes some.
_FOLDERS = ("core", "office", "shared", "daily", "planning", "common", "desk", "backstage")
_IMPORT = re.compile(r"^from @(\w+) import (.+)$", re.MULTILINE)
#: Blocks of the training half; the other projects are made of the rest, so that no function stands in both.
_FIRST_HALF = frozenset([
    "averages", "spread", "grouping", "report", "tokens", "formula", "records", "settings", "histogram",
    "grid", "routes", "series", "slugs", "search", "templates", "runs", "stock", "clock", "permits",
])  # fmt: skip


@final
@dataclass(frozen=True, slots=True)
class Block:
    """One module template: file and function names to choose from, text, and calls with their meaning."""

    key: str
    files: tuple[str, ...]
    names: dict[str, tuple[str, ...]]
    text: str
    calls: tuple[tuple[str, str], ...]

    @property
    def needs(self) -> tuple[str, ...]:
        """Keys of the blocks it imports."""
        return tuple(found[0] for found in _IMPORT.findall(self.text))


@cache
def blocks() -> dict[str, Block]:
    """Every block by its key."""
    found = {}
    for group in BLOCKS:
        for part in group.strip().removeprefix("## ").split("\n## "):
            block = _block(part)
            found[block.key] = block
    return found


def _block(part: str) -> Block:
    head, _, rest = part.partition("\n")
    key, _, files = (one.strip() for one in head.partition("|"))
    text, _, calls = rest.partition("\n---\n")
    names: dict[str, tuple[str, ...]] = {}
    lines = text.split("\n")
    for line in lines:
        if line.startswith("# names: "):
            names.update({group.split("/")[0]: tuple(group.split("/")) for group in line[9:].split()})
    body = "\n".join(line for line in lines if not line.startswith("# names: "))
    pairs = [tuple(one.strip() for one in line.split(" ; ")) for line in calls.strip().split("\n")]
    return Block(key, tuple(files.split()), names, body, tuple((call, about) for call, about in pairs))


@cache
def generated(number: int) -> tuple[str, dict[str, str], tuple[Check, ...]]:
    """Name, files and checks (without answers) of generated project 0 to 19; even ones are the first half."""
    trade = trades()[number]
    dice = Dice("repair", "generated", number)
    chosen = _chosen(dice, number % 2 == 0)
    folders = _FOLDERS[: 3 + dice.below(3)]
    names = {name: dice.choice(others) for key in chosen for name, others in blocks()[key].names.items()}
    modules = {key: _place(trade, blocks()[key], folders, dice) for key in chosen}
    files = {f"{trade.name}/__init__.py": f'"""Software of a {trade.place} for its {trade.items}."""\n'}
    checks: list[Check] = []
    for key, module in modules.items():
        for depth in range(2, module.count(".") + 1):
            files.setdefault("/".join(module.split(".")[:depth]) + "/__init__.py", "")
        text = _imports(blocks()[key].text, module, modules, dice)
        files[module.replace(".", "/") + ".py"] = _renamed(trade.spoken(text), names) + "\n"
        checks += _checks(trade, blocks()[key], module, names, dice)
    return trade.name, dict(sorted(files.items())), tuple(checks)


def _chosen(dice: Dice, first: bool) -> list[str]:
    """Keys of a project's blocks, with all that they need."""
    pool = [key for key in blocks() if (key in _FIRST_HALF) == first]
    wanted = LEAST + dice.below(len(pool) - LEAST + 1)
    chosen: set[str] = set()
    for key in dice.sample(pool, len(pool)):
        if len(chosen) >= wanted:
            break
        waiting = [key]
        while waiting:
            one = waiting.pop()
            chosen.add(one)
            waiting += blocks()[one].needs
    return [key for key in blocks() if key in chosen]


def _place(trade: Trade, block: Block, folders: Sequence[str], dice: Dice) -> str:
    folder = dice.choice(["", *folders])
    return ".".join(part for part in (trade.name, folder, dice.choice(block.files)) if part)


def _imports(text: str, module: str, modules: dict[str, str], dice: Dice) -> str:
    """The text with its imports written out, relative or absolute by chance."""

    def written(found: re.Match[str]) -> str:
        target = modules[found[1]]
        if dice.uniform() < 0.5:
            return f"from {target} import {found[2]}"
        here, there = module.split(".")[:-1], target.split(".")
        same = 0
        while same < len(here) and here[same] == there[same]:
            same += 1
        return f"from {'.' * (len(here) - same + 1)}{'.'.join(there[same:])} import {found[2]}"

    return _IMPORT.sub(written, text)


def _renamed(text: str, names: dict[str, str]) -> str:
    return re.sub(r"\b[a-z]\w*\b", lambda found: names.get(found[0], found[0]), text)


def _checks(trade: Trade, block: Block, module: str, names: dict[str, str], dice: Dice) -> list[Check]:
    draw = Draw(dice, trade.goods, trade.places, trade.amount)
    found = []
    for call, about in block.calls:
        for _ in range(CALLS):
            name = call.partition("(")[0]
            said = names.get(name, name)
            filled = said + draw.filled(trade.spoken(call.removeprefix(name)))
            found.append(Check(module, said, (said,), filled, trade.spoken(about)))
    return found
