"""Actions on a page, as text (``click 3``) or JSON (``{"action": "type", "ref": 4, "text": "words"}``)."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from typing import Final, final

from refork_worlds.screens.actions import action_in, is_number

SUBMIT: Final = "submit"
KINDS: Final = ("click", "type", "select", "back", "scroll", "open", SUBMIT)
SPACE: Final = "click N\ntype N: WORDS\nselect N: OPTION\nopen: PAGE\nback\nscroll down\nscroll up\nsubmit"
_TEXT = re.compile(
    r"(click|type|select|open|scroll|back|submit)\b\s*(\d*)\s*:?\s*(.*)", re.DOTALL | re.IGNORECASE
)
_NEEDS_REF = ("click", "type", "select")


@final
@dataclass(frozen=True, slots=True)
class Action:
    """What to do, at which reference, with which words."""

    kind: str
    ref: int | None = None
    text: str = ""


def parse(turn: str) -> Action | None:
    """The action of a policy's turn; None where it has none."""
    text = action_in(turn)
    if text.startswith("{"):
        return _from_json(text)
    matched = _TEXT.fullmatch(text)
    if matched is None:
        return None
    kind, ref, rest = matched[1].lower(), matched[2], matched[3].strip()
    if kind == "open":
        return Action(kind, None, f"{ref}{rest}")
    if ref and not is_number(ref):
        return None
    return _checked(Action(kind, int(ref) if ref else None, rest))


def _from_json(text: str) -> Action | None:
    try:
        found = json.loads(text)
    except (ValueError, RecursionError):
        return None
    ref = found.get("ref") if isinstance(found, dict) else None
    if not isinstance(found, dict) or not (ref is None or type(ref) is int):
        return None
    return _checked(Action(str(found.get("action")), ref, str(found.get("text", ""))))


def _checked(action: Action) -> Action | None:
    if action.kind not in KINDS or (action.ref is not None) != (action.kind in _NEEDS_REF):
        return None
    if action.kind in ("click", "back", SUBMIT) and action.text:
        return None
    if action.kind == "scroll" and action.text not in ("", "up", "down"):
        return None
    return action
