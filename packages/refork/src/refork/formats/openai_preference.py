"""OpenAI's preference data: a line is an input, a preferred output and one that is not.

Both outputs are branches of one prompt; the score ``preferred`` tells them apart. The keys of older
fine-tuning requests (``preferred_completion``) are read too.

Source: OpenAI's guide to direct preference optimisation and its API reference, read in 2026.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final, final

from refork.errors import BadInput
from refork.formats.answers import PREFERRED, GradedAnswer, answered, messages_of
from refork.formats.base import Head
from refork.formats.log_reader import LogReader
from refork.tree.records import Record, Remark
from refork.tree.score import Producer
from refork.types import Json

_CHOSEN: Final = ("preferred_output", "preferred_completion")
_REJECTED: Final = ("non_preferred_output", "non_preferred_completion")
_KEYS: Final = (*_CHOSEN, *_REJECTED, "input")


@final
class OpenAIPreference(LogReader):
    """Reads OpenAI preference JSONL; token ids are recorded where a policy is given to tokenise with."""

    name, label = "openai-preference", "OpenAI's preference data"
    order = 60

    def sniff(self, head: Head) -> bool:
        """Whether the first line has an input and two outputs."""
        start = head.text.lstrip()[:65536]
        if isinstance(head.first, dict):
            return "input" in head.first and any(key in head.first for key in _CHOSEN)
        return (
            start.startswith(("{", "["))
            and '"input"' in start
            and any(f'"{key}"' in start for key in _CHOSEN)
        )

    def item(self, body: Json, name: str, where: str) -> Iterator[Record]:
        """Drafts and scores of one preference."""
        given = body.get("input")
        if not isinstance(given, dict):
            raise BadInput("a preference has an input with messages", where=where)
        prompt = messages_of(given.get("messages"), "user", where, "input")
        if not prompt:
            raise BadInput("the input has no messages", where=where)
        sides = []
        for keys, value in ((_CHOSEN, 1.0), (_REJECTED, 0.0)):
            key = next((key for key in keys if body.get(key) is not None), keys[0])
            messages = messages_of(body.get(key), "assistant", where, key)
            sides.append(GradedAnswer(key, messages, {PREFERRED: value}))
        rest = {key: value for key, value in given.items() if key != "messages"}
        tools = rest.pop("tools", None)
        kept = {key: value for key, value in body.items() if key not in _KEYS}
        kept |= {"input": rest} if rest else {}
        kept |= {"tools": tools} if tools else {}
        yield Remark("lost", "token ids, log-probs and times: the file has none", where)
        producer = Producer("openai-preference")
        yield from answered(self._chat, prompt, sides, kept, f"preference/{name}", where, producer)
