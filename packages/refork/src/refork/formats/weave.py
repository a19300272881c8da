"""Calls of Weave: what ``client.get_calls()`` gives, the UI exports and the service's API streams.

A file is JSON lines or an array of calls, or ``{"calls": [...]}``. What a call is, its attributes say; where
they do not, one that spent tokens by itself is a call of a model, and one that has the name of a tool that
the model was offered is a run of it. Feedback that is a number is a score (``include_feedback=True``), and so
are the scores of an evaluation.

Source: ``weave`` 0.54 (``Call.to_dict``, its service's ``/calls/stream_query``).
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final, final

from refork.formats.base import Head
from refork.formats.conversation import amount_of, count_of, mapping
from refork.formats.grouped import Grouped
from refork.formats.otlp.batches import Span
from refork.formats.platform_spans import Kind, PlatformReader, graded, nanoseconds, platform_span, tool_names, unquoted
from refork.tree.records import Remark
from refork.tree.score import Producer
from refork.types import Json

_KINDS: Final[dict[str, Kind]] = {"llm": "call", "tool": "tool", "agent": "agent"}
_CHAIN: Final[dict[str, Kind]] = {"Llm": "call", "Tool": "tool"}
_OP: Final = re.compile(r".*/op/([^:]+)(?::.*)?")
_MODEL_OP: Final = re.compile(r"(?:completions\.create|completions\.parse|messages\.create|responses\.create|generate_content)\b")
_SCORED: Final = "Evaluation.predict_and_score"
_TAKEN: Final = frozenset(
    {"id", "trace_id", "parent_id", "started_at", "ended_at", "inputs", "output", "exception", "summary"}
)


@final
class Weave(PlatformReader):
    """Reads calls of Weave; those of traces without a model are counted and left out."""

    name, label, parts = "weave", "Weave", "calls"
    order = 68

    def sniff(self, head: Head) -> bool:
        """Whether the file begins with a call."""
        first = head.first
        if isinstance(first, list) and first:
            first = first[0]
        if isinstance(first, dict):
            listed = first.get("calls")
            return _is_call(listed[0] if isinstance(listed, list) and listed else first)
        start = head.text.lstrip()
        return start.startswith(("{", "[")) and '"op_name"' in start and '"trace_id"' in start

    def unpack(self, body: Any, where: str) -> list[Any]:
        """The calls of an object that lists them; itself where it is one."""
        listed = mapping(body).get("calls")
        return list(listed) if isinstance(listed, list) else [body]

    def keep(self, grouped: Grouped, body: Json, where: str) -> Iterator[Remark]:
        """Keep calls and their feedback by their traces."""
        for one in self.unpack(body, where):
            if not _is_call(one):
                yield Remark("skipped", "this is no call of Weave", where)
                continue
            trace, id_ = str(one["trace_id"]), str(one["id"])
            if not grouped.add(trace, id_, one):
                yield Remark("skipped", "another call of the same id", where)
                continue
            for producer, name, value, reason in _graded(one):
                grouped.note(trace, id_, graded(producer, name, value, reason))

    def spans(self, raws: Sequence[Json], trace: str) -> Iterator[Span | Remark]:
        """The calls of a trace."""
        spenders = {raw.get("parent_id") for raw in raws if _usage(raw)}
        offered = tool_names(mapping(raw.get("inputs")).get("tools") for raw in raws)
        for raw in raws:
            name = _name(raw)
            chain = name.split(".") if name.startswith("langchain.") else None
            # What a call of LangChain is its name says: Weave gives its chains the kinds of their neighbours.
            kind = _CHAIN.get(chain[1]) if chain else _KINDS.get(str(_own(raw).get("kind")))
            if chain is not None:
                raw = _of_langchain(raw)
            elif kind is None and name in offered:
                kind = "tool"
            elif kind is None and ((_usage(raw) and raw["id"] not in spenders) or _MODEL_OP.search(name)):
                kind = "call"
            yield _span(raw, trace, name, kind)


def _is_call(body: Any) -> bool:
    one = mapping(body)
    return bool(one.get("op_name") and one.get("trace_id") and one.get("id")) and "started_at" in one


def _own(raw: Mapping[str, Any]) -> Mapping[str, Any]:
    return mapping(mapping(raw.get("attributes")).get("weave"))


def _name(raw: Mapping[str, Any]) -> str:
    found = _OP.fullmatch(str(raw["op_name"]))
    return found[1] if found else str(raw["op_name"])


def _usage(raw: Mapping[str, Any]) -> Mapping[str, Any]:
    """The tokens that were spent in a call, by model."""
    return mapping(mapping(raw.get("summary")).get("usage"))


def _of_langchain(raw: Json) -> Json:
    """A call whose output is LangChain's record of a run, with what the run gave as its output."""
    run = mapping(raw.get("output"))
    if "outputs" not in run:
        return raw
    call = mapping(run.get("extra")).get("tool_call_id")
    given = mapping(run["outputs"]).get("output")
    said = {"tool_call_id": call, "content": given} if call and isinstance(given, str) else given
    rest = {key: value for key, value in run.items() if key != "outputs"}
    return {**raw, "output": run["outputs"] if given is None else said, "run": rest}


def _span(raw: Json, trace: str, name: str, kind: Kind | None) -> Span:
    model, usage = next(iter(_usage(raw).items()), (None, {}))
    summary = mapping(mapping(raw.get("summary")).get("weave"))
    costs = [amount_of(cost.get(f"{part}_tokens_total_cost")) for cost in map(mapping, mapping(summary.get("costs")).values())
             for part in ("prompt", "completion")]  # fmt: skip
    failed = unquoted(raw.get("exception"))
    return platform_span(
        str(raw["id"]), trace, raw.get("parent_id"), name, kind,
        (nanoseconds(raw.get("started_at")), nanoseconds(raw.get("ended_at"))), raw.get("inputs"),
        raw.get("output"), model=model if kind == "call" else None,
        tokens=(count_of(usage, "prompt_tokens", "input_tokens"), count_of(usage, "completion_tokens", "output_tokens")),
        money=sum(cost for cost in costs if cost) or None,
        error=mapping(failed).get("message") or failed,
        rest={key: value for key, value in raw.items() if key not in _TAKEN},
    )  # fmt: skip


def _graded(raw: Mapping[str, Any]) -> Iterator[tuple[Producer, str, Any, Any]]:
    """Feedback on a call, and the scores of an evaluation: who gave it, its name, value and reason."""
    for one in map(mapping, mapping(mapping(raw.get("summary")).get("weave")).get("feedback") or []):
        payload = mapping(one.get("payload"))
        kind = str(one.get("feedback_type")).removeprefix("wandb.runnable.").removeprefix("wandb.annotation.")
        who = {key: str(one[key]) for key in ("creator", "runnable_ref", "wb_user_id") if one.get(key)}
        value = next((payload[key] for key in ("value", "output", "score") if key in payload), None)
        reason = payload.get("reason") or payload.get("comment")
        for name, number in _numbers(kind, value):
            yield Producer("weave", config=who), name, number, reason
    if _name(raw) == _SCORED:
        for name, number in _numbers("", mapping(raw.get("output")).get("scores")):
            yield Producer("weave", config={"evaluation": _SCORED}), name, number, None


def _numbers(name: str, value: Any) -> Iterator[tuple[str, Any]]:
    """A value under its name, or those of an object under its name and their keys."""
    if isinstance(value, Mapping) and value:
        for key, inner in value.items():
            yield from _numbers(f"{name}.{key}" if name else str(key), inner)
    else:
        yield name, value
