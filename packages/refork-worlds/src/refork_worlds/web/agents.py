"""Scripted visitors: some know the built-in site and decide by what a page says, one looks around any."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, final

from refork.types import Json
from refork.worlds.dice import Dice
from refork.worlds.environment import ActionObservation
from refork_worlds.web.actions import SUBMIT
from refork_worlds.web.site import SUBJECTS, THINGS

#: Probability of a random action in a turn, by kind of visitor.
ERRS: Final = {"solve": 0.0, "err": 0.25, "explore": 0.8, "wander": 1.0}
NONSENSE: Final = ("click", "press the button", "click 99")
_STATES: Final = ("checked", "selected", "expanded", "disabled", "required")


@final
@dataclass(frozen=True, slots=True)
class Line:
    """An element as the text of a page has it."""

    ref: int
    role: str
    name: str
    rest: str


def lines(text: str) -> list[Line]:
    """The elements of a page's text that have a reference."""
    found = []
    for row in text.split("\n"):
        number, _, rest = row.partition(" ")
        role, _, rest = rest.partition(" ")
        if not number.isdigit():
            continue
        name = ""
        if rest.startswith("name "):
            name = re.split(r" (?:value|of) ", rest[5:])[0]
            while name.rpartition(" ")[2] in _STATES:
                name = name.rpartition(" ")[0]
        found.append(Line(int(number), role, name, rest))
    return found


def title_of(text: str) -> str:
    """The title in the text of a page."""
    return next((row[5:] for row in text.split("\n") if row.startswith("page ")), "")


@final
class Visitor:
    """A visitor with a request; it clicks where the page shows the next thing to do."""

    def __init__(self, data: Json | None, first: str, dice: Dice, turns: int) -> None:
        self._data, self._first, self._dice = data, first, dice
        self.kind = dice.choice(("solve", "solve", "err", "err", "explore")) if data else "wander"
        self._leaves = turns - 1 - dice.below(max(turns // 2, 1))

    def act(self, history: Sequence[ActionObservation]) -> str | None:
        """The next action; None after the verdict."""
        if history and history[-1][0].strip() == SUBMIT:
            return None
        text = history[-1][1] if history else self._first
        if self._data is None and len(history) >= self._leaves:
            return SUBMIT
        if self._dice.uniform() < ERRS[self.kind]:
            return self._strayed(text)
        return step(self._data or {}, text, [action for action, _ in history])

    def _strayed(self, text: str) -> str:
        if self._dice.uniform() < 0.05:
            return self._dice.choice(NONSENSE)
        options = ["back", "scroll down"]
        for one in lines(text):
            if one.role in ("textbox", "searchbox"):
                options += [f"type {one.ref}: {self._dice.choice((*THINGS, *SUBJECTS))}"]
            elif one.role == "combobox":
                choices = re.split(r" of ", one.rest)[-1].split(" ")
                options += [f"select {one.ref}: {self._dice.choice(choices)}"]
            else:
                options += [f"click {one.ref}"]
        return self._dice.choice(options)


_WHERE: Final = {"drop": "cart", "add": "list", "tick": "list", "send": "write"}


def step(data: Json, text: str, done: Sequence[str]) -> str:
    """What to do next on this page for the request of a task."""
    kind, args = data["kind"], data["args"]
    here, known = title_of(text), lines(text)
    home = f"item {args[1]}" if kind == "buy" else _WHERE.get(kind, "settings")
    if kind == "send" and here == "sent" and f"text {args[0]} to {args[1]}" in text:
        return SUBMIT
    if here != home:
        if kind == "buy" and here == "shop":
            return _click(known, "link", args[1])
        return _click(known, "link", "shop" if kind == "buy" else home)
    if kind == "buy":
        return _buy(args, text, known)
    if kind == "drop":
        gone = not any(one.name == f"remove {args[0]}" for one in known)
        return SUBMIT if gone else _click(known, "button", f"remove {args[0]}")
    if kind == "tick":
        box = _named(known, "checkbox", args[0])
        return SUBMIT if box is None or "checked" in box.rest.split(" ") else f"click {box.ref}"
    if kind == "add" and _named(known, "checkbox", args[0]):
        return SUBMIT
    if kind in ("add", "send"):
        return _fill(kind, args, known)
    return _settings(kind, args, text, known, done)


def _named(known: Sequence[Line], role: str, name: str) -> Line | None:
    return next((one for one in known if (one.role, one.name) == (role, name)), None)


def _click(known: Sequence[Line], role: str, name: str) -> str:
    found = _named(known, role, name)
    return SUBMIT if found is None else f"click {found.ref}"


def _value(one: Line) -> str:
    return one.rest.partition(" value ")[2].split(" ")[0]


def _buy(args: Sequence[str], text: str, known: Sequence[Line]) -> str:
    count = _named(known, "combobox", "count")
    if f"in cart {args[0]}" in text:
        return SUBMIT
    if count is not None and _value(count) != args[0]:
        return f"select {count.ref}: {args[0]}"
    return _click(known, "button", "add")


def _fill(kind: str, args: Sequence[str], known: Sequence[Line]) -> str:
    box = _named(known, "textbox", "new" if kind == "add" else "subject")
    if box is not None and _value(box) != args[0]:
        return f"type {box.ref}: {args[0]}"
    to = _named(known, "combobox", "to") if kind == "send" else None
    if to is not None and _value(to) != args[1]:
        return f"select {to.ref}: {args[1]}"
    return _click(known, "button", "add" if kind == "add" else "send")


def _settings(kind: str, args: Sequence[str], text: str, known: Sequence[Line], done: Sequence[str]) -> str:
    tab = _named(known, "tab", "mail" if kind == "news" else "profile")
    if tab is None or "selected" not in tab.rest.split(" "):
        return SUBMIT if tab is None else f"click {tab.ref}"
    role = {"news": "checkbox", "language": "combobox"}.get(kind, "textbox")
    box = _named(known, role, kind)
    if box is None:
        return SUBMIT
    if kind == "news":
        right = ("checked" in box.rest.split(" ")) == (args[0] == "on")
        change = f"click {box.ref}"
    else:
        right = _value(box) == args[0]
        change = f"{'select' if kind == 'language' else 'type'} {box.ref}: {args[0]}"
    if not right:
        return change
    save = _click(known, "button", "save")
    return SUBMIT if "saved" in text and done and done[-1] == save else save
