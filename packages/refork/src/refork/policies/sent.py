"""What of a recorded conversation goes to a chat server: the agent's own fields, and none of ours.

Messages of trees carry more than servers take: tool definitions (they go beside the messages), what a log
says of a message, ids. Strict servers refuse a key that they do not know, so what is sent is a list of what
the chat interface has, and what the log's own request is known to have held (``extra.sent``).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from refork.types import Json, Message

#: Keys of messages that the chat interface has, the thoughts that reasoning servers want back among them.
TAKEN: Final = frozenset(
    {"role", "content", "name", "tool_calls", "tool_call_id", "function_call", "refusal", "audio"}
    | {"reasoning_content", "reasoning"}
)
#: What logs say of a call beside the call.
_OF_A_CALL: Final = frozenset({"extra", "parse_error"})
#: The key of a conversation's first message under which a log's request stands (see ``recorded_request``).
REQUEST: Final = "request"
#: Parts of a request that are no part of what the agent asked for: whose model, which stream, what is ours.
NOT_KEPT: Final = frozenset(
    {"model", "messages", "tools", "seed", "n", "stream", "stream_options", "timeout"}
    | {"extra_headers", "extra_query", "extra_body"}
)


def sent_message(message: Mapping[str, Any]) -> Message:
    """A message as a server takes it."""
    extra = message.get("extra")
    more = extra.get("sent") if isinstance(extra, Mapping) else None
    kept = TAKEN | frozenset(more if isinstance(more, list) else ())
    made = {key: value for key, value in message.items() if key in kept}
    calls = made.get("tool_calls")
    if isinstance(calls, list) and any(isinstance(c, Mapping) and _OF_A_CALL & c.keys() for c in calls):
        made["tool_calls"] = [
            {key: value for key, value in call.items() if key not in _OF_A_CALL} for call in calls
        ]
    return made


def kept_request(body: Mapping[str, Any]) -> Json:
    """What of a request that a log recorded is sent again: all but messages, tools, and what is not kept."""
    more = body.get("extra_body")
    whole = {**body, **(more if isinstance(more, Mapping) else {})}
    return {key: value for key, value in whole.items() if key not in NOT_KEPT}


def recorded_request(messages: Sequence[Message]) -> Json | None:
    """The request of the log that a conversation goes on from; None where it is not known."""
    found = next((m[REQUEST] for m in messages if m.get(REQUEST) is not None), None)
    return found if isinstance(found, dict) else None
