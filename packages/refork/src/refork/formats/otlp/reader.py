"""OTLP JSON with GenAI spans, as an OpenTelemetry collector writes it to a file: a batch, or one a line.

The spans of one trace are one trajectory in the order of their beginnings. A span of a model's call is an
action; what it was shown beyond the call before it is an observation with the runs of tools that answered.
The agents that a span lies in, times, attributes and events that have no place in a tree stay in ``extra``.
Evaluations (``gen_ai.evaluation.result``) are scores. Log records are read as events of their spans.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, replace
from itertools import zip_longest
from typing import IO, Any, Final, final

from refork.errors import BadInput
from refork.formats.base import Head
from refork.formats.conversation import amount_of, asked_for, count_of, mapping, origin, settings_of
from refork.formats.grouped import Grouped
from refork.formats.log_reader import TraceReader, ancestors
from refork.formats.openai_chat import text_of
from refork.formats.otlp.batches import Event, Span, is_batch, logs_of, spans_of
from refork.formats.otlp.messages import INFERENCE_KIND, INFERENCE_KINDS, SpanMessages, span_messages
from refork.formats.sampled import finish_of
from refork.formats.spans import ModelCall, ToolRun, TracePath, goes_on, model_of
from refork.json_guard import parse_json
from refork.policies.base import Cost, Policy
from refork.tree.records import Record, Remark
from refork.tree.score import Producer, Score
from refork.types import Json, Message

#: What the writer says beside the conventions: the node a span was made of, and who gave a score.
NODE, PRODUCER = "refork.node", "refork.producer"
#: Sampling settings that are numbers, called the same in the conventions.
NUMBERS: Final = ("temperature", "top_p", "max_tokens", "presence_penalty", "frequency_penalty")
EVALUATION: Final = "gen_ai.evaluation.result"
#: OpenInference's; the conventions have no attribute for a price.
MONEY: Final = "llm.cost.total"
_CALLS: Final = ("chat", "text_completion", "generate_content", "completion")
_READ: Final = ("gen_ai.usage.input_tokens", "gen_ai.usage.prompt_tokens", "llm.token_count.prompt")
_WRITTEN: Final = (
    *("gen_ai.usage.output_tokens", "gen_ai.usage.completion_tokens", "llm.token_count.completion"),
)
_AGENTS: Final = ("invoke_agent", "create_agent", "invoke_workflow")
_BEGIN: Final = ('"resourceSpans"', '"resource_spans"', '"resourceLogs"', '"resource_logs"')


@final
class OTLP(TraceReader):
    """Reads traces of models and agents; spans of anything else are counted and left out."""

    name, label, parts = "otlp", "OpenTelemetry", "spans"
    order = 70

    def sniff(self, head: Head) -> bool:
        """Whether the file begins with a batch of OTLP."""
        if is_batch(head.first):
            return True
        start = head.text.lstrip()
        return start.startswith(("{", "[")) and any(name in start[:4096] for name in _BEGIN)

    def write(self, records: Iterable[Record], out: IO[str]) -> int:
        """Write records as :class:`.writer.OTLPWriter` does; returns how many lines."""
        from refork.formats.otlp.writer import OTLPWriter

        return OTLPWriter().write(records, out)

    def keep(self, grouped: Grouped, body: Json, where: str) -> Iterator[Remark]:
        """Keep the spans and log records of a batch by their traces."""
        if not is_batch(body):
            yield Remark("skipped", "this is no batch of OTLP", where)
            return
        try:
            for place, span in spans_of(body, where):
                if not grouped.add(span.trace, span.id, asdict(span)):
                    yield Remark("skipped", "another span of the same trace and id", place)
            for _, (trace, of, event) in logs_of(body, where):
                grouped.note(trace, of, asdict(event))
        except BadInput as error:
            yield Remark("skipped", f"the rest of a batch: {error.what}", error.where or where)
        except (TypeError, AttributeError, LookupError, ValueError, ArithmeticError, RecursionError) as error:
            yield Remark("skipped", f"the rest of a batch is not as OTLP has it: {error}"[:200], where)

    def trace(self, grouped: Grouped, trace: str) -> Iterator[Record]:
        """Drafts and scores of one trace."""
        yield from trace_records(trace, _spans(grouped, trace), self._policy)


def _spans(grouped: Grouped, trace: str) -> list[Span]:
    """The spans of a trace with the log records of each as events, in the order of their beginnings."""
    logs: dict[str, list[Event]] = {}
    for of, body in grouped.notes(trace):
        logs.setdefault(of, []).append(Event(**body))
    found = []
    for raw in grouped.members(trace):
        events = [*(Event(**one) for one in raw.pop("events")), *logs.get(raw["id"], [])]
        found.append(Span(**raw, events=sorted(events, key=lambda event: event.time)))
    return sorted(found, key=lambda span: span.start)


def trace_records(
    trace: str,
    spans: Sequence[Span],
    policy: Policy | None,
    form: str = "otlp",
    read: Callable[[Span], tuple[SpanMessages, Json, list[Event]]] = span_messages,
) -> Iterator[Record]:
    """Drafts and scores of one trace, and remarks on what of it has no place in a tree.

    ``form`` is the name of the format, ``read`` takes a call's messages out of its span.
    """
    by_id = {span.id: span for span in spans}
    operations = {span.id: operation(span) for span in spans}
    talks = {span.id: read(span) for span in spans if operations[span.id] == "call"}
    inner = _recorded_twice(talks, by_id, operations)
    if inner:
        what = "calls around calls: a framework recorded what its client recorded too"
        yield Remark("lost", what, f"trace {trace}", len(inner))
    calls = [span for span in spans if span.id in talks and span.id not in inner]
    tools = [span for span in spans if operations[span.id] == "tool"]
    agents = [span for span in spans if operations[span.id] == "agent"]
    if others := len(spans) - len(calls) - len(inner) - len(tools) - len(agents):
        yield Remark("lost", "spans of neither models, tools nor agents", f"trace {trace}", others)
    if not calls:
        yield Remark("skipped", "a trace without a call of a model", f"trace {trace}")
        return
    if silent := sum(not talk.inputs and not talk.outputs for talk, _, _ in talks.values()):
        yield Remark("lost", "messages of calls: their content was not captured", f"trace {trace}", silent)
    told = _SpanFacts(form, trace, spans[0].resource, by_id, {span.id for span in agents})
    definitions = next((talk.tools for talk, _, _ in talks.values() if talk.tools), None)
    made = [_call(span, *talks[span.id], told, definitions) for span in calls]
    if mended := _mended(made):
        what = "calls of tools: an answer does not have them, or not whole, and the next request repeats it"
        yield Remark("lost", what, f"trace {trace}", mended)
    if untold := sum(bool(one.inputs) and not one.outputs and not one.facts["error"] for one in made):
        yield Remark("lost", "answers of calls: neither an answer nor an error", f"trace {trace}", untold)
    model = model_of(made)
    service = (spans[0].resource.get("attributes") or spans[0].resource).get("service.name")
    came = origin(form, model, service=service) if model or service else None
    asked = calls_of_tools(calls, made, tools)
    ran = [_tool_run(span, told, asked.get(span.id)) for span in tools]
    trajectory = TracePath.of(made, definitions, ran, policy, came, f"{form}/{trace}")
    # A node that the writer named may be in several traces, and cannot tell of one.
    if NODE not in calls[-1].attributes:
        trajectory.last(told.of_trace(agents), _failed(agents, by_id))
    yield from trajectory.new_nodes
    for span in spans:
        key = told.key(by_id[inner.get(span.id, span.id)])
        yield from _scores(span, trajectory.scored_node(key, span.id))
        labels = [
            str(event.attributes.get("gen_ai.evaluation.name")) for event in span.events if _label(event)
        ]
        for label in labels:
            yield Remark("lost", f"an evaluation that is no number: {label}", f"trace {trace}")


def operation(span: Span) -> str | None:
    """``call``, ``tool`` or ``agent``; None for a span that is none of them."""
    if INFERENCE_KIND in span.attributes and "gen_ai.operation.name" not in span.attributes:
        return INFERENCE_KINDS.get(str(span.attributes[INFERENCE_KIND]))
    said = span.attributes.get("gen_ai.operation.name")
    kind = span.attributes.get("traceloop.span.kind", span.attributes.get("llm.request.type"))
    if said in _CALLS or kind in ("chat", "completion"):
        return "call"
    if said == "execute_tool" or kind == "tool":
        return "tool"
    if said in _AGENTS or kind in ("agent", "workflow"):
        return "agent"
    if said is None and any(
        key.startswith(("gen_ai.request.", "gen_ai.response.")) for key in span.attributes
    ):
        return "call"
    return None


@final
class _SpanFacts:
    """What a trace's spans say beside messages, as it is kept with nodes."""

    def __init__(
        self, form: str, trace: str, resource: Json, by_id: Mapping[str, Span], agents: set[str]
    ) -> None:
        self.form, self.trace, self.resource = form, trace, resource
        self._by_id, self._agents = by_id, agents

    def of_span(self, span: Span, attributes: Json, events: Sequence[Event]) -> Json:
        """A span without its messages, and the ids of the agents that it lies in."""
        above = ancestors(span, self._by_id, lambda one: one.parent)
        agents = [one.id for one in above if one.id in self._agents]
        kept: Json = {
            "id": span.id,
            "name": span.name,
            "kind": span.kind,
            "start": span.start,
            "end": span.end,
        }
        kept |= {"agents": agents} if agents else {}
        kept |= {"attributes": attributes} if attributes else {}
        kept |= {"events": [event.plain() for event in events]} if events else {}
        kept |= {"status": span.status} if span.status else {}
        kept |= {"scope": span.scope} if span.scope else {}
        kept |= {"resource": span.resource} if span.resource != self.resource else {}
        return kept | ({"other": span.other} if span.other else {})

    def of_trace(self, agents: Sequence[Span]) -> Json:
        """The trace itself: its id, its resource, its agents."""
        nested = [self.of_span(span, span.attributes, _unscored(span.events)) for span in agents]
        kept: Json = {"id": self.trace}
        kept |= {"resource": self.resource} if self.resource else {}
        return kept | ({"agents": nested} if nested else {})

    def key(self, span: Span) -> str:
        """The key of a call's node: its own id, or the node that the writer made the span of."""
        node = span.attributes.get(NODE)
        return f"{self.form}/{node}" if isinstance(node, str) else f"{self.form}/{span.trace}/{span.id}"


