"""What an agent knows of the apps: conventions, where their documentation or a text states them.

The scripted agent reads documentation and memory by the same few sentences, so a text helps or misleads it
only by what the text says. A sentence that states nothing known is read and has no effect.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Literal

from refork.errors import BadInput

#: Topic -> its values, the right one of the usual version first, with the sentence that states each.
CONVENTIONS: dict[str, dict[str, str]] = {
    "first-page": {"0": "Page numbers start at 0.", "1": "Page numbers start at 1."},
    "unit": {
        "dollars": "Amounts are in dollars, whole numbers.",
        "cents": "Amounts are in cents, whole numbers.",
    },
    "playlist": {"name": "Playlists are given by name.", "id": "Playlists are given by id."},
    "paging": {"all": "Lists are paged: read every page.", "one": "Lists come whole: one page is enough."},
    "person": {
        "exact": "Several people have similar names: take the exact one.",
        "first": "Names are unique: take the first one found.",
    },
    "zone": {
        "named": "Times are UTC unless a zone such as +02:00 is given.",
        "omitted": "Times are home times: leave the zone out.",
    },
    "id": {"number": "People are given by user id, a number.", "name": "People are given by name."},
}
#: Purpose -> the words that tell it, the function that serves it, and its near duplicate that does not.
PURPOSES: dict[str, tuple[str, str, str]] = {
    "pay": ("send money to somebody", "pay.send", "pay.request"),
    "ask-money": ("ask somebody for money", "pay.request", "pay.send"),
    "find-message": ("find a message", "mail.search", "mail.list_inbox"),
    "clear-inbox": ("go through the inbox", "mail.list_inbox", "mail.search"),
    "add-line": ("add a line to a note", "notes.append", "notes.replace"),
    "find-song": ("find any song", "music.search", "music.list_library"),
    "own-songs": ("go through the songs of the library", "music.list_library", "music.search"),
}
TOPICS = (*CONVENTIONS, *PURPOSES)

_USE = re.compile(r"To ([a-z ]+), use ([a-z]+\.[a-z_]+)")
_NAMED = re.compile(r"\b(?:mail|pay|notes|calendar|music)\.[a-z_]+\b")
_MARKS = {
    "first-page": re.compile(r"[Pp]age numbers start at (0|1)\b"),
    "unit": re.compile(r"[Aa]mounts are in (dollars|cents), whole"),
    "playlist": re.compile(r"[Pp]laylists are given by (name|id)\b"),
    "id": re.compile(r"[Pp]eople are given by (user id|name)\b"),
}
_PHRASES = {
    ("paging", "all"): "read every page",
    ("paging", "one"): "one page is enough",
    ("person", "exact"): "take the exact one",
    ("person", "first"): "take the first one found",
    ("zone", "named"): "unless a zone",
    ("zone", "omitted"): "leave the zone out",
}


@dataclass(frozen=True, slots=True)
class Text:
    """An item of a memory that is read: a plan, a fact or a pitfall."""

    kind: Literal["plan", "fact", "pitfall"]
    body: str


def statement(topic: str, value: str) -> str:
    """The sentence that states a convention, or which function serves a purpose.

    Raises:
        BadInput: no such topic or value.
    """
    if topic in CONVENTIONS and value in CONVENTIONS[topic]:
        return CONVENTIONS[topic][value]
    if topic in PURPOSES and value in PURPOSES[topic][1:]:
        return f"To {PURPOSES[topic][0]}, use {value}."
    raise BadInput(f"{topic!r} cannot be {value!r}", where="miniapps", hint=f"topics: {', '.join(TOPICS)}")


def other_value(topic: str, value: str) -> str:
    """The one other value of a topic: what a wrong or an outdated text says.

    Raises:
        BadInput: no such topic or value.
    """
    statement(topic, value)
    values = tuple(CONVENTIONS[topic]) if topic in CONVENTIONS else PURPOSES[topic][1:]
    return values[1] if value == values[0] else values[0]


def beliefs(text: str) -> dict[str, str]:
    """What a text states: topic -> value. The last statement about a topic counts."""
    found: dict[str, str] = {}
    for topic, mark in _MARKS.items():
        for value in mark.findall(text):
            found[topic] = "number" if value == "user id" else value
    for (topic, value), phrase in _PHRASES.items():
        if phrase in text:
            found[topic] = value
    for words, function in _USE.findall(text):
        for purpose, (told, *functions) in PURPOSES.items():
            if words == told and function in functions:
                found[purpose] = function
    return found


def named_functions(text: str) -> tuple[str, ...]:
    """Functions that a text names, in order, each once."""
    return tuple(dict.fromkeys(_NAMED.findall(text)))


def documented(text: str) -> dict[str, str]:
    """What a documentation states of every topic; where it is silent, the usual version's value."""
    usual = {topic: next(iter(values)) for topic, values in CONVENTIONS.items()}
    return usual | {purpose: told[1] for purpose, told in PURPOSES.items()} | beliefs(text)


def advice_of(texts: Iterable[Text]) -> dict[str, str]:
    """What texts state together; a later text wins."""
    told: dict[str, str] = {}
    for text in texts:
        told |= beliefs(text.body)
    return told


def plan_for(sentence: str, texts: Iterable[Text]) -> Text | None:
    """The plan about a sentence: the one that has most of its words, and at least two thirds.

    Words in quotes, names and numbers are what instances differ in and do not count.
    """
    wanted = _words(sentence)
    best: tuple[float, Text] | None = None
    for text in texts:
        if text.kind == "plan" and wanted:
            share = len(wanted & _words(text.body)) / len(wanted)
            if share >= 2 / 3 and (best is None or share > best[0]):
                best = (share, text)
    return None if best is None else best[1]


def _words(text: str) -> frozenset[str]:
    plain = re.sub(r'"[^"]*"|\{[^}]*\}', " ", text)
    first = re.match(r"\s*([A-Za-z]+)", plain)
    lower = set(re.findall(r"(?<![\w.@])[a-z]{2,}(?![\w@])", plain))
    return frozenset(lower | ({first[1].lower()} if first else set()))


def spoiled(text: Text, topic: str, facts: Mapping[str, str]) -> Text:
    """The text with a wrong statement about a topic added: the defect that experiments put into a memory.

    ``facts`` is what holds (see :func:`documented`).
    """
    return Text(text.kind, f"{text.body} {statement(topic, other_value(topic, facts[topic]))}")
