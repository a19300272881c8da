"""Actions on a MiniWoB page: those of the web world that one page has, and those of a mouse and a key."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final, final

from refork_worlds.screens.actions import action_in
from refork_worlds.web import actions as web

SPACE: Final = (
    "click N\ntype N: WORDS\nselect N: OPTION\npress KEY\nhover N\ndrag N to M\nscroll N: down\n"
    "scroll N: up\nclick at X Y\ndrag X Y to X Y\nwait"
)
#: Keys that can be pressed. None copies or pastes: the clipboard belongs to every episode of the browser.
KEYS: Final = frozenset(
    {
        "Enter",
        "Tab",
        "Shift+Tab",
        "Escape",
        "Backspace",
        "Delete",
        "Space",
        "Home",
        "End",
        "PageUp",
        "PageDown",
    }
    | {f"{held}Arrow{way}" for held in ("", "Shift+", "Control+") for way in ("Up", "Down", "Left", "Right")}
    | {f"Control+{letter}" for letter in "abiuz"}
)
_KEYS: Final = {key.lower(): key for key in KEYS}
_REF: Final = re.compile(r"(hover)\s+(\d{1,4})", re.IGNORECASE)
_SCROLL: Final = re.compile(r"scroll\s+(\d{1,4})\s*:?\s+(up|down)", re.IGNORECASE)
_DRAG: Final = re.compile(r"drag\s+(\d{1,4})\s+to\s+(\d{1,4})", re.IGNORECASE)
_AT: Final = re.compile(r"click\s+at\s+(\d{1,4})[ ,]+(\d{1,4})", re.IGNORECASE)
_LINE: Final = re.compile(r"drag\s+(\d{1,4})[ ,]+(\d{1,4})\s+to\s+(\d{1,4})[ ,]+(\d{1,4})", re.IGNORECASE)
_PRESS: Final = re.compile(r"press\s+(\S{1,20})", re.IGNORECASE)


@final
@dataclass(frozen=True, slots=True)
class Act:
    """What to do, to which elements (or at which pixels), with which words."""

    kind: str
    refs: tuple[int, ...] = ()
    text: str = ""
    at: tuple[int, ...] = ()


def parse(turn: str) -> Act | None:
    """The action of a policy's turn; None where it has none that a page of one screen can take."""
    text = action_in(turn)
    if text.lower() == "wait":
        return Act("wait")
    if found := _REF.fullmatch(text):
        return Act("hover", (int(found[2]),))
    if found := _SCROLL.fullmatch(text):
        return Act("scroll", (int(found[1]),), found[2].lower())
    if found := _DRAG.fullmatch(text):
        return Act("drag", (int(found[1]), int(found[2])))
    if found := _AT.fullmatch(text):
        return Act("click", at=(int(found[1]), int(found[2])))
    if found := _LINE.fullmatch(text):
        return Act("drag", at=tuple(int(found[n]) for n in range(1, 5)))
    if found := _PRESS.fullmatch(text):
        key = _KEYS.get(found[1].lower())
        return Act("press", text=key) if key else None
    wish = web.parse(turn)
    if wish is None or wish.ref is None:
        return None
    return Act(wish.kind, (wish.ref,), wish.text)
