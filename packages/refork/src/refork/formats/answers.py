"""Several answers to one prompt: the prompt's nodes are shared, each answer is a branch with its scores."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import groupby
from typing import Any, Final, final

from refork.errors import BadInput
from refork.formats.conversation import graded, message_of
from refork.formats.openai_chat import OpenAIChat
from refork.formats.sampled import draft_id
from refork.tree.node import NewNode
from refork.tree.records import Record
from refork.tree.score import Producer
from refork.types import Json, Message

#: The score of a preference: 1 for the chosen answer, 0 for the rejected one.
PREFERRED: Final = "preferred"

_FORM: Final = {
    "role",
    "content",
    "tool_calls",
    "tool_call_id",
    "name",
    "reasoning",
    "reasoning_content",
}


@final
@dataclass(frozen=True, slots=True)
class GradedAnswer:
    """One answer: its name in the row, messages, scores of its end, further fields of each of its turns."""

    side: str
    messages: Sequence[Message]
    scores: Mapping[str, Any] = field(default_factory=dict)
    facts: Sequence[Json] = ()


def answered(
    chat: OpenAIChat,
    prompt: Sequence[Message],
    answers: Sequence[GradedAnswer],
    rest: Json,
    line: str,
    where: str,
    producer: Producer,
) -> Iterator[Record]:
    """Records of a prompt and its answers; ``rest`` is kept with each answer's end, tools with the prompt.

    Raises:
        BadInput: an answer without a message.
    """
    for answer in answers:
        if not answer.messages:
            raise BadInput(f"{answer.side} has no message", where=where)
        before = sum(message["role"] == "assistant" for message in prompt)
        # Facts go to assistant turns in order, and those of the prompt come first.
        told = [*({} for _ in range(before)), *answer.facts]
        new_nodes = list(chat.drafts([*prompt, *answer.messages], rest, line, where, facts=told))
        own = branched(new_nodes, shared(prompt, answer.messages), f"{line}/{answer.side}")
        yield from graded(own, producer, answer.scores)


def shared(prompt: Sequence[Message], answer: Sequence[Message]) -> int:
    """How many nodes of a conversation hold nothing but its prompt."""
    if not prompt:
        return 0
    said = [message["role"] == "assistant" for message in prompt]
    # An assistant message is a node, a run of others is one; a prompt that begins with an answer has an empty
    # task before it.
    runs = sum(len(list(run)) if key else 1 for key, run in groupby(said))
    count = runs + (1 if said[0] else 0)
    # What is shown at the prompt's end and at the answer's beginning is one node, and not the prompt's alone.
    return count if said[-1] or answer[0]["role"] == "assistant" else count - 1


def branched(new_nodes: Sequence[NewNode], start: int, name: str) -> list[NewNode]:
    """A trajectory's drafts, those from ``start`` on under keys of their own."""
    made = list(new_nodes[:start])
    above = None if start == 0 else draft_id(made[-1])
    for number, new_node in enumerate(new_nodes[start:]):
        key = f"{name}/{number}"
        made.append(replace(new_node, key=key, parent=above))
        above = draft_id(made[-1])
    return made


def messages_of(raw: Any, role: str, where: str, part: str) -> list[Message]:
    """A text said by ``role``, a message, or messages.

    Raises:
        BadInput: none of these.
    """
    if isinstance(raw, str):
        return [{"role": role, "content": raw}]
    if isinstance(raw, Mapping):
        raw = [raw]
    if not isinstance(raw, list):
        raise BadInput(f"{part} is neither text nor messages", where=where)
    return [whole_message(one, f"{where}, {part} message {at}") for at, one in enumerate(raw, start=1)]


def whole_message(raw: Any, where: str) -> Message:
    """A message in OpenAI's form, keys that this form does not know kept as they are; raises BadInput."""
    made = message_of(raw, where)
    return {**{key: value for key, value in raw.items() if key not in _FORM and value is not None}, **made}
