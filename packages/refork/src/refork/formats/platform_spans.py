"""What readers of observability platforms share: each span becomes one of OpenTelemetry's.

A platform says with :func:`platform_span` what its span is, was asked and said, under the names of the GenAI
and OpenInference conventions; traces, tools, agents and scores are then read as those of OTLP are.
"""

from __future__ import annotations

import json
import re
from abc import abstractmethod
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any, ClassVar, Final, Literal

from refork.errors import BadInput
from refork.formats.conversation import amount_of, count_of, mapping
from refork.formats.grouped import Grouped
from refork.formats.langsmith import asked_and_said
from refork.formats.log_reader import TraceReader
from refork.formats.otlp.batches import Event, Span
from refork.formats.otlp.messages import SpanMessages
from refork.formats.otlp.reader import EVALUATION, MONEY, PRODUCER, operation, trace_records
from refork.formats.provider_messages import chat_answer, chat_request, chat_tool
from refork.json_guard import parse_json
from refork.tree.records import Record, Remark
from refork.tree.score import Producer
from refork.types import Json, Message

Kind = Literal["call", "tool", "agent"]

ASKED, SAID = "input.value", "output.value"
_OPERATIONS: Final[dict[Kind, str]] = {"call": "chat", "tool": "execute_tool", "agent": "invoke_agent"}
#: What a call's input and output say elsewhere: as messages, tools, parameters, counts.
_READ: Final = frozenset({"messages", "prompts", "prompt", "input", "tools", "system"})
_SAID: Final = frozenset({"choices", "generations", "messages", "output", "content", "role", "tool_calls"})


class PlatformReader(TraceReader):
    """A reader of a platform's spans, whose pictures may lie in files elsewhere."""

    parts = "spans"
    #: A reference to such a file in the JSON of a message; None where pictures stand in the messages.
    elsewhere: ClassVar[re.Pattern[str] | None] = None

    @abstractmethod
    def spans(self, raws: Sequence[Json], trace: str) -> Iterator[Span | Remark]:
        """The spans of one trace, from what was kept of it; remarks on parts that are none."""

    def messages(self, span: Span) -> tuple[SpanMessages, Json, list[Event]]:
        """The conversation of a call, and the attributes and events that are no part of it."""
        return platform_messages(span)

    def trace(self, grouped: Grouped, trace: str) -> Iterator[Record]:
        """Drafts and scores of one trace."""
        found = list(self.spans(list(grouped.members(trace)), trace))
        yield from (one for one in found if isinstance(one, Remark))
        spans = sorted((one for one in found if isinstance(one, Span)), key=lambda one: (one.start, one.end))
        by_id = {span.id: span for span in spans}
        if not spans:
            yield Remark("skipped", "a trace without a span", f"trace {trace}")
            return
        # What is said of the trace as a whole is said of its outermost span.
        root = next((one for one in spans if one.parent not in by_id), spans[0])
        for of, note in grouped.notes(trace):
            if (span := root if of == "" else by_id.get(of)) is not None:
                span.events.append(Event(**note))
            else:
                yield Remark("lost", "a score of a span that the file does not have", f"trace {trace}")
        _root_is_agent(spans, by_id)
        known: dict[tuple[int, str], Message] = {}
        pictures: set[str] = set()

        def read(span: Span) -> tuple[SpanMessages, Json, list[Event]]:
            talk, attributes, events = self.messages(span)
            if self.elsewhere is not None:
                talk.inputs = [
                    self._same(number, message, known, pictures) for number, message in enumerate(talk.inputs)
                ]
            return talk, attributes, events

        yield from trace_records(trace, spans, self._policy, self.name, read)
        if pictures:
            yield Remark("lost", "pictures: the file names them", f"trace {trace}", len(pictures))

    def _same(
        self, number: int, message: Message, known: dict[tuple[int, str], Message], pictures: set[str]
    ) -> Message:
        """A message, or the equal one that was shown at its place before, whose pictures had other names."""
        text = json.dumps(message, sort_keys=True)
        assert self.elsewhere is not None
        bare = self.elsewhere.sub("", text)
        if bare == text:
            return message
        kept = known.setdefault((number, bare), message)
        pictures.update(self.elsewhere.findall(json.dumps(kept, sort_keys=True)))
        return kept


def _root_is_agent(spans: Sequence[Span], by_id: Mapping[str, Span]) -> None:
    """Take a trace's outermost span, where it is nothing else, as the agent: it says what the trace is."""
    for span in spans:
        if span.parent not in by_id and operation(span) is None:
            span.attributes["gen_ai.operation.name"] = "invoke_workflow"


