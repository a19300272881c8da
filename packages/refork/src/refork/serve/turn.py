"""One chat answer that may call tools: what may be sent while it comes, and the message it makes."""

from __future__ import annotations

import json
import re
import uuid
from collections.abc import Sequence
from typing import final

from refork.policies.call_form import CallForm
from refork.serve.text import begun
from refork.tool_calls import read_calls
from refork.types import Json, Message

_TAG = "<tool_call>"
_THINKS, _THOUGHT = "<think>", "</think>"


@final
class TurnText:
    """Text of one answer. With ``tools``, what may be a call of one is held back until the end.

    A call is tagged (``<tool_call>``), or begins a line as JSON, in a fence, as a Python call of a tool or as
    a compact ``call NAME``; what a model thinks (``<think>``) is never a call. A text that turns out to call
    no tool that was offered is sent as it is. ``sent`` counts the characters that were given out. With a
    ``form`` a turn that calls is nothing but calls of that form, whose arguments stay as they are written.
    """

    def __init__(self, tools: Sequence[Json] = (), form: CallForm | None = None) -> None:
        self._names = {str((tool.get("function") or tool).get("name")) for tool in tools}
        self._form = form
        words = "|".join(re.escape(name) for name in sorted(self._names))
        self._begins = re.compile(
            rf"{_TAG}|^[ \t]*(?:[\[{{]|```|call[ \t]|(?:functions\.)?(?:{words})\()", re.MULTILINE
        )
        self._longest = max((len(name) for name in self._names), default=0) + len("functions.") + 2
        self._text = ""
        self.sent = 0
        self._found: int | None = None
        # Where what is said begins, once that is known, and up to where it was searched.
        self._start: int | None = None
        self._searched = 0

    def put(self, text: str) -> str:
        """Add what was said; what of it all may be sent now."""
        self._text += text
        if not self._names:
            safe = len(self._text)
        elif self._found is not None:
            safe = self._found
        else:
            safe = self._safe()
        if self._names and not self.sent and not self._text[:safe].strip():
            return ""  # white space before a call is no content
        sent, self.sent = self._text[self.sent : safe], max(self.sent, safe)
        return sent

    def _safe(self) -> int:
        """Where a call begins or may begin."""
        if self._start is None:
            # All that has come may still become the mark of a thought; no text at all may, too.
            if _THINKS.startswith(self._text.lstrip()):
                return 0
            # The mark that ends a thought may lie across what was searched and what is new.
            self._start = self._spoken(max(self._searched - len(_THOUGHT), 0))
        if self._start is None:
            # While it thinks nothing is a call; the end of the thought may be half there.
            self._searched = len(self._text)
            return len(self._text) - begun(self._text, _THOUGHT)
        # A position in place of a slice: `^` then still means where a line truly begins.
        begins = self._begins.search(self._text, max(self._start, self._searched))
        if begins is not None:
            self._found = begins.start()
            return self._found
        line = max(self._text.rfind("\n") + 1, self._start)
        rest = self._text[line:]
        if len(rest.lstrip()) <= self._longest:
            self._searched = line
            return line
        # The line is no call from its beginning on; a tag may be half there.
        self._searched = max(line, len(self._text) - len(_TAG))
        return len(self._text) - begun(self._text, _TAG)

    def _spoken(self, begin: int = 0) -> int | None:
        """Where the thoughts end, not before ``begin``; None: they have not."""
        if not self._text.lstrip().startswith(_THINKS):
            return 0
        end = self._text.find(_THOUGHT, begin)
        return None if end < 0 else end + len(_THOUGHT)

    def message(self) -> Message:
        """The whole message; its content begins with what was given out. Nothing follows."""
        if self._form is not None:
            written = self._form.read(self._text, sorted(self._names))
            if written:
                return _calling(None, [_call(name, arguments) for name, arguments in written])
        start = self._spoken() if self._names else None
        begins = None if start is None else self._begins.search(self._text, start)
        if begins is not None:
            found, _ = read_calls({"content": self._text[start:]})
            calls = [call for call in found if call.name in self._names]
            if calls:
                said = self._text[: begins.start()]
                made = [
                    _call(call.name, json.dumps(call.arguments, ensure_ascii=False), call.id)
                    for call in calls
                ]
                return _calling(said if said.strip() else None, made)
        return {"role": "assistant", "content": self._text}


def _calling(content: str | None, calls: list[Json]) -> Message:
    return {"role": "assistant", "content": content, "tool_calls": calls}


def _call(name: str, arguments: str, given: str | None = None) -> Json:
    return {
        "id": given or f"call_{uuid.uuid4().hex[:24]}",
        "type": "function",
        "function": {"name": name, "arguments": arguments},
    }
