"""A scripted agent of MCP servers: plays a known solution, or calls tools by their schemas."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from typing import Any, final

from refork.types import Json
from refork.worlds.dice import Dice
from refork.worlds.environment import ActionObservation
from refork_worlds.tools.call import call_text
from refork_worlds.tools.mcp_changes import Listed, after

_WORD = re.compile(r'"([A-Za-z][\w .-]{0,30})"')
_NUMBER = re.compile(r"\b\d{1,6}\b")
_DEEPEST = 4
_MOST = 20


@final
class McpAgent:
    """Explores with arguments that fit the schemas, taken from what it has seen where that fits.

    One call in six leaves out a required argument. What it does is a function of what it has seen.
    """

    def __init__(
        self,
        tools: Sequence[Listed],
        submit: str,
        solution: Sequence[Json] | None,
        parts: tuple[object, ...],
        turns: int,
    ) -> None:
        self._tools, self._submit, self._parts = tools, submit, parts
        self._solution = None if solution is None else list(solution)
        self._length = min(turns - 1, 4 + Dice("mcp actor", *parts).below(5))

    def act(self, history: Sequence[ActionObservation]) -> str | None:
        """The next call; None once it has submitted."""
        turn = len(history)
        if self._solution is not None:
            if turn >= len(self._solution):
                return None
            return call_text(self._solution[turn]["name"], self._solution[turn].get("arguments"))
        if turn > self._length:
            return None
        tools = after(self._tools, (text for _, text in history))
        if turn == self._length or not tools:
            return call_text(self._submit)
        dice = Dice("mcp call", *self._parts, turn)
        tool = dice.choice(tools)
        known = "\n".join(text for _, text in history)
        return call_text(tool.name, self._arguments(tool.parameters, dice, known))

    def _arguments(self, schema: Json, dice: Dice, known: str) -> Json:
        needed = [str(name) for name in schema.get("required") or []]
        required = list(needed)
        if required and dice.below(6) == 0:
            required.remove(dice.choice(required))
        given: Json = {}
        for name, one in (schema.get("properties") or {}).items():
            if name in required or (name not in needed and dice.below(3) == 0):
                given[name] = _value(one, schema, dice, known)
        return given


def _value(one: Any, root: Json, dice: Dice, known: str, depth: int = 0) -> Any:
    """A value that a schema allows, as far as the common keywords say."""
    if not isinstance(one, dict) or depth > _DEEPEST:
        return None
    if "$ref" in one:
        name = str(one["$ref"]).rpartition("/")[2]
        return _value((root.get("$defs") or {}).get(name), root, dice, known, depth + 1)
    allowed = one.get("enum") or ([one["const"]] if "const" in one else [])
    if allowed:
        return dice.choice(allowed)
    for union in ("anyOf", "oneOf"):
        options = [o for o in one.get(union) or [] if isinstance(o, dict) and o.get("type") != "null"]
        if options:
            return _value(dice.choice(options), root, dice, known, depth + 1)
    kind = one.get("type")
    kind = next((k for k in kind if k != "null"), None) if isinstance(kind, list) else kind
    if kind in ("integer", "number"):
        return _number(one, dice, known)
    if kind == "boolean":
        return dice.below(2) == 1
    if kind == "array":
        count = min(max(_bound(one, "minItems", "", 1) or 0, 1), _MOST)
        return [_value(one.get("items"), root, dice, known, depth + 1) for _ in range(count)]
    if kind == "object":
        names = one.get("required") or []
        fields = one.get("properties") or {}
        return {name: _value(fields.get(name), root, dice, known, depth + 1) for name in names}
    return dice.choice(_WORD.findall(known) or ["a", "test", "name"])


def _number(one: Json, dice: Dice, known: str) -> int:
    """A whole number within the bounds: every other time one that was seen."""
    low = _bound(one, "minimum", "exclusiveMinimum", 1)
    high = _bound(one, "maximum", "exclusiveMaximum", -1)
    if low is None:
        low = 0 if high is None else min(0, high)
    high = low + 9 if high is None else high
    seen = [int(number) for number in _NUMBER.findall(known) if low <= int(number) <= high]
    if seen and dice.below(2):
        return dice.choice(seen)
    return low + dice.below(max(1, min(9, high - low + 1)))


def _bound(one: Json, closed: str, open_: str, inwards: int) -> int | None:
    """The whole number nearest to a bound that is within it; None where there is none."""
    found = []
    for name, step in ((closed, 0), (open_, inwards)):
        value = one.get(name)
        if isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value):
            whole = math.ceil(value) if inwards > 0 else math.floor(value)
            found.append(whole + (step if whole == value else 0))
    return (max(found) if inwards > 0 else min(found)) if found else None
