"""The context before and after a compaction, message by message: kept, summarised, trimmed, written anew."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, TypeAlias

from refork.compaction import quotes
from refork.formats.openai_chat import text_of
from refork.types import Message
from refork_methods.pin.constraint import Constraint
from refork_methods.rot.session import ModelCall, SessionLog, content_ids

#: What became of a message. ``gone``: the log does not tell whether a summariser saw it. ``arrived``: it came
#: after the compaction and has nothing to do with it.
State: TypeAlias = Literal["kept", "summarised", "trimmed", "gone", "written", "arrived"]


@dataclass(frozen=True, slots=True)
class Line:
    """One message on one side of the diff; ``rules`` are those whose bytes it holds."""

    id: str
    role: str
    text: str
    state: State
    rules: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class ContextDiff:
    """The two contexts around the compaction before ``call`` (counted from 1)."""

    call: int
    reason: str
    before: tuple[Line, ...]
    after: tuple[Line, ...]


def context_diffs(log: SessionLog, rules: Sequence[Constraint] = ()) -> list[ContextDiff]:
    """A diff for every compaction of a session that is followed by a call."""
    return [
        _diff(number, log.calls[number - 1], log.calls[number], rules)
        for number in range(1, len(log.calls))
        if (done := log.calls[number].compaction) is not None and done.fired
    ]


def _diff(number: int, before: ModelCall, now: ModelCall, rules: Sequence[Constraint]) -> ContextDiff:
    done = now.compaction
    assert done is not None
    here, had = _ids(now.context), _ids(before.context)
    said = [m for m in now.context if m["id"] not in had and _same(m, before.answer)][:1]
    answer = said or (list(content_ids([before.answer])) if before.answer is not None else [])
    old = [*before.context, *answer]
    known = now.prompted or bool(done.calls)
    seen = set(done.seen)
    shown = {text_of(m) for call in done.calls for m in call.prompt}

    def left(message: Message) -> State:
        if message["id"] in here:
            return "kept"
        if not known:
            return "gone"
        return "summarised" if message["id"] in seen or text_of(message) in shown else "trimmed"

    new = set(done.inserted)

    def right(message: Message) -> State:
        if message["id"] in had or message in said:
            return "kept"
        return "written" if message["id"] in new else "arrived"

    return ContextDiff(
        number + 1,
        done.reason,
        tuple(_line(m, left(m), rules) for m in old),
        tuple(_line(m, right(m), rules) for m in now.context),
    )


def _ids(messages: Sequence[Message]) -> set[str]:
    return {str(m["id"]) for m in messages}


def _same(message: Message, answer: Message | None) -> bool:
    """Whether a message of a context is an earlier call's answer, which bears no id of its own."""
    return answer is not None and message.get("role") == "assistant" and text_of(message) == text_of(answer)


def _line(message: Message, state: State, rules: Sequence[Constraint]) -> Line:
    text = text_of(message)
    held = tuple(rule.id for rule in rules if quotes(text, rule.text))
    return Line(str(message["id"]), str(message.get("role", "")), text, state, held)
