"""What a turn in a search world can say: ``search: words``, ``open: number or title``, ``answer: items``."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Literal

from refork.thoughts import without_thoughts

_FENCE = re.compile(r"```[a-z]*\n(.*?)```", re.DOTALL)
_CALL = re.compile(r"\s*(search|open|answer)\s*:\s*(.*)", re.IGNORECASE | re.DOTALL)
_PAGE = re.compile(r"(.*?)\s*;\s*page\s+(\d{1,4})\s*", re.IGNORECASE | re.DOTALL)

#: Answers to what cannot be done.
NOTHING, NO_RESULTS, NO_PAGE = "nothing happens", "no results", "no such page"
TIME_UP = "time is up"


@dataclass(frozen=True, slots=True)
class Call:
    """One action: its verb, its words, and which page of the results is asked for."""

    verb: Literal["search", "open", "answer"]
    words: str
    page: int = 1


def read_action(text: str) -> Call | None:
    """The action of a policy's turn; None where it is none.

    Thoughts pass unread; so does all before the last fenced block, or else before the last line that begins
    with a verb.
    """
    said = without_thoughts(text)
    fenced = _FENCE.findall(said)
    body = (fenced[-1] if fenced else said).strip()
    lines = body.split("\n")
    last = max((i for i, line in enumerate(lines) if _CALL.match(line)), default=None)
    if last is None:
        return None
    found = _CALL.match("\n".join(lines[last:]))
    assert found is not None
    verb, words = found[1].lower(), " ".join(found[2].split()) if found[1].lower() != "answer" else found[2]
    if verb == "search":
        paged = _PAGE.fullmatch(words)
        if paged is not None:
            return Call("search", paged[1].strip(), int(paged[2]))
        return Call("search", words.strip())
    return Call("open" if verb == "open" else "answer", words.strip())