def _recorded_twice(
    talks: Mapping[str, tuple[SpanMessages, Json, list[Event]]],
    by_id: Mapping[str, Span],
    operations: Mapping[str, str | None],
) -> dict[str, str]:
    """Calls that a call lies in which gave the same answer, with nothing but chains between: they are one."""
    found: dict[str, str] = {}
    for id_, (talk, _, _) in talks.items():
        for above in reversed(ancestors(by_id[id_], by_id, lambda one: one.parent)):
            if operations[above.id] in ("tool", "agent"):
                break
            outer = talks[above.id][0] if above.id in talks and id_ not in found else None
            if outer is not None and list(map(text_of, outer.outputs)) == list(map(text_of, talk.outputs)):
                found[above.id] = id_
    return {outer: found.get(inner, inner) for outer, inner in found.items()}


def _mended(made: list[ModelCall]) -> int:
    """Complete answers whose calls of tools were left out or cut by what the next request repeats; how many.

    Instruments that put an answer together from a stream, or serialise another library's, lose them.
    """
    count = 0
    for at, one in enumerate(made):
        # Several answers are all told whole: none of them was put together.
        if len(one.outputs) != 1 or not _lacks_calls(one.outputs[0], one.choices):
            continue
        answer, place = one.outputs[0], len(one.inputs)
        for later in made[at + 1 :]:
            if len(later.inputs) > place and goes_on(one.inputs, later.inputs):
                shown = later.inputs[place]
                if (
                    shown["role"] == "assistant"
                    and shown.get("tool_calls")
                    and (shown.get("content") or "") == (answer.get("content") or "")
                ):
                    made[at] = replace(one, outputs=[{**answer, "tool_calls": shown["tool_calls"]}])
                    count += 1
                break
    return count


