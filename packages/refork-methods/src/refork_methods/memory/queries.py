"""Queries as tokens with typed slots, and what varies between queries of one plan (anti-unification).

Pure and without a model. What a query's slots are is a matter of writing: numbers, dates, times, addresses,
quoted text, names with capital letters. Source: arXiv:2606.24151 asks for two structurally different queries
and for every varying element to be a parameter; how both are decided mechanically is ours.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from difflib import SequenceMatcher
from typing import Literal, TypeAlias

from refork_methods.memory.skeleton import Slot

TokenKind: TypeAlias = Literal["word", "number", "date", "time", "email", "quoted", "name"]

_CAPITAL = r"[A-Z][a-z]+(?:['’-][A-Z][a-z]+)*"
# The order matters: a date would be read as numbers, and an address or a name as words.
_TOKEN = re.compile(
    rf"""(?P<email>[\w.+-]+@[\w-]+(?:\.[\w-]+)+)
    |(?P<date>\d{{4}}-\d\d-\d\d)(?!\d)
    |(?P<time>\d{{1,2}}:\d\d)(?!\d)
    |(?P<quoted>"[^"]*"|“[^”]*”|(?<!\w)'[^']*'(?!\w))
    |(?P<number>-?\d+(?:\.\d+)?)(?![\w])
    |(?P<name>{_CAPITAL}(?:\s{_CAPITAL})*(?![\w]))
    |(?P<word>\w+(?:['’-]\w+)*)
    |(?P<stop>[.!?:;]+)""",
    re.VERBOSE,
)


@dataclass(frozen=True, slots=True)
class QueryToken:
    """One token: what kind it is and its text, quotes taken off."""

    kind: TokenKind
    text: str

    @property
    def mask(self) -> str:
        """The word in small letters; ``<kind>`` for a slot."""
        return self.text.lower() if self.kind == "word" else f"<{self.kind}>"


def tokens_of(query: str) -> tuple[QueryToken, ...]:
    """The tokens of a query; a capital at the start of a sentence does not make a name."""
    found: list[QueryToken] = []
    opening = True
    for match in _TOKEN.finditer(query):
        kind, text = match.lastgroup, match.group()
        if kind == "stop":
            opening = True
            continue
        if kind == "name" and opening:
            first, _, rest = text.partition(" ")
            found.append(QueryToken("word", first))
            if rest:
                found.append(QueryToken("name", rest))
        else:
            for known in ("word", "number", "date", "time", "email", "quoted", "name"):
                if kind == known:
                    found.append(QueryToken(known, text[1:-1] if kind == "quoted" else text))
        opening = False
    return tuple(found)


def masked(query: str) -> str:
    """The query with its slots masked: what is left when all that is filled in is taken out."""
    return " ".join(token.mask for token in tokens_of(query))


def place_of(text: str, tokens: Sequence[QueryToken]) -> tuple[int, int] | None:
    """Where a text stands among tokens, as (first, behind the last); None where it does not.

    A typed token is found whole, words as a run.
    """
    wanted = " ".join(text.lower().split())
    for start, token in enumerate(tokens):
        joined = ""
        for end in range(start, len(tokens)):
            if end > start and (tokens[end].kind == "quoted" or token.kind == "quoted"):
                break
            joined = f"{joined} {tokens[end].text.lower()}".strip()
            if joined == wanted:
                return start, end + 1
            if not wanted.startswith(joined):
                break
    return None


@dataclass(frozen=True, slots=True)
class Match:
    """How a query fits a plan's own query.

    ``bound``: slot name -> text here. ``frame``: the query with the slots taken out. ``stray``: elements
    that vary and that no slot carries. ``fits``: whether every slot has a text here.
    """

    query: str
    bound: tuple[tuple[str, str], ...]
    frame: str
    stray: tuple[str, ...] = ()
    fits: bool = True

    def text(self, slot: str) -> str:
        """The text of a slot."""
        return dict(self.bound)[slot]


def match_query(own: str, query: str, slots: Sequence[Slot]) -> Match:
    """A query against the plan's own: what its slots hold there, and what else differs.

    Words that are only added or left out count as wording. A word that stands in another's place, and any
    number, date, name or quotation that differs, is an element that varies.
    """
    base, other = tokens_of(own), tokens_of(query)
    places = {slot.name: place_of(slot.text, base) for slot in slots}
    runs = {name: place for name, place in places.items() if place is not None}
    pairs = _aligned(base, other, runs)
    bound: list[tuple[str, str]] = []
    covered: set[int] = set()
    for slot in slots:
        run = runs.get(slot.name)
        there = pairs.get(run) if run else None
        if there is None or there[0] == there[1]:
            continue
        bound.append((slot.name, " ".join(token.text for token in other[there[0] : there[1]])))
        covered.update(range(*there))
    inner = {at for run in runs.values() for at in range(*run)}
    stray = _strays(base, other, inner, covered)
    frame = " ".join("<slot>" if at in covered else token.mask for at, token in enumerate(other))
    frame = re.sub(r"<slot>( <slot>)+", "<slot>", frame)
    return Match(query, tuple(bound), frame, stray, fits=len(bound) == len(slots))


def sentences_of(query: str) -> list[str]:
    """The sentences of a query, "then" between them left out."""
    parts = re.split(r"(?<=[.!?])\s+|\s*\b[Tt]hen:\s*", query)
    return [part.strip() for part in parts if part.strip()]


def best_match(own: str, query: str, slots: Sequence[Slot]) -> Match:
    """The whole query where it fits, else the first of its sentences that does, else the whole as it is.

    A request of several sentences can be served in part by a plan for one of them.
    """
    whole = match_query(own, query, slots)
    if whole.fits and not whole.stray:
        return whole
    parts = (match_query(own, part, slots) for part in sentences_of(query) if part != query)
    return next((part for part in parts if part.fits and not part.stray), whole)


def _aligned(
    base: Sequence[QueryToken], other: Sequence[QueryToken], runs: dict[str, tuple[int, int]]
) -> dict[tuple[int, int], tuple[int, int]]:
    """Where each run of the base stands in the other query."""
    found: dict[tuple[int, int], tuple[int, int]] = {}
    starts = {run[0]: run for run in runs.values()}
    folded: list[str] = []
    at, index = 0, {}
    while at < len(base):  # a run is one symbol, that equals nothing but a token of its kind
        index[len(folded)] = at
        run = starts.get(at)
        single = run is not None and run[1] - run[0] == 1 and base[at].kind != "word"
        folded.append(base[at].mask if run is None or single else f"<run {at}>")
        at = run[1] if run else at + 1
    masks = [token.mask for token in other]
    behind = {at: len(base) if at + 1 == len(folded) else index[at + 1] for at in index}
    # autojunk would ignore frequent words from 200 tokens on: long queries would align otherwise.
    for tag, i1, i2, j1, j2 in SequenceMatcher(None, folded, masks, autojunk=False).get_opcodes():
        if tag == "equal":
            for step in range(i2 - i1):
                found[index[i1 + step], behind[i1 + step]] = (j1 + step, j1 + step + 1)
        elif tag == "replace" and i2 - i1 == 1:
            if all(token.kind == "word" for token in other[j1:j2]) or j2 - j1 == 1:
                found[index[i1], behind[i1]] = (j1, j2)
        elif tag == "replace" and i2 - i1 == j2 - j1:
            for step in range(i2 - i1):
                found[index[i1 + step], behind[i1 + step]] = (j1 + step, j1 + step + 1)
    return _by_kind(base, other, runs, found)


def _by_kind(
    base: Sequence[QueryToken],
    other: Sequence[QueryToken],
    runs: dict[str, tuple[int, int]],
    found: dict[tuple[int, int], tuple[int, int]],
) -> dict[tuple[int, int], tuple[int, int]]:
    """Typed slots that the order of words left unmatched, matched by kind where there are as many of it."""
    if all(run in found for run in runs.values()):
        return found
    for kind in dict.fromkeys(token.kind for token in base if token.kind != "word"):
        here = [at for at, token in enumerate(base) if token.kind == kind]
        there = [at for at, token in enumerate(other) if token.kind == kind]
        if len(here) == len(there):
            found |= {(i, i + 1): (j, j + 1) for i, j in zip(here, there, strict=True)}
    return found


def _strays(
    base: Sequence[QueryToken], other: Sequence[QueryToken], inner: set[int], covered: set[int]
) -> tuple[str, ...]:
    """Elements outside the slots that vary: replaced words, and typed tokens that are not in both."""
    left = [token for at, token in enumerate(base) if at not in inner]
    right = [token for at, token in enumerate(other) if at not in covered]
    stray: list[str] = []
    words = [token.text.lower() for token in left if token.kind == "word"]
    theirs = [token.text.lower() for token in right if token.kind == "word"]
    for tag, i1, i2, j1, j2 in SequenceMatcher(None, words, theirs, autojunk=False).get_opcodes():
        if tag == "replace":
            stray.append(f"{' '.join(words[i1:i2])} / {' '.join(theirs[j1:j2])}")
    typed = [(token.kind, token.text.lower()) for token in left if token.kind != "word"]
    others = [(token.kind, token.text.lower()) for token in right if token.kind != "word"]
    for kind, text in [*typed, *others]:
        if typed.count((kind, text)) != others.count((kind, text)):
            stray.append(text)
    return tuple(dict.fromkeys(stray))


def structurally_different(first: Match, second: Match, differing: int = 2) -> bool:
    """Whether two queries of a plan differ in wording, or in at least ``differing`` of its slots."""
    if first.frame != second.frame:
        return True
    here, there = dict(first.bound), dict(second.bound)
    return sum(here[name] != there.get(name) for name in here) >= differing


def two_different(matches: Sequence[Match], differing: int = 2) -> bool:
    """Whether any two of the queries are structurally different."""
    return any(
        structurally_different(one, other, differing)
        for place, one in enumerate(matches)
        for other in matches[place + 1 :]
    )


def holds_text(query: str, text: str) -> bool:
    """Whether a query holds a text as whole words, letters' case aside."""
    return (
        bool(text.strip())
        and re.search(rf"(?<!\w){re.escape(text.strip())}(?!\w)", query, re.IGNORECASE) is not None
    )


def free_literals(values: Sequence[object], queries: Sequence[str]) -> tuple[str, ...]:
    """Values that stand in some of the queries but not in all: they were filled in, and belong in a slot.

    Values in none come from the environment; those in all are part of what the plan does. None, bools, 0, 1
    and -1 are left alone.
    """
    free: list[str] = []
    for value in values:
        if value is None or isinstance(value, bool) or value in (0, 1, -1):
            continue
        text = str(value)
        count = sum(holds_text(query, text) for query in queries)
        if 0 < count < len(queries):
            free.append(text)
    return tuple(dict.fromkeys(free))


def template(query: str, slots: Sequence[Slot]) -> str:
    """The plan's query with ``{name}`` where its slots are."""
    told = query
    # Longest first: a slot's text may be part of another's. Names put in already are not searched.
    for slot in sorted(slots, key=lambda one: -len(one.text)):
        found = re.search(rf"(?<![\w{{]){re.escape(slot.text)}(?![\w}}])", told, re.IGNORECASE)
        if found:
            told = told[: found.start()] + "{" + slot.name + "}" + told[found.end() :]
    return " ".join(told.split())
