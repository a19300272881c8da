"""Elements of a screen and the one line of text that each is: kind, named fields, states, position."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeAlias, final

#: What an element does when it is used: a verb and what it is about.
Event: TypeAlias = tuple[str, ...]

_PLAIN = re.compile(r"[A-Za-z0-9._/:-]+(?: [A-Za-z0-9._/:-]+)*")


@final
@dataclass(frozen=True, slots=True)
class Element:
    """One node of a view hierarchy or accessibility tree.

    ``fields`` are named texts (text, desc, hint; name, value), ``at`` the middle of its box in pixels.
    ``click``, ``double`` and ``right``: what the mouse or a finger does to it; ``typed``: where keys go.
    """

    kind: str
    fields: tuple[tuple[str, str], ...] = ()
    states: tuple[str, ...] = ()
    at: tuple[int, int] | None = None
    click: Event = ()
    double: Event = ()
    right: Event = ()
    typed: Event = ()

    @property
    def label(self) -> str:
        """Its kind and its first field: ``Switch wifi``."""
        return " ".join([self.kind, *(word(value) for _, value in self.fields[:1] if value)])


def word(value: str) -> str:
    """A value as it stands in a line: bare where it is plain words, else in quotes as JSON."""
    return value if _PLAIN.fullmatch(value) else json.dumps(value, ensure_ascii=False)


def line(element: Element, index: int | None = None) -> str:
    """One line: ``3 Switch text wifi clickable checked`` or ``push-button name save at 300 200``."""
    parts = [] if index is None else [str(index)]
    parts.append(element.kind)
    for name, value in element.fields:
        if value:
            parts += [name, word(value)]
    parts += element.states
    if element.at is not None:
        parts += ["at", str(element.at[0]), str(element.at[1])]
    return " ".join(parts)


def listing(elements: Sequence[Element], *, numbered: bool) -> str:
    """The lines of all elements; ``numbered`` puts the index before each."""
    return "\n".join(line(one, number if numbered else None) for number, one in enumerate(elements))
