"""Chronicles of small towns: English-looking text from a seeded probabilistic grammar.

A chronicle opens with a town, a year and its people, and goes on in sentences about them, of which the
first names them again. Which event follows which is a chain with weighted successors; an event is told in one
of several wordings with words to choose; people recur by name, trade or pronoun, deals and quarrels are come
back to with their numbers, verbs and nouns agree, years advance. Now and then the copyist slips and names
somebody who does not belong there.

The distribution is known: a text tells every choice that was made for it, so :attr:`Chronicle.surprise`, what
the choices cost, is the text's own, and its mean is what the best possible model loses.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal, final

import numpy as np

# What chronicles are written with: names, things, and the wordings of each event.
#
# In a wording ``[a|b|c]`` is a choice, the earlier the likelier, and ``{slot}`` is filled by the writer:
# ``A`` and ``B`` are people (``A`` the subject, ``O`` the same in another case), ``G`` and ``T`` giver and
# taker of the last deal, ``P`` and ``Q`` the last rivals.


MEN = (
    "Odo", "Hugh", "Walter", "Simon", "Ralph", "Gilbert", "Piers", "Alan", "Roger", "Edmund", "Martin",
    "Baldwin", "Osric", "Wulfric",
)  # fmt: skip
WOMEN = (
    "Mara", "Ysolt", "Edith", "Agnes", "Matilda", "Joan", "Alice", "Beatrix", "Godiva", "Hild", "Rohese",
    "Sibyl", "Ela", "Maud",
)  # fmt: skip
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


SLIP = 0.02
"""Chance that a person named is not of the town."""

_ASIDE = 0.06
_PART = re.compile(r"\[([^]]*)\]|\{(\w+)\}|([^[{]+)")


@dataclass(frozen=True, slots=True)
class Chronicle:
    """``opening`` is given; ``text`` is what follows it, and ``surprise`` (nats) what its choices cost."""

    opening: str
    text: str
    surprise: float


@dataclass(frozen=True, slots=True)
class Person:
    """Somebody of the town; ``trade`` is unique in it."""

    name: str
    trade: str
    woman: bool


@dataclass(frozen=True, slots=True)
class Deal:
    """What changed hands, for how much, between whom."""

    giver: Person
    taker: Person
    count: int
    good: int
    price: str


def chronicle(rng: np.random.Generator, sentences: int = 12) -> Chronicle:
    """One chronicle of so many sentences, behind one that names its people again."""
    writer = _Writer(rng)
    opening = writer.opening()
    # The opening is given: what it took to draw it is no part of the text's surprise.
    writer.surprise = 0.0
    text = " ".join([writer.roll(), *(writer.sentence() for _ in range(sentences))])
    return Chronicle(opening, text, writer.surprise)


def chronicles(seed: int, count: int, sentences: int = 12) -> Iterator[Chronicle]:
    """``count`` chronicles; the same for the same seed."""
    rng = np.random.default_rng(seed)
    for _ in range(count):
        yield chronicle(rng, sentences)


def words() -> tuple[str, ...]:
    """Every word that a chronicle may hold (numerals and punctuation apart), sorted."""
    said = [*MEN, *WOMEN, *TRADES, *TOWNS, *NUMBERS, *ASIDES, *(form for pair in GOODS for form in pair)]
    said += [
        "Chronicle of the year he she him her his was were pence shillings night nights week weeks lived"
    ]
    said += [_PLAIN.sub(" ", wording) for event in EVENTS.values() for wording in event.wordings]
    found = {word for text in said for word in re.findall(r"[A-Za-z]+", text)}
    begun = (*NUMBERS, "a", "all", "for", "he", "in", "she", "the", "then")
    return tuple(sorted(found | {word.capitalize() for word in begun}))


_PLAIN = re.compile(r"\{\w+\}|[\[\]|]")


@final
@dataclass(slots=True)
class _Writer:
    """One chronicle as it is written: who lives there, what has happened, and what its choices cost."""

    rng: np.random.Generator
    surprise: float = 0.0
    town: str = ""
    year: int = 0
    people: list[Person] = field(default_factory=list)
    event: str = ""
    subject: Person | None = None
    deal: Deal | None = None
    rivals: tuple[Person, Person] | None = None

    def pick(self, weights: Sequence[float]) -> int:
        """An index in proportion to the weights; its surprise is added up."""
        total = sum(weights)
        left = self.rng.random() * total
        # What rounding leaves over goes to the last possible outcome, never to one of weight 0.
        last = max(i for i, weight in enumerate(weights) if weight > 0)
        chosen = 0
        while chosen < last and left >= weights[chosen]:
            left -= weights[chosen]
            chosen += 1
        self.surprise -= math.log(weights[chosen] / total)
        return chosen

    def one_of(self, count: int) -> int:
        """An index below ``count``, the earlier ones likelier (Zipf)."""
        return self.pick([1 / (i + 1) for i in range(count)])

    def opening(self) -> str:
        """The town, the year and four people of different trades."""
        self.town = TOWNS[int(self.rng.integers(len(TOWNS)))]
        self.year = int(self.rng.integers(1100, 1400))
        trades = self.rng.permutation(len(TRADES))[:4]
        for trade in trades:
            woman = bool(self.rng.random() < 0.5)
            names = [n for n in (WOMEN if woman else MEN) if n not in {p.name for p in self.people}]
            self.people.append(Person(names[int(self.rng.integers(len(names)))], TRADES[trade], woman))
        return f"Chronicle of {self.town} in the year {self.year}: {self._people()}."

    def roll(self) -> str:
        """The first sentence, which holds nothing new: from it models learn early to copy their context."""
        return f"In {self.town} lived {self._people()}."

    def _people(self) -> str:
        return ", ".join(f"{p.name} the {p.trade}" for p in self.people)

    def sentence(self) -> str:
        """The next event, told."""
        self.event = self._next_event()
        event = EVENTS[self.event]
        wording = event.wordings[self.one_of(len(event.wordings))]
        told = self._rendered(wording, event)
        if self.pick([_ASIDE, 1 - _ASIDE]) == 0:
            told += ", " + ASIDES[self.one_of(len(ASIDES))]
        return told[0].upper() + told[1:] + "."

    def _next_event(self) -> str:
        """A successor of the last event that can be told now."""
        offered = EVENTS[self.event].then if self.event else FIRST
        can = {
            name: weight
            for name, weight in offered.items()
            if not (EVENTS[name].needs == "deal" and self.deal is None)
            and not (EVENTS[name].needs == "rivals" and self.rivals is None)
        }
        return list(can)[self.pick(list(can.values()))]

    def _rendered(self, wording: str, event: Event) -> str:
        scene = _Scene(self)
        parts = []
        for choice, slot, plain in _PART.findall(wording):
            if slot:
                parts.append(scene.fill(slot))
            elif choice:
                options = choice.split("|")
                parts.append(options[self.one_of(len(options))])
            else:
                parts.append(plain)
        scene.remember(event)
        return "".join(parts)


@final
class _Scene:
    """The people and things of one sentence."""

    def __init__(self, writer: _Writer) -> None:
        self.writer = writer
        self.mentioned: dict[str, Person] = {}
        self.count, self.good, self.price = 0, 0, ""

    def fill(self, slot: str) -> str:
        """The words of a slot, as they agree with what was said."""
        writer = self.writer
        if slot in ("A", "O", "B", "G", "T", "P", "Q"):
            return self._mention(slot)
        if slot in ("he", "him", "his"):
            she = {"he": "she", "him": "her", "his": "her"}
            return she[slot] if self.mentioned["A"].woman else slot
        if slot == "year":
            writer.year += 1 + writer.pick([0.7, 0.2, 0.1])
            return str(writer.year)
        if slot == "town":
            return writer.town
        if slot == "place":
            others = [town for town in TOWNS if town != writer.town]
            return others[writer.one_of(len(others))]
        return self._amount(slot)

    def _amount(self, slot: str) -> str:
        writer, deal = self.writer, self.writer.deal
        if slot == "n":
            self.count = 1 + writer.one_of(len(NUMBERS))
            return NUMBERS[self.count - 1]
        if slot == "goods":
            self.good = writer.one_of(len(GOODS))
            return GOODS[self.good][self.count > 1]
        if slot == "was":
            return "were" if self.count > 1 else "was"
        if slot == "price":
            tens, ones = 1 + writer.pick([1.0] * 9), writer.pick([4, 1, 1, 1, 1, 4, 1, 1, 1, 1])
            self.price = f"{tens}{ones}"
            return self.price
        if slot == "coin":
            coin = ("pence", "shillings")[writer.one_of(2)]
            self.price += f" {coin}"
            return coin
        if slot in ("nights", "weeks"):
            return slot if self.count > 1 else slot[:-1]
        assert deal is not None
        known = {
            "dealt": f"{NUMBERS[deal.count - 1]} {GOODS[deal.good][deal.count > 1]}",
            "paid": deal.price,
            "dealtwas": "were" if deal.count > 1 else "was",
        }
        return known[slot]

    def _mention(self, slot: str) -> str:
        """A person: by pronoun where it is the last subject, else by name or trade."""
        writer = self.writer
        person = self._who(slot)
        self.mentioned["A" if slot == "O" else slot] = person
        if slot in ("A", "O"):
            again, writer.subject = writer.subject, person
            if slot == "A" and again is person and writer.pick([0.6, 0.4]) == 0:
                return "she" if person.woman else "he"
        if person.trade == "":
            return person.name
        return (person.name, f"the {person.trade}")[writer.pick([0.65, 0.35])]

    def _who(self, slot: str) -> Person:
        writer, deal, rivals = self.writer, self.writer.deal, self.writer.rivals
        if deal is not None and slot in ("G", "T"):
            return deal.giver if slot == "G" else deal.taker
        if rivals is not None and slot in ("P", "Q"):
            return rivals[slot == "Q"]
        if writer.pick([SLIP, 1 - SLIP]) == 0:
            home = {p.name for p in writer.people}
            strange = [name for name in (*MEN, *WOMEN) if name not in home]
            name = strange[writer.pick([1.0] * len(strange))]
            return Person(name, "", name in WOMEN)
        taken = list(self.mentioned.values())
        weights = [0.0 if p in taken else 3.0 if p is writer.subject else 1.0 for p in writer.people]
        return writer.people[writer.pick(weights)]

    def remember(self, event: Event) -> None:
        """Keep a deal or a quarrel, which later sentences may come back to."""
        if event.makes == "deal":
            self.writer.deal = Deal(
                self.mentioned["A"], self.mentioned["B"], self.count, self.good, self.price
            )
        elif event.makes == "rivals":
            self.writer.rivals = (self.mentioned["A"], self.mentioned["B"])
        if event.needs == "deal":
            self.writer.deal = None
        elif event.needs == "rivals" and event.settles:
            self.writer.rivals = None