def _lacks_calls(answer: Message, choices: Sequence[Json]) -> bool:
    """Whether an answer should have calls of tools and has none, or has some without whole arguments."""
    calls = answer.get("tool_calls") or []
    if not calls:
        end = choices[0].get("extra", {}).get("finish_reason") if choices else None
        return not text_of(answer) or end in ("tool_calls", "tool_call", "tool_use", "function_call")
    try:
        for call in calls:
            parse_json(str(call["function"]["arguments"] or "{}").encode(), "")
    except BadInput:
        return True
    return False


def calls_of_tools(calls: Sequence[Span], made: Sequence[ModelCall], tools: Sequence[Span]) -> dict[str, str]:
    """Runs of tools that name no call, each with the earliest open call of its name and arguments."""
    named = {_told_by_tool(span)[0] for span in tools}
    open_: dict[tuple[str, str], list[tuple[int, str]]] = {}
    for span, one in zip(calls, made, strict=True):
        for call in one.outputs[0].get("tool_calls") or [] if one.outputs else []:
            if call.get("id") is not None and str(call["id"]) not in named:
                asked = _asked_of_tool(call["function"]["name"], call["function"].get("arguments"))
                open_.setdefault(asked, []).append((span.end, str(call["id"])))
    found: dict[str, str] = {}
    for span in tools:
        if _told_by_tool(span)[0] is None:
            name = span.attributes.get("gen_ai.tool.name", span.attributes.get("tool.name", span.name))
            given = span.attributes.get("gen_ai.tool.call.arguments", span.attributes.get("input.value"))
            waiting = open_.get(_asked_of_tool(name, given), [])
            if waiting and waiting[0][0] <= span.start:
                found[span.id] = waiting.pop(0)[1]
    return found


