"""AutoGen's ``save_state`` files as recorded model calls.

A state holds the whole history of each agent and not what its model was shown. Every context is a pure function
of the history before a call, so given the agent's context the calls are rebuilt exactly; without it each call is
taken to have been shown everything.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, final

from ramify.core.compaction import CompactionResult
from ramify.core.errors import BadInput, MissingExtra
from ramify.core.types import Message
from ramify.operate.pin.frameworks.autogen import AutoGenContextCompactor
from ramify.operate.pin.frameworks.autogen_messages import messages_of

try:
    from autogen_core.model_context import ChatCompletionContext, ChatCompletionContextState
    from pydantic import ValidationError
except ImportError as error:
    raise MissingExtra("autogen-core", "harness") from error


@final
@dataclass(frozen=True, slots=True)
class RecordedCall:
    """One model call: what it was shown, its answer, and the compaction between history and context.

    ``compaction`` None: it was shown the whole history.
    """

    context: tuple[Message, ...]
    answer: Message
    compaction: CompactionResult | None


def read_autogen_state(
    path: str | Path, context: ChatCompletionContext | None = None, system: str | None = None
) -> dict[str, tuple[RecordedCall, ...]]:
    """The model calls of every agent in a JSON file that ``save_state`` of an agent, team or context gave.

    ``context``: the agent's model context, as configured. ``system``: its system message, which no state holds.
    Few-shot assistant messages that the context was begun with are taken for answers.

    Raises: BadInput where the file holds no such state.
    """
    place = Path(path)
    try:
        state = json.loads(place.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise BadInput(f"cannot read this as JSON: {error}", where=str(place)) from error
    histories = dict(histories_of(state))
    if not histories:
        raise BadInput(
            "this holds no messages of an AutoGen context",
            where=str(place),
            hint="write it with json.dump(await agent.save_state(), file)",
        )
    return {name: calls_in(history, context, system) for name, history in histories.items()}


def histories_of(state: Any, name: str = "agent") -> Iterator[tuple[str, list[Message]]]:
    """Every agent's name and whole history, ids by place, wherever in a nested state it is."""
    if not isinstance(state, Mapping):
        return
    if "messages" in state:
        found = _history(state, name)
        if found:
            yield name, found
        return
    for key, value in state.items():
        if key == "agent_states" and isinstance(value, Mapping):
            for agent, inner in value.items():
                yield from histories_of(inner, str(agent))
        elif key not in ("message_thread", "message_buffer"):
            yield from histories_of(value, name)


def _history(state: Mapping[str, Any], name: str) -> list[Message]:
    try:
        items = ChatCompletionContextState.model_validate(state).messages
    except ValidationError as error:
        raise BadInput(f"these are no messages of AutoGen: {error.errors()[0]['msg']}", where=name) from error
    bare = [(place, message) for place, item in enumerate(items) for message in messages_of(item)]
    # A message of several results is several of ours; they share its place.
    seen: dict[int, int] = {}
    named: list[Message] = []
    for place, message in bare:
        part = seen[place] = seen.get(place, -1) + 1
        named.append({**message, "id": f"m{place}" if part == 0 else f"m{place}.{part}"})
    return named


def calls_in(
    history: Sequence[Message], context: ChatCompletionContext | None = None, system: str | None = None
) -> tuple[RecordedCall, ...]:
    """The model calls behind a history: one before every assistant message."""
    lead: tuple[Message, ...] = ({"role": "system", "content": system, "id": "system"},) if system else ()
    compactor = AutoGenContextCompactor(context) if context is not None else None
    calls: list[RecordedCall] = []
    for place, message in enumerate(history):
        before = list(history[:place])
        if message.get("role") != "assistant" or not (before or lead):
            continue
        result = compactor.compact(before) if compactor is not None and before else None
        shown = result.messages if result is not None else tuple(before)
        fired = result if result is not None and result.fired else None
        calls.append(RecordedCall((*lead, *shown), message, fired))
    return tuple(calls)
