"""The verdict in hedged words: what fits, what does not, and what was not asked."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from refork_methods.forensics.rules import Concern

if TYPE_CHECKING:
    from refork_methods.forensics.table import Row, Standing

_SCOPE = "This speaks of behaviour under the edits that were tried, not of what goes on inside the model."


def verdict_words(standings: Sequence[Standing], rows: Sequence[Row], concerns: Sequence[Concern]) -> str:
    """One paragraph that claims no more than the table."""
    refused = [c for c in concerns if c.kind == "refusal"]
    if refused:
        return f"No verdict: {refused[0].words}."
    tested = [s for s in standings if s.rank is not None]
    if not tested:
        return "No verdict: no hypothesis was tested by a prediction made beforehand."
    first = [s for s in tested if s.rank == 1]
    told = [_leading(first), *_others(tested), *_gaps(standings, rows), _SCOPE]
    return " ".join(part for part in told if part)


def _leading(first: Sequence[Standing]) -> str:
    names = _list([repr(s.hypothesis) for s in first])
    one = first[0]
    if len(first) > 1:
        return f"The evidence does not tell {names} apart."
    if one.inconsistent:
        return (
            f"No hypothesis accounts for all the evidence; {names} is contradicted least, "
            f"by {_lines(one.inconsistent)}."
        )
    if one.consistent == 0:
        return f"Nothing contradicts {names}, and nothing clearly agrees with it either."
    if one.consistent == 1:
        return f"One line of evidence points to {names}; a second, independent one is missing."
    return (
        f"The evidence is most consistent with {names}: {one.consistent} independent lines agree with it "
        f"and none contradicts it."
    )


def _others(tested: Sequence[Standing]) -> list[str]:
    against = [s for s in tested if s.rank != 1 and s.inconsistent]
    left = [s for s in tested if s.rank != 1 and not s.inconsistent]
    told = []
    if against:
        told.append(
            _list([f"{s.hypothesis!r} is contradicted by {_lines(s.inconsistent)}" for s in against]) + "."
        )
    if left:
        verb = "is" if len(left) == 1 else "are"
        told.append(f"{_list([repr(s.hypothesis) for s in left])} {verb} not ruled out.")
    return told


def _gaps(standings: Sequence[Standing], rows: Sequence[Row]) -> list[str]:
    told = []
    untested = [repr(s.hypothesis) for s in standings if s.rank is None]
    if untested:
        told.append(f"Untested: {_list(untested)}.")
    blind = [repr(r.item.name) for r in rows if r.negative is not None and not r.negative.informative]
    if blind:
        told.append(f"Uninformative as negatives, for lack of a positive control that works: {_list(blind)}.")
    return told


def _list(parts: Sequence[str]) -> str:
    return parts[0] if len(parts) == 1 else f"{', '.join(parts[:-1])} and {parts[-1]}"


def _lines(count: int) -> str:
    return "one line" if count == 1 else f"{count} independent lines"
