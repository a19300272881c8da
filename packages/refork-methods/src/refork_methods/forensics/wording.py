"""The words of a case: its verdict, hedged, and the figures of its report."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from refork.types import Json
from refork_methods.forensics.rules import Concern

if TYPE_CHECKING:
    from refork_methods.forensics.table import Row, Standing

_UNITS = {"rate": " %", "difference": " points", "interaction": " points", "ratio": " times"}
#: What an estimate is called where the quantity's own name would not say it.
NAMES = {"trend": "trend z", "scale": "chance to score higher"}
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


def figure(value: Any, quantity: str = "rate", unit: bool = True) -> str:
    """A rate in percent, a difference of rates in points, anything else as a short number."""
    if value is None:
        return "-"
    if isinstance(value, str):
        # An infinite end comes as text: JSON has no such number.
        return value.replace("Infinity", "inf")
    if quantity in ("rate", "difference", "interaction"):
        sign = "" if quantity == "rate" else "+"
        return f"{100 * value:{sign}.1f}" + (_UNITS[quantity] if unit else "")
    return f"{value:.2f}" + (_UNITS.get(quantity, "") if unit else "")


def span(row: Json) -> str:
    """An estimate with its interval and its unit."""
    middle, low, high = (figure(row[end], row["quantity"], unit=False) for end in ("estimate", "low", "high"))
    return f"{middle} [{low}, {high}]{_UNITS.get(row['quantity'], '')}"


def rate_words(arm: Json | None) -> str:
    """An arm's rate, its interval and everything that is not among its runs."""
    if arm is None or arm["rate"] is None:
        return "no finished rollout"
    told = f"{arm['hits']} of {arm['runs']}, {span({**arm, 'estimate': arm['rate'], 'quantity': 'rate'})}"
    unfinished = "not counted" if arm["unfinished"] is None else str(arm["unfinished"])
    asked = "not counted" if arm["asked"] is None else str(arm["asked"])
    return f"{told}; asked {asked}, unfinished {unfinished}, failed {arm['failed']}"


def locations(concern: Json, most: int = 4) -> str:
    """Where one thing is wrong, the first few places named."""
    found = concern["where"]
    more = f" and {len(found) - most} more" if len(found) > most else ""
    return ", ".join(found[:most]) + more


def prediction_words(report: Json) -> str:
    """A prediction as it was registered."""
    if report["quantity"] == "curve":
        region = f"every rate within {figure(report['tolerance'])} of its predicted one"
    else:
        low, high = (figure(report[end], report["quantity"]) for end in ("low", "high"))
        if report["high"] is None:
            region = f"{report['quantity']} at least {low}"
        else:
            region = f"{report['quantity']} " + (
                f"at most {high}" if report["low"] is None else f"from {low} to {high}"
            )
    return f"{report['words']}: {region}" if report["words"] else region
