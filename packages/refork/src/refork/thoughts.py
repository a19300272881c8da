"""Reasoning that a turn carries in tags, and the turn without it."""

from __future__ import annotations

import re

_TAG = re.compile(r"<(/?)\s*(?:think|thinking|thought|thoughts|reasoning|reflection)\s*>", re.IGNORECASE)


def without_thoughts(text: str) -> str:
    """The text without its tagged reasoning (see :func:`without_blocks`), stripped of white space."""
    return without_blocks(text, _TAG).strip()


def without_blocks(text: str, tag: re.Pattern[str]) -> str:
    """The text without the blocks between tags, nested ones included.

    A tag closes a block where its pattern's first group is not empty. A block that is never closed reaches
    to the end; one that is closed but never opened (a chat template opened it in the prompt) began with the
    text.
    """
    kept: list[str] = []
    depth = at = 0
    for mark in tag.finditer(text):
        if depth == 0:
            kept.append(text[at : mark.start()])
        if not mark.group(1):
            depth += 1
        elif depth:
            depth -= 1
        else:
            kept.clear()
        at = mark.end()
    return "".join([*kept, text[at:] if depth == 0 else ""])
