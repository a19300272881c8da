"""JSON objects in text that a model wrote: fenced, with a trailing comma, in Python's notation, cut off."""

from __future__ import annotations

import ast
import json
import re

from refork.types import Json

#: Most objects that a text is searched for.
MOST = 100
_COMMA = re.compile(r",(\s*[}\]])")


def loose_objects(text: str) -> list[Json]:
    """Every outermost object of a text in order, mended where that changes no value; others are left out.

    What is mended: trailing commas, Python's quotes and constants, and a missing last brace. Of a text with
    more than ``MOST`` braces that open, the last ones count: what never closes is read again for each.
    """
    found: list[Json] = []
    starts = [mark.start() for mark in re.finditer(r"\{", text)]
    place = starts[-MOST] if len(starts) > MOST else 0
    while (start := text.find("{", place)) >= 0:
        end = _end(text, start)
        body = _read(text[start:end] if end is not None else text[start:].rstrip().rstrip("`, \n") + "}")
        if body is not None:
            found.append(body)
        place = start + 1 if body is None else (end if end is not None else len(text))
    return found


def _end(text: str, start: int) -> int | None:
    """Behind the brace that closes the one at ``start``; None where none does."""
    depth, quote, place = 0, "", start
    while place < len(text):
        character = text[place]
        if quote:
            if character == "\\":
                place += 1
            elif character == quote:
                quote = ""
        elif character == '"':
            quote = character
        elif character == "{":
            depth += 1
        elif character == "}":
            depth -= 1
            if depth == 0:
                return place + 1
        place += 1
    return None


def _read(text: str) -> Json | None:
    for candidate in (text, _COMMA.sub(r"\1", text)):
        for reader in (json.loads, ast.literal_eval):
            try:
                body = reader(candidate)
            except (ValueError, TypeError, SyntaxError, MemoryError, RecursionError):
                continue
            if isinstance(body, dict) and all(isinstance(key, str) for key in body):
                return body
    return None
