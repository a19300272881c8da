"""What chronicles are written with: names, things, and the wordings of each event.

In a wording ``[a|b|c]`` is a choice, the earlier the likelier, and ``{slot}`` is filled by the writer: ``A``
and ``B`` are people (``A`` the subject, ``O`` the same in another case), ``G`` and ``T`` giver and taker of
the last deal, ``P`` and ``Q`` the last rivals.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

MEN = (
    "Odo",
    "Hugh",
    "Walter",
    "Simon",
    "Ralph",
    "Gilbert",
    "Piers",
    "Alan",
    "Roger",
    "Edmund",
    "Martin",
    "Baldwin",
    "Osric",
    "Wulfric",
)
WOMEN = (
    "Mara",
    "Ysolt",
    "Edith",
    "Agnes",
    "Matilda",
    "Joan",
    "Alice",
    "Beatrix",
    "Godiva",
    "Hild",
    "Rohese",
    "Sibyl",
    "Ela",
    "Maud",
)
TRADES = ("miller", "smith", "weaver", "baker", "cooper", "mason", "tanner", "potter", "shepherd", "carter")
TOWNS = ("Harwick", "Aldbury", "Thornley", "Stoke", "Marsden", "Whitby", "Ravenford", "Oakham")
NUMBERS = ("one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten", "eleven", "twelve")
GOODS = (
    ("sack of wool", "sacks of wool"),
    ("barrel of salt", "barrels of salt"),
    ("cart of timber", "carts of timber"),
    ("bolt of cloth", "bolts of cloth"),
    ("pair of oxen", "pairs of oxen"),
    ("load of hay", "loads of hay"),
    ("cask of wine", "casks of wine"),
    ("block of stone", "blocks of stone"),
)
ASIDES = (
    "as the old people tell",
    "or so it is said",
    "to the joy of all",
    "against the wish of the abbot",
    "which nobody had expected",
)


@dataclass(frozen=True, slots=True)
class Event:
    """How an event is told, what may follow (with weights), what must have happened, what it leaves."""

    wordings: tuple[str, ...]
    then: Mapping[str, float]
    needs: Literal["deal", "rivals", None] = None
    makes: Literal["deal", "rivals", None] = None
    settles: bool = False


FIRST = {"year": 3.0, "deal": 2.0, "arrival": 2.0, "weather": 1.0}

EVENTS: Mapping[str, Event] = {
    "year": Event(
        (
            "in the year {year} [there was a hard winter|the harvest was good|the river rose|"
            "the king rode by]",
            "the year {year} was [a good|a bitter|a quiet] one for {town}",
        ),
        {"weather": 3, "arrival": 2, "deal": 2, "build": 1},
    ),
    "arrival": Event(
        (
            "{A} came back from {place} with {n} {goods}",
            "[a boat|a ship|a train of mules] from {place} brought {n} {goods} for {O}",
            "{n} {goods} {was} [sent|carried] to {O} from {place} by [road|river|sea]",
        ),
        {"deal": 4, "feast": 1, "quarrel": 1, "year": 1},
    ),
    "deal": Event(
        (
            "{A} sold {n} {goods} to {B} for {price} {coin}",
            "{A} [promised|lent] {B} {n} {goods} and asked for {price} {coin} in return",
        ),
        {"payment": 4, "quarrel": 2, "year": 1, "weather": 1},
        makes="deal",
    ),
    "payment": Event(
        (
            "for the {dealt} {T} [paid|gave] {paid} before [Easter|harvest|Christmas]",
            "the {dealt} {dealtwas} [found|known] to be [rotten|short|stolen], and {G} gave back the {paid}",
            "{T} would not pay the {paid}, and {G} took back the {dealt}",
        ),
        {"feast": 2, "year": 2, "quarrel": 2, "marriage": 1},
        needs="deal",
    ),
    "quarrel": Event(
        (
            "{A} and {B} quarrelled over [a field|a well|a dog|a debt]",
            "{A} [accused|cursed|struck] {B} [at the market|in the church|by the mill]",
        ),
        {"court": 4, "peace": 2, "weather": 1},
        makes="rivals",
    ),
    "court": Event(
        (
            "the court heard {P} and {Q} and found for [the first|the second|neither]",
            "the [sheriff|abbot|bishop] fined {P} {price} [pence|shillings] for the wrong done to {Q}",
        ),
        {"peace": 3, "year": 2, "deal": 1},
        needs="rivals",
    ),
    "peace": Event(
        (
            "then {P} and {Q} made peace [over a jug of ale|before the altar|at the bridge]",
            "{Q} forgave {P}, and they [drank|prayed|wept] together",
        ),
        {"feast": 3, "marriage": 2, "year": 2},
        needs="rivals",
        settles=True,
    ),
    "feast": Event(
        (
            "all of {town} [feasted|danced|sang] for {n} {nights} in the [hall|barn|square] of {O}",
            "{A} gave a feast, and {he} [danced|sang|drank] with {B} until morning",
        ),
        {"year": 3, "illness": 1, "marriage": 1, "deal": 1},
    ),
    "marriage": Event(
        (
            "{A} was married [in spring|at Easter|after harvest], and {B} [carried the ring|baked the bread]",
            "{A} had [a son|a daughter|twins], and {B} stood [as witness|at the font]",
        ),
        {"feast": 3, "year": 2, "build": 1},
    ),
    "build": Event(
        (
            "{A} built [a barn|a house|a wall|a mill] near the [bridge|church|market] with the help of {B}",
            "the [bridge|church|tower] was [mended|raised] by {O}, who asked for {n} {goods}",
        ),
        {"fire": 2, "year": 2, "deal": 2},
    ),
    "weather": Event(
        (
            "a [storm|flood|frost] [broke|took] the [bridge|mill|roof] of {O}, and {he} wept",
            "for {n} {weeks} [no rain|snow|rain] fell on {town}, "
            "and [the wells ran dry|the roads were closed]",
        ),
        {"build": 3, "illness": 2, "arrival": 1, "year": 1},
    ),
    "illness": Event(
        (
            "{A} fell ill, and {B} brought {him} [broth|honey|herbs] for {n} {weeks}",
            "a fever came to {town}, and {A} [lost|buried] {his} [brother|mother|child]",
        ),
        {"year": 3, "peace": 1, "feast": 1},
    ),
    "fire": Event(
        (
            "a fire [took|burned] the [barn|house|shop] of {O}, but {he} saved {n} {goods}",
            "the [barn|house|shop] that {O} had raised burned [down|at night], and {B} was blamed",
        ),
        {"build": 2, "quarrel": 2, "year": 1},
    ),
}