def platform_span(
    id_: str,
    trace: str,
    parent: Any,
    name: Any,
    kind: Kind | None,
    times: tuple[int, int],
    asked: Any,
    said: Any,
    *,
    model: Any = None,
    parameters: Any = None,
    tools: Any = None,
    tokens: tuple[int | None, int | None] = (None, None),
    money: Any = None,
    finish: Any = None,
    error: Any = None,
    events: Iterable[Event] = (),
    rest: Mapping[str, Any] | None = None,
) -> Span:
    """A span under the conventions' names; ``times`` in nanoseconds, ``rest`` what a platform says beside."""
    named: Json = {
        "gen_ai.operation.name": None if kind is None else _OPERATIONS[kind],
        "gen_ai.response.model": model,
        "gen_ai.usage.input_tokens": tokens[0],
        "gen_ai.usage.output_tokens": tokens[1],
        MONEY: money,
        "gen_ai.response.finish_reasons": [finish] if isinstance(finish, str) else None,
        "gen_ai.tool.definitions": tools or None,
        "llm.invocation_parameters": dict(parameters) if isinstance(parameters, Mapping) else None,
        ASKED: asked,
        SAID: said,
    }
    given = mapping(asked)
    if kind == "tool" and set(given) == {"args", "kwargs"} and not given["args"]:
        # A decorator of functions wrote what it was called with.
        named["gen_ai.tool.call.arguments"] = given["kwargs"]
    attributes = {key: value for key, value in named.items() if value is not None}
    others = {key: value for key, value in (rest or {}).items() if value not in (None, [], {}, "")}
    status: Json = {"code": 2, "message": str(error)} if error else {}
    return Span(
        trace, id_, str(parent) if parent else None, str(name or ""), 0, *times,
        attributes, list(events), status, other=others,
    )  # fmt: skip


def platform_messages(span: Span) -> tuple[SpanMessages, Json, list[Event]]:
    """The conversation of a call, and its attributes without it.

    Raises:
        BadInput: a message is none.
    """
    attributes = dict(span.attributes)
    asked, said = chat_request(attributes.pop(ASKED, None)), chat_answer(attributes.pop(SAID, None))
    talk = asked_and_said(asked, said)
    offered = attributes.pop("gen_ai.tool.definitions", None) or mapping(asked).get("tools")
    tools = list(map(chat_tool, offered)) if isinstance(offered, list) and offered else None
    given = {key: value for key, value in mapping(asked).items() if key not in _READ and value is not None}
    stated = mapping(attributes.get("llm.invocation_parameters"))
    # A text stands for no limit, or for what a library was not given.
    parameters = {
        key: value for key, value in {**given, **stated}.items() if value not in ("Infinity", "NOT_GIVEN") and key not in ("tools", "instructions")
    }
    attributes |= {"llm.invocation_parameters": parameters} if parameters else {}
    answer = {key: value for key, value in mapping(said).items() if key not in _SAID and value is not None}
    attributes |= {"answer": answer} if answer else {}
    for name, *others in (
        ("input", "input_tokens", "prompt_tokens"),
        ("output", "output_tokens", "completion_tokens"),
    ):
        counted = count_of(talk.usage, *others)
        if counted is not None:
            attributes.setdefault(f"gen_ai.usage.{name}_tokens", counted)
    if model := talk.model or given.get("model"):
        attributes.setdefault("gen_ai.response.model", model)
    return (
        SpanMessages(talk.inputs, talk.outputs, talk.ends, tools, talk.extras),
        attributes,
        list(span.events),
    )


def graded(producer: Producer, name: Any, value: Any, reason: Any = None) -> Json:
    """A score as the event of the conventions; one that is no number keeps its name alone."""
    number = amount_of(float(value) if isinstance(value, bool) else value)
    told = {
        "gen_ai.evaluation.name": str(name),
        "gen_ai.evaluation.score.value": number,
        "gen_ai.evaluation.explanation": reason or None,
        PRODUCER: json.dumps(
            {"name": producer.name, "version": producer.version, "config": dict(producer.config)}
        ),
    }
    attributes = {key: one for key, one in told.items() if one is not None}
    return {"name": EVALUATION, "time": 0, "attributes": attributes}


def tool_names(offered: Iterable[Any]) -> set[str]:
    """The names of the tools that models were offered."""
    tools = (tool for listed in offered if isinstance(listed, list) for tool in listed)
    named = (mapping(mapping(tool).get("function") or tool).get("name") for tool in tools)
    return {name for name in named if isinstance(name, str)}


def nanoseconds(raw: Any) -> int:
    """A moment as nanoseconds since 1970, from an ISO time (UTC where it names no zone) or a number.

    A number is of seconds, milliseconds, microseconds or nanoseconds by its size; 0 where none is said.
    """
    if isinstance(raw, str):
        try:
            moment = datetime.fromisoformat(raw)
        except ValueError:
            return 0
        moment = moment if moment.tzinfo is not None else moment.replace(tzinfo=UTC)
        since = moment - datetime(1970, 1, 1, tzinfo=UTC)
        return max(0, (since.days * 86400 + since.seconds) * 10**9 + since.microseconds * 1000)
    number = amount_of(raw)
    if number is None or not 0 < number < 2**64:
        return 0
    unit = next((unit for end, unit in ((1e11, 9), (1e14, 6), (1e17, 3)) if number < end), 0)
    return round(raw * 10**unit)


def unquoted(raw: Any) -> Any:
    """What the JSON text of an object, a list or a text says; any other value as it is."""
    if not isinstance(raw, str) or raw[:1] not in ("{", "[", '"'):
        return raw
    try:
        return parse_json(raw.encode(), "")
    except BadInput:
        return raw


