"""CSV tables in what profilers print, found below other output; errors have a line."""

from __future__ import annotations

import csv
from collections.abc import Sequence
from dataclasses import dataclass
from typing import final

from refork.errors import BadInput


@final
@dataclass(frozen=True, slots=True)
class Table:
    """A header and its rows, each with its line number (from 1)."""

    header: tuple[str, ...]
    rows: tuple[tuple[int, dict[str, str]], ...]


def _cells(line: str, where: str) -> list[str]:
    try:
        return next(csv.reader([line], strict=True), [])
    except csv.Error as error:
        raise BadInput(f"a damaged line: {error}", where=where, hint="export it again") from error


def _fitted(cells: list[str], header: tuple[str, ...], upto: str) -> tuple[str, ...]:
    """Cells without empty ones at the end that are too many, and with those that may be left out."""
    while len(cells) > len(header) and not cells[-1]:
        cells = cells[:-1]
    least = header.index(upto) + 1 if upto in header else len(header)
    missing = len(header) - len(cells) if len(cells) >= least else 0
    return (*cells, *[""] * missing)


def _is_noise(line: str) -> bool:
    """Empty lines, comments, and messages of the profiler."""
    return not line.strip() or line.startswith(("==", "#", "**"))


def tables(text: str, needs: Sequence[str], *, name: str, upto: str = "") -> list[Table]:
    """All tables whose header has the columns ``needs``; one ends where the next or an empty line begins.

    A header that has the column ``upto`` may have rows that end after it: profilers leave out what follows.

    Raises:
        BadInput: a row has another number of cells than its header, or is damaged.
    """
    found: list[Table] = []
    header: tuple[str, ...] = ()
    rows: list[tuple[int, dict[str, str]]] = []
    for place, line in enumerate(text.splitlines(), 1):
        if not line.strip() and rows:
            found.append(Table(header, tuple(rows)))
            header, rows = (), []
        if _is_noise(line):
            continue
        if all(one in line for one in needs):
            cells = tuple(_cells(line, f"{name}, line {place}"))
            if set(needs) <= set(cells):
                if header:
                    found.append(Table(header, tuple(rows)))
                header, rows = cells, []
                continue
        if header:
            cells = _fitted(_cells(line, f"{name}, line {place}"), header, upto)
            if len(cells) != len(header):
                raise BadInput(
                    f"{len(cells)} cells under a header of {len(header)}",
                    where=f"{name}, line {place}",
                    hint="the file is cut off or was edited; export it again",
                )
            rows.append((place, dict(zip(header, cells, strict=True))))
    if header:
        found.append(Table(header, tuple(rows)))
    return found