def _asked_of_tool(name: Any, given: Any) -> tuple[str, str]:
    """A tool's name and its arguments in one form of JSON: of a lone one its value, as some write it."""
    try:
        value = parse_json(given.encode(), "") if isinstance(given, str) else given
    except BadInput:
        value = given
    lone = next(iter(value.values())) if isinstance(value, Mapping) and len(value) == 1 else value
    return str(name), json.dumps(lone, sort_keys=True)


def _told_by_tool(span: Span) -> tuple[str | None, Any]:
    """The id of the call that a run answers, and its result; LangChain's message of a result has both."""
    call = span.attributes.get("gen_ai.tool.call.id", span.attributes.get("tool_call.id"))
    result = span.attributes.get("gen_ai.tool.call.result", span.attributes.get("output.value"))
    if call is not None:
        return str(call), result
    try:
        body = parse_json(result.encode(), "") if isinstance(result, str) and result[:1] == "{" else result
    except BadInput:
        return None, result
    inner = mapping(next((one for key in ("kwargs", "data") if (one := mapping(body).get(key))), body))
    return (
        (inner["tool_call_id"], inner.get("content"))
        if isinstance(inner.get("tool_call_id"), str)
        else (None, result)
    )


def _call(
    span: Span, talk: SpanMessages, attributes: Json, events: Sequence[Event], told: _SpanFacts, tools: Any
) -> ModelCall:
    attributes = {key: value for key, value in attributes.items() if key != NODE}
    reasons = attributes.get("gen_ai.response.finish_reasons")
    listed = reasons if isinstance(reasons, list) else []
    ends = [
        end if end is not None else (listed[number] if number < len(listed) else None)
        # A call whose answer was not captured says in its attributes why it ended.
        for number, end in enumerate(talk.ends or [None])
    ]
    kept = told.of_span(span, attributes, _unscored(events))
    # Most calls of a trace are offered the same tools, which stand with the task.
    kept |= {"tools": talk.tools} if talk.tools and talk.tools != tools else {}
    asked = asked_for(_parameters(attributes))
    fields: Json = {
        "policy": _name(attributes),
        "settings": _settings(attributes) or asked.get("settings"),
        "cost": Cost(
            tokens_in=count_of(attributes, *_READ),
            tokens_out=count_of(attributes, *_WRITTEN),
            # A time of 0 is one that nobody said.
            seconds=(span.end - span.start) / 1e9 if span.end > span.start > 0 else None,
            money=amount_of(attributes.get(MONEY)) or None,  # a price of 0 is one that nobody knew
        ),
        "error": _error(span),
        "extra": asked.get("extra", {}) | {"span": kept},
    }
    choices: list[Json] = [
        {
            "finish": finish_of(end),
            "extra": ({"finish_reason": end} if end else {}) | ({"answer": more} if more else {}),
        }
        for end, more in zip_longest(ends, talk.extras[: len(ends)])
    ]
    return ModelCall(told.key(span), talk.inputs, talk.outputs, fields, choices)


