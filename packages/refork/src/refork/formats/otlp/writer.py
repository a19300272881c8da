"""Writes trajectories as OTLP JSON: one batch a line and trace, a span for each turn of a policy.

Spans that were imported are written as they were; the others get ids from their nodes, and times from when
they were recorded. Scores of a turn and of what follows it are evaluation events of its span. Token ids,
log-probs, scores of single tokens, snapshots and noise keys have no place in the format.

Source: the OTLP specification and the semantic conventions for generative AI, version 1.41.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import IO, TYPE_CHECKING, Any, Final, final

import numpy as np

from refork.formats.otlp.batches import attributes_list
from refork.formats.otlp.messages import INPUT, OUTPUT, TOOLS, parts_of_message
from refork.formats.otlp.reader import EVALUATION, NODE, NUMBERS, PRODUCER
from refork.formats.recorded import leaf_trajectories, recorded, scores_of
from refork.tree.node import Node, Trajectory
from refork.tree.records import Record
from refork.tree.score import Producer, Score
from refork.tree.turn import ContextStep, parts_of
from refork.tree.turn import Turn as Said
from refork.types import Json, Message

if TYPE_CHECKING:
    from refork.tree.tree import Tree

_CLIENT: Final = 3
_ID: Final = re.compile("[0-9a-f]{32}")


@final
@dataclass(slots=True)
class _Turn:
    """One turn: what was said, what was shown before it, and the scores it carries."""

    output: Said
    context: list[Message]
    scores: list[Score] = field(default_factory=list)

    @property
    def node(self) -> Node:
        return self.output.node


@final
class OTLPWriter:
    """Writes OTLP JSON lines."""

    name = "otlp"

    def write(self, records: Iterable[Record], out: IO[str]) -> int:
        """Write a batch for each trajectory in which a policy said something; returns how many."""
        count = 0
        with recorded(records) as tree:
            by_id = {producer.id: producer for producer in tree.producers()}
            written: set[str] = set()
            for trajectory in leaf_trajectories(tree):
                turns = _turns(trajectory, tree)
                if not turns or _is_side(trajectory.leaf) or turns[-1].node.id in written:
                    continue
                # What follows a last turn (verdicts, results that nobody was shown) makes no other trace.
                written.add(turns[-1].node.id)
                turns[-1].scores = _with_rest(turns[-1], tree)
                batch = _batch(trajectory, turns, tree, by_id)
                out.write(
                    json.dumps(batch, ensure_ascii=False, allow_nan=False, separators=(",", ":")) + "\n"
                )
                count += 1
        return count


def _with_rest(turn: _Turn, tree: Tree) -> list[Score]:
    """The scores of a turn and of everything after it that no policy said."""
    found, waiting = [], [turn.node]
    while waiting:
        node = waiting.pop(0)
        found += scores_of(tree, node)
        waiting += [child for child in tree.children(node) if child.kind not in ("action", "rewrite")]
    return found


def _is_side(leaf: Node) -> bool:
    """Whether a leaf is an answer that its call gave beside the one that the trace goes on from."""
    return "choice" in _own(leaf) and "trace" not in _own(leaf)


def _own(node: Node) -> Json:
    """What an import of spans kept with a node; nothing of what other formats keep under the same names."""
    return node.extra if node.key.startswith("otlp/") else {}


def _turns(trajectory: Trajectory, tree: Tree) -> list[_Turn]:
    turns: list[_Turn] = []
    context: list[Message] = []
    owners: dict[str, _Turn] = {}
    for part in parts_of(trajectory):
        if isinstance(part, ContextStep):
            context = [] if part.step.node.kind == "rewrite" else context
            context = [*context, *part.messages]
        else:
            for said in _alone(part):
                message = said.message
                if not _only_shown(said.node):
                    turns.append(_Turn(said, context))
                    owners |= {step.node.id: turns[-1] for step in said.steps}
                context = [*context, *([message] if message else [])]
    # A score belongs to the turn that its node is of, or to the last one before it; one of a node that this
    # trajectory cuts is of what another trajectory said.
    last: _Turn | None = None
    for step in trajectory:
        last = owners.get(step.node.id, last)
        rewritten = step.node.kind == "action" and step.node.id not in owners and not _only_shown(step.node)
        if last is not None and step.keep is None and not rewritten:
            last.scores += scores_of(tree, step.node)
    return turns


def _alone(turn: Said) -> Iterator[Said]:
    """A turn, or those of an imported trace in it: there every call has a turn of its own."""
    start = 0
    for at in range(1, len(turn.steps)):
        node, before = turn.steps[at].node, turn.steps[at - 1].node
        if "span" in _own(node) or _only_shown(before):
            yield Said(turn.steps[start:at], turn.opening if start == 0 else None)
            start = at
    yield Said(turn.steps[start:], turn.opening if start == 0 else None)


def _only_shown(node: Node) -> bool:
    """Whether an imported turn was no call of the trace but part of what a call was shown."""
    return node.key.startswith("otlp/") and "/shown/" in node.key


def _batch(trajectory: Trajectory, turns: Sequence[_Turn], tree: Tree, by_id: dict[str, Producer]) -> Json:
    known = _own(trajectory.leaf).get("trace") or {}
    trace = str(known.get("id") or _trace_of(turns[-1].node))
    resource = known.get("resource") or {} if known else {"service.name": "refork"}
    spans: list[tuple[Json, Json, Json]] = []
    for agent in known.get("agents") or []:
        spans.append(_kept_span(agent, trace, resource))
    # A new span begins no earlier than the one before it ended: readers put them in order by time.
    end, tools = 0, trajectory.root.extra.get("tools")
    for turn in turns:
        made = _call_span(turn, trace, resource, tools, tree, end)
        made[0]["events"] += [event for score in turn.scores for event in _evaluation(score, made[0], by_id)]
        spans.append(made)
        end = int(made[0]["endTimeUnixNano"])
    for step in trajectory:
        spans += [_kept_span(tool, trace, resource) for tool in _own(step.node).get("tool_spans") or []]
    spans += [_kept_span(tool, trace, resource) for tool in known.get("tools") or []]
    return {"resourceSpans": list(_grouped(spans))}


def _grouped(spans: Iterable[tuple[Json, Json, Json]]) -> Iterator[Json]:
    """Spans under their resources and scopes, in the order of their coming."""
    groups: dict[str, tuple[Json, dict[str, tuple[Json, list[Json]]]]] = {}
    for span, resource, scope in spans:
        scopes = groups.setdefault(json.dumps(resource, sort_keys=True), (resource, {}))[1]
        scopes.setdefault(json.dumps(scope, sort_keys=True), (scope, []))[1].append(span)
    for resource, scopes in groups.values():
        listed = []
        for scope, members in scopes.values():
            told = {key: value for key, value in scope.items() if key != "attributes"}
            told |= {"attributes": attributes_list(scope["attributes"])} if scope.get("attributes") else {}
            listed.append({"scope": told, "spans": members})
        yield {"resource": {"attributes": attributes_list(resource)}, "scopeSpans": listed}


def _kept_span(kept: Json, trace: str, resource: Json) -> tuple[Json, Json, Json]:
    """A span as it was imported, with its resource and scope."""
    agents = kept.get("agents") or []
    span: Json = {
        "traceId": trace,
        "spanId": kept["id"],
        **({"parentSpanId": agents[-1]} if agents else {}),
        "name": kept["name"],
        "kind": kept.get("kind", 0),
        "startTimeUnixNano": str(kept["start"]),
        "endTimeUnixNano": str(kept["end"]),
        "attributes": attributes_list(kept.get("attributes") or {}),
        "events": [_event(event) for event in kept.get("events") or []],
        "status": kept.get("status") or {},
        **(kept.get("other") or {}),
    }
    return span, kept.get("resource") or resource, kept.get("scope") or {}


def _event(kept: Json) -> Json:
    attributes = kept["attributes"]
    # An event of a span has no body: what a log record said in one becomes an attribute.
    attributes |= {"gen_ai.event.content": kept["body"]} if "body" in kept else {}
    return {
        "timeUnixNano": str(kept["time"]),
        "name": kept["name"],
        "attributes": attributes_list(attributes),
    }


def _call_span(
    turn: _Turn, trace: str, resource: Json, tools: Any, tree: Tree, after: int
) -> tuple[Json, Json, Json]:
    node = turn.node
    kept = dict(_own(node)["span"]) if "span" in _own(node) else _new_span(turn, after)
    attributes = dict(kept.get("attributes") or {})
    tools = kept.get("tools") or tools
    name = _name(node)
    if name != f"{trace}/{kept['id']}":
        attributes[NODE] = name
    answers = _answers(turn, tree)
    # A call that failed has no answer, and was shown as much as any.
    if answers or node.error is not None:
        attributes |= _content(turn.context, INPUT)
        attributes |= {TOOLS: _text(tools)} if tools else {}
    if answers:
        attributes[OUTPUT] = _text(answers)
    return _kept_span(kept | {"attributes": attributes}, trace, resource)


def _name(node: Node) -> str:
    """What a turn's node was made of: its own span, or the node that the writer named."""
    if not node.key.startswith("otlp/"):
        return node.id
    name = node.key.removeprefix("otlp/")
    # Of several choices the first has the key of its call, the others a number behind it.
    return name.rpartition("/")[0] if _own(node).get("choice") else name


