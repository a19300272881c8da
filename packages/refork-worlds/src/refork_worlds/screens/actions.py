"""Actions in the published formats: AndroidWorld's JSON, OSWorld's pyautogui lines and computer_13 JSON.

Source: arXiv 2405.14573 (AndroidWorld) and arXiv 2404.07972 (OSWorld), as their released code writes them.
"""

from __future__ import annotations

import ast
import json
import re
from typing import Any

from refork.thoughts import without_thoughts
from refork.types import Json

PHONE_ACTIONS = (
    "click", "long_press", "double_tap", "input_text", "keyboard_enter", "scroll", "swipe", "navigate_back",
    "navigate_home", "open_app", "wait", "answer", "status",
)  # fmt: skip
#: What ends or skips a turn on the desktop.
WORDS = ("DONE", "FAIL", "WAIT")

_FENCE = re.compile(r"```(?:[a-z_0-9]+[ \n])?(.*?)```", re.DOTALL | re.IGNORECASE)
_CALL = re.compile(r"(?:pyautogui\.)?(\w+)\((.*)\)", re.DOTALL)
#: pyautogui's functions, under the name that computer_13 gives to the same thing.
_NAMES = {
    "click": "CLICK",
    "leftClick": "CLICK",
    "doubleClick": "DOUBLE_CLICK",
    "rightClick": "RIGHT_CLICK",
    "write": "TYPING",
    "typewrite": "TYPING",
    "press": "PRESS",
    "hotkey": "HOTKEY",
    "scroll": "SCROLL",
    "moveTo": "MOVE_TO",
}
_ORDER = {"TYPING": ("text",), "PRESS": ("key",), "SCROLL": ("dy",)}
_ALIAS = {"message": "text", "keys": "key", "clicks": "dy", "interval": ""}


def action_in(turn: str) -> str:
    """The action in a policy's turn: its last fenced block, else what follows ``Action:``; no reasoning."""
    text = without_thoughts(turn)
    fenced = _FENCE.findall(text)
    if fenced:
        return str(fenced[-1]).strip()
    return text.rpartition("Action:")[2].strip()


def is_number(text: str) -> bool:
    """Whether a text is a whole number as policies write references, short enough for any index."""
    return text.isascii() and text.isdecimal() and len(text) <= 9


def phone_action(turn: str) -> Json | None:
    """The JSON action of a turn, ``{"action_type": "click", "index": 3}``; None where there is none."""
    text = action_in(turn)
    # Agents write words around their JSON.
    found = _object(text[text.find("{") : text.rfind("}") + 1])
    if found is None or found.get("action_type") not in PHONE_ACTIONS:
        return None
    index = found.get("index")
    if isinstance(index, str) and is_number(index):
        found["index"] = int(index)
    elif index is not None and (not isinstance(index, int) or isinstance(index, bool)):
        return None
    return found


def desktop_action(turn: str) -> Json | None:
    """A desktop action as ``{"action_type": "CLICK", "x": 40, "y": 80}``; None where the turn has none.

    pyautogui calls are read, never run. Of several calls only one is an action: more are refused.
    """
    text = action_in(turn)
    if text in WORDS:
        return {"action_type": text}
    if text.startswith("{"):
        found = _object(text)
        if found is None or not isinstance(found.get("action_type"), str):
            return None
        inner = found.get("parameters")
        given = inner if isinstance(inner, dict) else {k: v for k, v in found.items() if k != "action_type"}
        return {"action_type": found["action_type"].upper(), **given}
    lines = [
        part for part in re.split(r"[\n;]", text) if part.strip() and not part.strip().startswith("import")
    ]
    return _call(lines[0].strip()) if len(lines) == 1 else None


def _object(text: str) -> Json | None:
    try:
        found = json.loads(text)
    except (ValueError, RecursionError):
        return None
    return found if isinstance(found, dict) else None


def _call(text: str) -> Json | None:
    matched = _CALL.fullmatch(text)
    if matched is None or matched[1] not in _NAMES:
        return None
    name = _NAMES[matched[1]]
    try:
        call = ast.parse(f"f({matched[2]})", mode="eval").body
        if not isinstance(call, ast.Call) or any(one.arg is None for one in call.keywords):
            return None
        values: list[Any] = [ast.literal_eval(one) for one in call.args]
        named = {str(one.arg): ast.literal_eval(one.value) for one in call.keywords}
        str((values, named))  # raises where a number has more digits than Python writes
    except (SyntaxError, ValueError, TypeError, MemoryError, RecursionError):
        return None
    if name == "HOTKEY":
        return {"action_type": name, "keys": [str(one) for one in values]}
    order = _ORDER.get(name, ("x", "y"))
    found = dict(zip(order, values, strict=False))
    found |= {_ALIAS.get(key, key): value for key, value in named.items() if _ALIAS.get(key, key)}
    return {"action_type": name, **found}
