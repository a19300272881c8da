"""Reading the three lists of a plan out of what a model wrote.

Three forms are read, whatever reasoning stands before them: a JSON object with the three keys, the three
lists under their names (``model_id: [...]`` or ``model_id = [...]``), or just three lists at the end.
Items may be quoted with ' or ", or bare words.
"""

from __future__ import annotations

import json
import re
from typing import Any, TypeAlias, final

from refork.errors import BadInput

KEYS = ("model_id", "subtasks", "access_list")
#: A text, a number, or a list of such.
Item: TypeAlias = "str | int | list[Item]"
#: Longer than this is no plan; it bounds the work on what a model runs on to write.
LONGEST = 50_000
DEEPEST = 8

_THOUGHT = re.compile(r".*</think(?:ing)?>", re.DOTALL)
_KEYED = {key: re.compile(rf"[\"']?\b{key}s?\b[\"']?\s*[:=]\s*(?=\[)") for key in KEYS}
_ALL = re.compile(r"\s*[\"']?\ball\b[\"']?", re.IGNORECASE)
_NUMBER = re.compile(r"-?\d+\Z")
_BARE = re.compile(r"[^\[\],\"']+")
_ESCAPE = {"n": "\n", "t": "\t", "r": "\r"}


def three_lists(text: str) -> tuple[list[Item], list[Item], list[Item] | str]:
    """The lists of a plan as written, not yet checked; the last is a text where it says ``all`` once.

    Where a text holds several plans, the last whole one counts.

    Raises: BadInput where there are no three lists.
    """
    if len(text) > LONGEST:
        raise BadInput(f"a text of {len(text)} characters is no plan", hint=f"at most {LONGEST}")
    said = _THOUGHT.sub("", text, count=1)
    for read in (_as_json, _by_name, _at_the_end):
        found = read(said)
        if found is not None:
            return found
    raise BadInput("no plan was found", hint="three lists of equal length: " + ", ".join(KEYS))


def _as_json(text: str) -> tuple[list[Item], list[Item], list[Item] | str] | None:
    decoder = json.JSONDecoder()
    found = None
    for start in (m.start() for m in re.finditer(r"\{", text)):
        try:
            read, _ = decoder.raw_decode(text, start)
        except (ValueError, RecursionError):
            continue
        if isinstance(read, dict) and set(KEYS) <= set(read):
            found = read
    if found is None or not all(isinstance(found[key], list) for key in KEYS[:2]):
        return None
    access = found["access_list"]
    return (
        (found["model_id"], found["subtasks"], access)
        if isinstance(access, list) or _says_all(access)
        else None
    )


def _says_all(value: Any) -> bool:
    return isinstance(value, str) and value.strip().lower() == "all"


def _by_name(text: str) -> tuple[list[Item], list[Item], list[Item] | str] | None:
    names = list(_KEYED["model_id"].finditer(text))
    for begun in reversed(names):
        lists: list[list[Item]] = []
        place = begun.start()
        for key in KEYS:
            named = _KEYED[key].search(text, place)
            read = None if named is None else _whole_list(text, named.end())
            if read is None:
                break
            lists.append(read[0])
            place = read[1]
        if len(lists) == len(KEYS):
            return lists[0], lists[1], lists[2]
        spread = re.compile(r"[\"']?\baccess_list\b[\"']?\s*[:=]").search(text, place)
        if len(lists) == len(KEYS) - 1 and spread and _ALL.match(text, spread.end()):
            return lists[0], lists[1], "all"
    return None


def _at_the_end(text: str) -> tuple[list[Item], list[Item], list[Item] | str] | None:
    lists: list[list[Item]] = []
    place = 0
    while (start := text.find("[", place)) >= 0:
        read = _whole_list(text, start)
        if read is None:
            place = start + 1
            continue
        lists.append(read[0])
        place = read[1]
    # What stands after the last list may be an ending, not half of another list.
    return (lists[-3], lists[-2], lists[-1]) if len(lists) >= len(KEYS) else None


def _whole_list(text: str, start: int) -> tuple[list[Item], int] | None:
    try:
        return _Reader(text, start).read()
    except BadInput:
        return None


@final
class _Reader:
    """A list literal: brackets, commas, quoted texts, bare words and numbers."""

    def __init__(self, text: str, start: int) -> None:
        self._text, self._at = text, start

    def read(self) -> tuple[list[Item], int]:
        """The list that begins here, and where it ends. Raises BadInput where it is broken."""
        return self._list(0), self._at

    def _list(self, depth: int) -> list[Item]:
        if depth > DEEPEST:
            raise BadInput("these lists are nested too deep")
        self._at += 1
        items: list[Item] = []
        self._space()
        while self._now() != "]":
            items.append(self._item(depth))
            self._space()
            if self._now() == ",":
                self._at += 1
                self._space()
            elif self._now() != "]":
                raise BadInput("a list goes on without a comma")
        self._at += 1
        return items

    def _item(self, depth: int) -> Item:
        sign = self._now()
        if sign == "[":
            return self._list(depth + 1)
        if sign in "\"'":
            return self._quoted(sign)
        found = _BARE.match(self._text, self._at)
        if found is None:
            raise BadInput("a list has an empty item")
        self._at = found.end()
        word = found.group().strip()
        if not word:
            raise BadInput("a list has an empty item")
        return int(word) if _NUMBER.match(word) and len(word) < 10 else word

    def _quoted(self, mark: str) -> str:
        said: list[str] = []
        self._at += 1
        while (sign := self._now()) != mark:
            if sign == "\\":
                self._at += 1
                sign = _ESCAPE.get(self._now(), self._now())
            said.append(sign)
            self._at += 1
        self._at += 1
        return "".join(said)

    def _space(self) -> None:
        while self._at < len(self._text) and self._text[self._at].isspace():
            self._at += 1

    def _now(self) -> str:
        if self._at >= len(self._text):
            raise BadInput("a list does not end")
        return self._text[self._at]