def _trace_of(node: Node) -> str:
    """The id of the trace that ends with a node: the same again where the writer named it."""
    name = _name(node)
    return name if _ID.fullmatch(name) else node.id


def _content(messages: Sequence[Message], key: str) -> Json:
    return {key: _text([parts_of_message(message) for message in messages])} if messages else {}


def _text(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False, allow_nan=False)


def _answers(turn: _Turn, tree: Tree) -> list[Json]:
    """What a call answered: the turn, or all of its choices."""
    node = turn.node
    if "choice" not in _own(node) or node.parent is None:
        message = turn.output.message
        return [] if message is None else [_answer(message, node)]
    span = _own(node)["span"]["id"]
    siblings = [one for one in tree.children(node.parent) if _own(one).get("span", {}).get("id") == span]
    chosen = sorted(siblings, key=lambda one: int(_own(one)["choice"]))
    return [_answer(one.message or {"role": "assistant", "content": one.text}, one) for one in chosen]


def _answer(message: Message, node: Node) -> Json:
    end = _own(node).get("finish_reason") or node.finish or ""
    return {**parts_of_message(message), "finish_reason": str(end)}


def _new_span(turn: _Turn, after: int) -> Json:
    """The span of a turn that was not imported."""
    node, cost = turn.node, turn.node.cost
    seconds = max(cost.seconds or 0.0, 0.0)
    # Nodes of one append have one moment; a trace is read in the order in which its spans begin.
    start = max(int((node.created - seconds) * 1e9), after, 1)
    attributes: Json = {"gen_ai.operation.name": "chat", "gen_ai.provider.name": "refork"}
    if node.policy is not None:
        attributes |= {"gen_ai.request.model": node.policy, "gen_ai.response.model": node.policy}
    given = {f"gen_ai.request.{name}": (node.settings or {}).get(name) for name in (*NUMBERS, "top_k")}
    given["gen_ai.request.stop_sequences"] = (node.settings or {}).get("stop")
    given["gen_ai.usage.input_tokens"] = cost.tokens_in
    given["gen_ai.usage.output_tokens"] = cost.tokens_out
    if node.finish is not None:
        given["gen_ai.response.finish_reasons"] = [node.finish]
    attributes |= {key: value for key, value in given.items() if value is not None}
    return {
        "id": node.id[:16],
        "name": f"chat {node.policy}" if node.policy is not None else "chat",
        "kind": _CLIENT,
        "start": start,
        "end": start + int(seconds * 1e9),
        "attributes": attributes,
        "status": {} if node.error is None else {"code": 2, "message": node.error},
    }


def _evaluation(score: Score, span: Json, by_id: dict[str, Producer]) -> Iterator[Json]:
    if isinstance(score.value, np.ndarray):
        return
    producer = by_id[score.producer]
    attributes: Json = {"gen_ai.evaluation.name": score.name}
    if producer != Producer("otlp"):
        said = {"name": producer.name, "version": producer.version, "config": producer.config}
        attributes[PRODUCER] = _text(said)
    if score.reason is not None:
        attributes["gen_ai.evaluation.explanation"] = score.reason
    number = float(score.value)
    value = {"doubleValue": number if np.isfinite(number) else ("Infinity" if number > 0 else "-Infinity")}
    listed = [*attributes_list(attributes), {"key": "gen_ai.evaluation.score.value", "value": value}]
    yield {"timeUnixNano": span["endTimeUnixNano"], "name": EVALUATION, "attributes": listed}
