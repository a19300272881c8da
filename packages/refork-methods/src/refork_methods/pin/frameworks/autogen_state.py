"""AutoGen's ``save_state`` files as recorded model calls.

A state holds the whole history of each agent and not what its model was shown. Every context is a pure
function of the history before a call, so given the agent's context the calls are rebuilt exactly; without it
nothing can be said of what was visible, and the reader refuses.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, final

from refork.compaction import CompactionResult
from refork.errors import BadInput, CannotDo, MissingExtra
from refork.settings import present_mark
from refork.types import Message
from refork_methods.pin.frameworks.autogen import AutoGenContextCompactor, PinnedContext
from refork_methods.pin.frameworks.autogen_messages import messages_of

try:
    from autogen_core.model_context import (
        BufferedChatCompletionContext,
        ChatCompletionContext,
        ChatCompletionContextState,
        HeadAndTailChatCompletionContext,
        UnboundedChatCompletionContext,
    )
    from pydantic import ValidationError
except ImportError as error:
    raise MissingExtra("autogen-core", "harness") from error


_HOMES = ("autogen_core.model_context", "refork_methods.pin.frameworks.autogen")


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

    ``context``: the agent's model context, as configured. ``system``: its system message, which is in no
    state. Where they are not given, the file must hold them beside the state: a ``dump_component()`` of the
    agent or team, or ``{"state": ..., "model_context": context.dump_component(), "system_message": ...}``.
    Few-shot assistant messages that the context was begun with are taken for answers.

    Raises:
        BadInput: the file holds no such state.
        CannotDo: neither the file nor ``context`` says what the model was shown.
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
    settings = dict(settings_of(state))
    if len(histories) == len(settings) == 1:  # a single agent's state does not hold its name
        histories = dict(zip(settings, histories.values(), strict=True))
    found: dict[str, tuple[RecordedCall, ...]] = {}
    for name, history in histories.items():
        if context is None and name not in settings:
            raise CannotDo(
                f"this state does not say what the model of {name!r} was shown",
                where=str(place),
                hint='save {"state": await agent.save_state(), "agent": '
                "agent.dump_component().model_dump()}, or give context=",
            )
        dumped, said = settings.get(name, (None, None))
        used = context if context is not None else context_of(dumped, name)
        found[name] = calls_in(history, used, system if system is not None else said)
    return found


def settings_of(state: Any, name: str = "agent") -> Iterator[tuple[str, tuple[Any, str | None]]]:
    """Every agent's name, dumped model context and system message, wherever a component was dumped."""
    if isinstance(state, list):
        for one in state:
            yield from settings_of(one, name)
    if not isinstance(state, Mapping):
        return
    if "model_context" in state:
        said = state.get("system_message")
        named = str(state.get("name") or name)
        yield named, (state["model_context"], str(said) if said else None)
        return
    for value in state.values():
        yield from settings_of(value, name)


def context_of(dumped: Any, where: str) -> ChatCompletionContext:
    """An empty context from its dumped component; None is AutoGen's default, which shows everything.

    Only AutoGen's own kinds are made, since a component's provider may name any class to import.
    Raises: CannotDo for another kind, and for a token limit, whose counting no file holds.
    """
    if dumped is None:
        return UnboundedChatCompletionContext()
    dump: Mapping[str, Any] = dumped if isinstance(dumped, Mapping) else {}
    config: Any = dump.get("config")
    provider = str(dump.get("provider", ""))
    home, _, kind = provider.rpartition(".")
    kind = kind if present_mark(home) in _HOMES else ""
    try:
        if kind == "BufferedChatCompletionContext":
            return BufferedChatCompletionContext(int(config["buffer_size"]))
        if kind == "HeadAndTailChatCompletionContext":
            return HeadAndTailChatCompletionContext(int(config["head_size"]), int(config["tail_size"]))
        if kind == "UnboundedChatCompletionContext":
            return UnboundedChatCompletionContext()
        if kind == "PinnedContext":
            return PinnedContext.of(config, context_of(config["context"], where))
    except (KeyError, TypeError, ValueError) as error:
        raise BadInput(f"this is no dumped {kind}: {error!r}", where=where) from error
    raise CannotDo(
        f"what a context of kind {provider!r} shows cannot be told from a file",
        where=where,
        hint="read it in Python with read_autogen_state(path, context=...)",
    )


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
    history: Sequence[Message], context: ChatCompletionContext, system: str | None = None
) -> tuple[RecordedCall, ...]:
    """The model calls behind a history: one before every assistant message."""
    lead: tuple[Message, ...] = ({"role": "system", "content": system, "id": "system"},) if system else ()
    compactor = AutoGenContextCompactor(context)
    calls: list[RecordedCall] = []
    for place, message in enumerate(history):
        before = list(history[:place])
        if message.get("role") != "assistant" or not (before or lead):
            continue
        result = compactor.compact(before)
        calls.append(RecordedCall((*lead, *result.messages), message, result if result.fired else None))
    return tuple(calls)