def _tool_run(span: Span, told: _SpanFacts, asked: str | None) -> ToolRun:
    call, result = _told_by_tool(span)
    call = asked if call is None else call
    message: Message | None = None
    if result is not None and call is not None:
        text = result if isinstance(result, str) else json.dumps(result, ensure_ascii=False)
        message = {"role": "tool", "tool_call_id": call, "content": text}
    kept = told.of_span(span, span.attributes, _unscored(span.events))
    return ToolRun(call, message, kept)


def _unscored(events: Sequence[Event]) -> list[Event]:
    return [event for event in events if not _graded(event) and not _label(event)]


def _graded(event: Event) -> bool:
    value = event.attributes.get("gen_ai.evaluation.score.value")
    return event.name == EVALUATION and isinstance(value, (int, float)) and not isinstance(value, bool)


def _label(event: Event) -> bool:
    return event.name == EVALUATION and not _graded(event)


def _scores(span: Span, node: str) -> Iterator[Record]:
    for event in span.events:
        if _graded(event):
            producer = _producer(event.attributes)
            name = str(event.attributes.get("gen_ai.evaluation.name") or "score")
            value = float(event.attributes["gen_ai.evaluation.score.value"])
            reason = event.attributes.get("gen_ai.evaluation.explanation")
            yield producer
            yield Score(node, name, value, producer.id, None if reason is None else str(reason))


def _producer(attributes: Json) -> Producer:
    """Who gave a score: as the writer says it, or the evaluation's label scale."""
    try:
        body = parse_json(attributes[PRODUCER].encode(), "")
        return Producer(str(body["name"]), str(body["version"]), dict(body["config"]))
    except (BadInput, LookupError, TypeError, ValueError, AttributeError):
        return Producer("otlp")


def _name(attributes: Json) -> str | None:
    names = ("gen_ai.response.model", "gen_ai.request.model", "llm.model_name")
    name = next((attributes[key] for key in names if attributes.get(key)), None)
    return None if name is None else str(name)


def _parameters(attributes: Json) -> Any:
    """The request's parameters as OpenInference has them: a JSON text; as an object from other readers."""
    given = attributes.get("llm.invocation_parameters")
    if isinstance(given, Mapping):
        return given
    try:
        return parse_json(given.encode(), "") if isinstance(given, str) else None
    except BadInput:
        return None


def _settings(attributes: Json) -> Json | None:
    """The request's sampling settings where they are all allowed; they stay among the attributes too."""
    given = {name: attributes.get(f"gen_ai.request.{name}") for name in NUMBERS}
    known: Json = {key: value for key, value in given.items() if isinstance(value, (int, float))}
    top_k = attributes.get("gen_ai.request.top_k")
    known |= {"top_k": int(top_k)} if isinstance(top_k, (int, float)) and top_k >= 1 else {}
    stop = attributes.get("gen_ai.request.stop_sequences")
    if isinstance(stop, list) and all(isinstance(one, str) for one in stop):
        known["stop"] = stop
    return settings_of(known)


def _error(span: Span) -> str | None:
    if span.status.get("code") != 2:
        return None
    raised = (event.attributes.get("exception.message") for event in span.events)
    words = (span.status.get("message"), *raised, span.attributes.get("error.type"))
    return str(next(filter(None, words), "error"))


def _failed(agents: Sequence[Span], by_id: Mapping[str, Span]) -> str | None:
    """What went wrong with the trace as a whole: the error of its outermost agent."""
    roots = [span for span in agents if span.parent not in by_id]
    return next((said for span in roots if (said := _error(span)) is not None), None)
