"""Tables, numbers and units as profilers print them."""

from __future__ import annotations

import csv
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, TypeAlias, final

from refork.errors import BadInput

#: Dimensions, in one canonical unit each: percent, seconds, bytes, plain counts and ratios of counts.
Unit: TypeAlias = Literal["%", "s", "byte", ""]


@final
@dataclass(frozen=True, slots=True)
class Table:
    """A header and its rows, each with its line number (from 1)."""

    header: tuple[str, ...]
    rows: list[tuple[int, dict[str, str]]]


def _cells(line: str, where: str) -> list[str]:
    try:
        return next(csv.reader([line], strict=True), [])
    except csv.Error as error:
        raise BadInput(f"a damaged line: {error}", where=where, hint="export it again") from error


def tables(text: str, needs: Sequence[str], *, name: str, upto: str = "") -> list[Table]:
    """All tables whose header has the columns ``needs``; one ends where the next or an empty line begins.

    A header that has the column ``upto`` may have rows that end after it: profilers leave out what follows.

    Raises:
        BadInput: a row has another number of cells than its header, or is damaged.
    """
    found: list[Table] = []
    header: list[str] = []
    for place, line in enumerate(text.splitlines(), 1):
        if not line.strip():
            # An empty line right below a header ends nothing; below rows it ends the table.
            header = header if found and not found[-1].rows else []
        # Messages of the profiler stand between the rows.
        if not line.strip() or line.startswith(("==", "#", "**")):
            continue
        where = f"{name}, line {place}"
        if all(one in line for one in needs) and set(needs) <= set(cells := _cells(line, where)):
            header = cells
            found.append(Table(tuple(header), []))
        elif header:
            cells = _cells(line, where)
            least = header.index(upto) + 1 if upto in header else len(header)
            # Some lines end in a comma, which makes an empty cell too many.
            while len(cells) > len(header) and not cells[-1]:
                cells.pop()
            if not least <= len(cells) <= len(header):
                raise BadInput(
                    f"{len(cells)} cells under a header of {len(header)}",
                    where=where,
                    hint="the file is cut off or was edited; export it again",
                )
            cells += [""] * (len(header) - len(cells))
            found[-1].rows.append((place, dict(zip(header, cells, strict=True))))
    return found


_PREFIX = {"": 1.0, "k": 1e3, "m": 1e6, "g": 1e9, "t": 1e12}
_SECONDS = {
    "ns": 1e-9, "nsecond": 1e-9, "us": 1e-6, "usecond": 1e-6, "ms": 1e-3, "msecond": 1e-3, "s": 1.0,
    "second": 1.0,
}  # fmt: skip
#: Things that are counted; per what is of no matter here.
_COUNTED = frozenset(
    (
        "", "inst", "instruction", "warp", "thread", "block", "register", "cycle", "sector", "request",
        "wavefront", "access", "bank", "op", "ratio", "count",
    )
)  # fmt: skip
_NUMBER = re.compile(r"[-+]?(\d{1,3}(,\d{3})+|\d+)(\.\d*)?([eE][-+]?\d+)?|[-+]?\.\d+")
_ABSENT = frozenset(("", "n/a", "na", "nan", "-nan", "inf", "-inf", "no data", "(!) n/a", "none"))


def number(text: str, *, where: str) -> float | None:
    """A number with thousands separators or without; None where the profiler says that it has none.

    Raises:
        BadInput: something else, such as a comma for the decimal point.
    """
    plain = text.strip()
    if plain.lower() in _ABSENT:
        return None
    if not _NUMBER.fullmatch(plain):
        raise BadInput(f"{plain!r} is not a number", where=where, hint="export with LC_ALL=C")
    return float(plain.replace(",", ""))


def factor(unit: str, wanted: Unit, *, where: str) -> float | None:
    """What a value is multiplied with to be in ``wanted``; None where its unit measures something else.

    Prefixes are decimal, as Nsight Compute has them (1 Kbyte is 1000 byte).

    Raises:
        BadInput: a unit that is not known.
    """
    word = unit.strip()
    if word == "%":
        return 1.0 if wanted == "%" else None
    if word in _SECONDS:
        return _SECONDS[word] if wanted == "s" else None
    over, _, under = word.partition("/")
    if under in {"s", "second", "ns", "nsecond", "us", "usecond", "ms", "msecond"} or over.lower().endswith(
        "hz"
    ):
        return None
    # Seconds were read above, so that m can only be mega here.
    for prefix, scale in _PREFIX.items():
        rest = over[len(prefix) :]
        if not over.lower().startswith(prefix) or (prefix and not rest):
            continue
        if rest.lower() in {"byte", "bytes", "b"}:
            return scale if wanted == "byte" else None
        if rest.lower() in _COUNTED:
            # Bytes per sector are printed without their unit by some versions.
            return scale if wanted == "" or (wanted == "byte" and not rest) else None
    raise BadInput(f"the unit {word!r} is not known", where=where, hint="export with --print-units base")


def text_of(path: Path) -> str:
    """The text of an exported file, in UTF-8 or, as PowerShell redirects it, UTF-16.

    Raises:
        BadInput: it cannot be read, or is not text.
    """
    try:
        raw = path.read_bytes()
    except OSError as error:
        raise BadInput(f"cannot read {path.name}: {error.strerror}", where=str(path)) from error
    encoding = "utf-16" if raw[:2] in {b"\xff\xfe", b"\xfe\xff"} else "utf-8-sig"
    try:
        return raw.decode(encoding)
    except UnicodeDecodeError as error:
        raise BadInput(
            f"{path.name} is not text", where=str(path), hint="ncu --import FILE.ncu-rep --csv --page raw"
        ) from error


def named(kernel: str | None, names: Iterable[str], where: str) -> str:
    """The kernel of this name, else the only one of which it is a part; without a name the only one there is.

    Raises:
        BadInput: none, or several, answer to it; with their names.
    """
    known = list(dict.fromkeys(names))
    fitting = [one for one in known if kernel in (None, one)] or [one for one in known if str(kernel) in one]
    if len(fitting) != 1:
        raise BadInput(
            f"{len(fitting)} kernels answer to {kernel or 'no name'}", where=where,
            hint="name one of: " + "; ".join(fitting or known),
        )  # fmt: skip
    return fitting[0]
