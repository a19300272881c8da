"""Logs of inspect_ai: ``.eval`` archives, whole or of a run that was killed, and the JSON form.

A sample is a trajectory, or several where contexts were rewritten. Scores keep their
scorer with its options; what names the evaluation stands with the end of each trajectory.

Source: the files that UKGovernmentBEIS/inspect_ai writes (``log/_log.py``, ``_recorders/eval.py``), 2025-26.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import IO, Any, Final, TypeAlias, final

from refork.errors import BadInput
from refork.formats.archive import Archive, open_zip
from refork.formats.base import Head, whole
from refork.formats.conversation import (
    ROLES,
    amount_of,
    asked_for,
    count_of,
    mapping,
    message_of,
    origin,
    tool_call,
)
from refork.formats.openai_chat import OpenAIChat
from refork.formats.rows import EVERY, elements
from refork.formats.sampled import finish_of
from refork.json_guard import DOCUMENT, parse_object
from refork.plain import content_hash
from refork.policies.base import Cost, Policy
from refork.policies.sent import REQUEST, TAKEN, kept_request
from refork.tree.node import NewNode, node_id
from refork.tree.records import Position, Record, Remark
from refork.tree.score import Producer, Score
from refork.types import Finish, Json, Message

#: What an archive begins with, and the first entry of one that inspect_ai writes.
PACKED: Final = b"PK\x03\x04"
START: Final = b"_journal/start.json"
_SAMPLES: Final = re.compile(rb'"samples"\s*:\s*\[')
_HEADER: Final = 64 << 20
#: A sample with its place, or why there is none, or how far the file is read.
SampleEntry: TypeAlias = tuple[str, Json | Remark | Position]


@final
@dataclass(frozen=True, slots=True)
class InspectLog:
    """An open log. ``remarks`` say what the file lost; ``samples`` are read as they are asked for."""

    header: Json
    samples: Iterator[SampleEntry]
    packed: bool
    remarks: tuple[Remark, ...] = ()


@contextmanager
def open_log(file: Path) -> Iterator[InspectLog]:
    """A log as inspect_ai writes it, whole, cut, or of a run that was killed.

    Raises:
        BadInput: neither an archive within the limits nor JSON. JSON without a list of samples is no error
            here; its header says what it is.
        MissingExtra: it is packed with Zstandard, and that package is not installed.
    """
    try:
        with file.open("rb") as opened:
            packed = opened.read(len(PACKED)) == PACKED
            if not packed:
                opened.seek(0)
                yield _listed(opened, file)
    except OSError as error:
        raise BadInput(f"the file cannot be read: {error.strerror}", where=str(file)) from error
    if packed:
        with open_zip(file) as archive:
            yield InspectLog(_header(archive, file), _entries(archive, file), True, _remarks(archive, file))


def _remarks(archive: Archive, file: Path) -> tuple[Remark, ...]:
    if archive.cut:
        what = "what the archive lost: it was cut, and is read without its directory"
        return (Remark("lost", what, str(file)),)
    if not archive.has("header.json"):
        what = "results of the evaluation: the run ended before they were written"
        return (Remark("lost", what, str(file)),)
    return ()


def _header(archive: Archive, file: Path) -> Json:
    name = "header.json" if archive.has("header.json") else START.decode()
    return parse_object(archive.read(name), f"{file}: {name}", DOCUMENT) if archive.has(name) else {}


def _entries(archive: Archive, file: Path) -> Iterator[SampleEntry]:
    """The samples of an archive, in its order."""
    names = [name for name in archive.names if name.startswith("samples/") and name.endswith(".json")]
    if archive.cut and not names:
        # An archive that is whole may be of a run that was killed early: no error. This one had more.
        what = "the archive was cut before the end of its first sample"
        yield str(file), Remark("skipped", what, str(file))
    done, told, total = 0, 0, sum(map(archive.size, names))
    for name in names:
        where = f"{file}: {name}"
        try:
            if archive.size(name) > DOCUMENT:
                raise BadInput(f"the sample has {archive.size(name):,} bytes", where=where)
            yield where, parse_object(archive.read(name), where, DOCUMENT)
        except BadInput as error:
            yield where, Remark("skipped", error.what, error.where)
            continue
        done += archive.size(name)
        if done - told >= EVERY:
            told = done
            yield where, Position(done, total)


def _listed(opened: IO[bytes], file: Path) -> InspectLog:
    """A log in JSON, its samples one at a time; one that was cut is read up to there."""
    head = opened.read(_HEADER)
    found = _SAMPLES.search(head)
    if found is None:
        # An evaluation without samples, or no evaluation at all.
        return InspectLog(parse_object(head, str(file), _HEADER), iter(()), False)
    # What stands behind the samples is not looked for: it may be gigabytes away.
    header = parse_object(head[: found.start()] + b'"samples": []}', f"{file}, header", _HEADER)
    opened.seek(found.end() - 1)
    return InspectLog(header, _items(opened, file), False)


def _items(opened: IO[bytes], file: Path) -> Iterator[SampleEntry]:
    total, told = file.stat().st_size, 0
    for number, raw in enumerate(elements(opened), start=1):
        where = f"{file}, sample {number}"
        if raw is None:
            what = "the file ends within this sample, or the sample is too large"
            yield where, Remark("skipped", what, where)
            return
        try:
            yield where, parse_object(raw, where)
        except BadInput as error:
            yield where, Remark("skipped", error.what, error.where)
            continue
        if opened.tell() - told >= EVERY:
            told = opened.tell()
            yield where, Position(told, total)


#: inspect_ai's letters for correct, incorrect, partially correct, and no answer.
LETTERS: Final[Mapping[str, float]] = {"C": 1.0, "I": 0.0, "P": 0.5, "N": 0.0}
_KEPT: Final = (
    "task",
    "task_id",
    "task_version",
    "task_args",
    "run_id",
    "eval_id",
    "created",
    "model",
    "model_args",
)
_APART: Final = ("messages", "events", "attachments", "events_data", "message_pool", "scores")


@final
class InspectAI:
    """Reads inspect_ai's logs without that package; for Zstandard the extra ``inspect`` is needed."""

    name, label = "inspect", "inspect_ai"
    order = 20
    #: What the format never records of a turn.
    lacks = ("token ids",)

    def __init__(self, policy: Policy | None = None) -> None:
        self._chat = OpenAIChat(policy)

    def sniff(self, head: Head) -> bool:
        """Whether the file is an archive that begins with inspect_ai's journal, or a JSON log."""
        if head.data.startswith(PACKED):
            # The name of the first entry stands behind a header of 30 bytes.
            return head.data[30:].startswith(START) or head.name.endswith(".eval")
        start = head.text.lstrip()
        marks = ('"version"', '"status"', '"eval"')
        return start.startswith("{") and all(mark in start[:4096] for mark in marks)

    def read(self, path: Path) -> Iterator[Record]:
        """Drafts and scores of every sample; samples that cannot be read are skipped.

        Raises:
            BadInput: the archive is beyond the limits, or no evaluation.
            MissingExtra: it is packed with Zstandard, and that package is not installed.
        """
        with open_log(path) as log:
            if not log.packed and log.header.get("samples") is None:
                what = f"the log has no samples (status {log.header.get('status')!r})"
                raise BadInput(what, where=str(path))
            yield from log.remarks
            for where, one in log.samples:
                if isinstance(one, (Remark, Position)):
                    yield one
                else:
                    yield from whole(_sample(one, log.header, self._chat, where), where, "inspect_ai")


def _sample(sample: Json, header: Json, chat: OpenAIChat, where: str) -> Iterator[Record]:
    if "id" not in sample or not isinstance(sample.get("messages", []), list):
        raise BadInput("this is not a sample", where=where)
    rest = {key: value for key, value in sample.items() if key not in _APART and value not in (None, {}, [])}
    rest |= {"scores": sample["scores"]} if sample.get("scores") else {}
    rest["eval"] = _evaluation(header)
    name = content_hash([rest["eval"].get("run_id"), sample])
    found = list(sample_messages(sample, where))
    if not found:
        raise BadInput("the sample has no messages", where=where)
    yield from _lost(sample, where)
    told = rest["eval"]
    for number, talk in enumerate(found):
        kept = rest if number == 0 else {"sample": sample["id"], "eval": rest["eval"]}
        kept = kept | ({"message_ids": talk.ids} if any(talk.ids) else {})
        kept |= {"tools": talk.tools} if talk.tools else {}
        line = f"inspect/{name}/{number}"
        log = told.get("eval_id") or told.get("run_id")
        made = origin("inspect", talk.model or told.get("model"), log=log, task=told.get("task"))
        new_nodes = list(chat.drafts(talk.messages, kept, line, where, facts=talk.facts, origin=made))
        error = sample.get("error")
        if number == 0 and isinstance(error, Mapping):
            new_nodes[-1] = replace(new_nodes[-1], error=str(error.get("message") or "error"))
        yield from new_nodes
        if number == 0:
            yield from _scores(sample, header, new_nodes[-1], where)


def _evaluation(header: Json) -> Json:
    """What names the evaluation (task, model, run), the values of its metrics, and the tokens that it used.

    Its plan and settings stay in the log.
    """
    told = mapping(header.get("eval"))
    kept = {key: told[key] for key in _KEPT if told.get(key)}
    metrics = dict(_metrics(header))
    usage = mapping(header.get("stats")).get("model_usage")
    return kept | ({"metrics": metrics} if metrics else {}) | ({"model_usage": usage} if usage else {})


def _metrics(header: Json) -> Iterator[tuple[str, Any]]:
    """Values of metrics over all samples, by ``scorer/metric``."""
    scorers = mapping(header.get("results")).get("scores")
    for scorer in map(mapping, scorers if isinstance(scorers, list) else ()):
        for name, one in mapping(scorer.get("metrics")).items():
            if isinstance(one, dict) and "value" in one:
                yield f"{scorer.get('name')}/{name}", one["value"]


def _lost(sample: Json, where: str) -> Iterator[Remark]:
    events = sample.get("events")
    other = [e for e in events if isinstance(e, dict) and e.get("event") != "model"] if events else []
    if other:
        yield Remark("lost", "events other than model calls", where, len(other))


def _scores(sample: Json, header: Json, leaf: NewNode, where: str) -> Iterator[Record]:
    """Numbers of every scorer at the end of the trajectory, with the scorer's explanation."""
    given = sample.get("scores")
    if not isinstance(given, Mapping) or leaf.key is None:
        return
    at = node_id(leaf.parent, leaf.keep, leaf.kind, leaf.key)
    for name, score in given.items():
        body = score if isinstance(score, Mapping) else {"value": score}
        producer = Producer(str(name), "1", {"inspect_ai": _options(header, str(name))})
        numbers = list(_numbers(str(name), body.get("value")))
        if not numbers:
            yield Remark("lost", f"a score of {name} that is no number; it stands under extra", where)
            continue
        yield producer
        reason = body.get("explanation")
        for one, value in numbers:
            yield Score(at, one, value, producer.id, str(reason) if reason else None)


def _options(header: Json, name: str) -> Json:
    scorers = mapping(header.get("eval")).get("scorers")
    listed = map(mapping, scorers if isinstance(scorers, list) else ())
    return dict(next((mapping(one.get("options")) for one in listed if one.get("name") == name), {}))


def _numbers(name: str, value: Any) -> Iterator[tuple[str, float]]:
    """A score's value as numbers: letters have theirs, and of a dictionary each entry is one."""
    if isinstance(value, Mapping):
        for key, one in value.items():
            yield from _numbers(f"{name}/{key}", one)
    elif isinstance(value, str) and value in LETTERS:
        yield name, LETTERS[value]
    elif isinstance(value, (bool, int, float)) and math.isfinite(value):
        yield name, float(value)


# A sample as conversations: attachments put back, pooled messages resolved, calls in one form.


_ATTACHED: Final = "attachment://"
#: Reasons to end that only inspect_ai has.
_FINISH: Final[Mapping[str, Finish]] = {"content_filter": "stop", "model_length": "length"}
_KNOWN: Final = ("id", "role", "content", "tool_calls", "tool_call_id", "function", "error")


@final
@dataclass(frozen=True, slots=True)
class SampleMessages:
    """One conversation, for each assistant turn what its model call told, and the messages' ids.

    Ids stand apart: prompts that say the same are one node, whichever sample or epoch they begin.
    ``tools`` are the definitions that the model was offered, None where no call is on record. ``model`` is
    who answered.
    """

    messages: list[Message]
    facts: list[Json]
    ids: list[Any]
    tools: list[Json] | None = None
    model: str | None = None


@final
@dataclass(slots=True)
class _Call:
    """A model call: its input, what it answered, and what it told of itself.

    ``sent`` is its input as the request had it, by the messages' names; ``tools`` what it was offered.
    ``failed`` says that there was no answer.
    """

    given: list[Json]
    output: Json
    facts: Json
    tools: list[Json] = field(default_factory=list)
    sent: dict[str, Json] = field(default_factory=dict)
    failed: bool = False
    reached: bool = field(default=False)


def sample_messages(sample: Json, where: str) -> Iterator[SampleMessages]:
    """The conversations of a sample, that of its end first.

    Raises:
        BadInput: a message that is none, or a range beyond the pool.
    """
    attached = sample.get("attachments")
    body = _with_attachments(sample, attached) if isinstance(attached, Mapping) and attached else sample
    calls = _calls(body, where)
    by_name = {_name(call.output): call for call in calls}
    final = _list(body.get("messages"), "messages", where)
    if final:
        last = calls[-1] if calls else None
        if last is not None and last.failed and list(map(_name, last.given)) == list(map(_name, final)):
            # The run ended with a call that failed: that is the end of its conversation.
            final = [*final, last.output]
        yield _sample_messages(final, by_name, where)
    # Longest first: what an earlier call was given is the beginning of what a later one was.
    for call in reversed(calls):
        if not call.reached:
            yield _sample_messages([*call.given, call.output], by_name, where)


def _sample_messages(raw: Sequence[Json], calls: Mapping[str, _Call], where: str) -> SampleMessages:
    messages, told = [], []
    mine = [calls[name] for one in raw if (name := _name(one)) in calls]
    sent: dict[str, Json] = {}
    for call in mine:
        # What a later request says of a message is what the agent last sent of it.
        sent |= call.sent
    offered: list[Json] | None = None
    for number, one in enumerate(raw, start=1):
        message = _message(one, f"{where}, message {number}")
        if _name(one) in sent:
            message = _as_sent(message, sent[_name(one)])
        messages.append(message)
        if message["role"] == "assistant":
            found = calls.get(_name(one))
            told.append({} if found is None else _differing(found, offered))
            if found is not None:
                found.reached = True
                offered = found.tools if offered is None else offered
    model = next((call.facts["policy"] for call in mine if "policy" in call.facts), None)
    return SampleMessages(messages, told, [one.get("id") for one in raw], offered, model)


def _differing(call: _Call, offered: list[Json] | None) -> Json:
    """What a call tells, its tools too where they are others than the first call's."""
    if offered is None or call.tools == offered:
        return call.facts
    request = {**call.facts["extra"].get(REQUEST, {}), "tools": call.tools}
    return {**call.facts, "extra": {**call.facts["extra"], REQUEST: request}}


def _as_sent(message: Message, sent: Json) -> Message:
    """A message as the request had it; what only the log says of it stands under ``extra``."""
    extra = dict(message.get("extra") or {})
    # The request is what the agent said again; what it left out (its thoughts, a tool's name) is the log's.
    extra |= {key: value for key, value in message.items() if key not in {*sent, "extra", "role"} and value}
    unknown = sorted(set(sent) - TAKEN)
    extra |= {"sent": unknown} if unknown else {}
    return {**sent, **({"extra": extra} if extra else {})}


def _calls(body: Json, where: str) -> list[_Call]:
    data = body.get("events_data")
    pool = data.get("messages") if isinstance(data, Mapping) else body.get("message_pool")
    pooled = _list(pool, "message pool", where)
    asked = data.get("calls") if isinstance(data, Mapping) else None
    found = []
    for event in _list(body.get("events"), "events", where):
        if event.get("event") != "model":
            continue
        output = event.get("output")
        output = output if isinstance(output, dict) else {}
        choices = _list(output.get("choices"), "choices", where)
        failed = bool(event.get("error"))
        # A call that failed has an empty answer in newer logs, and none in older ones.
        empty: Json = {"message": {"role": "assistant", "content": "", "id": f"failed {event.get('uuid')}"}}
        choice = choices[0] if choices else (empty if failed else {})
        if isinstance(choice.get("message"), dict):
            given = [
                *_list(event.get("input"), "input", where),
                *_ranged(event.get("input_refs"), pooled, where),
            ]
            call = _Call(given, choice["message"], _turn_facts(event, output, choice), failed=failed)
            request = _request(event, asked, where)
            call.tools = _tools(event, request)
            call.sent = _sent(given, request)
            kept = kept_request(request) if _is_chat(request) else _terms(event)
            if kept or request:
                call.facts["extra"][REQUEST] = kept
            found.append(call)
    return found


def _request(event: Json, pool: Any, where: str) -> Json:
    """The request that a call sent, as its provider has it, with its messages; empty where there is none."""
    call = event.get("call")
    request = call.get("request") if isinstance(call, Mapping) else None
    if not isinstance(call, Mapping) or not isinstance(request, dict):
        return {}
    refs, key = call.get("call_refs"), call.get("call_key")
    if refs and isinstance(key, str) and isinstance(pool, list):
        return {**request, key: _ranged(refs, pool, where)}
    return request


def _is_chat(request: Json) -> bool:
    """Whether a request is of the chat interface that forks use, not of another provider's own."""
    listed, tools = request.get("messages"), request.get("tools") or []
    if not isinstance(listed, list) or not isinstance(tools, list):
        return False
    plain = all(isinstance(m, dict) and m.get("role") in (*ROLES, "developer") for m in listed)
    if not plain or not all(isinstance(tool, dict) and tool.get("type") == "function" for tool in tools):
        return False
    # Ids and sources are inspect_ai's own: its mock model logs messages in that form.
    calls = [call for m in listed for call in m.get("tool_calls") or []]
    return not any("id" in m or "source" in m for m in listed) and all(
        isinstance(call, dict) and isinstance(call.get("function"), dict) for call in calls
    )


def _tools(event: Json, request: Json) -> list[Json]:
    """The definitions that a call offered: as it sent them, else put into the chat interface's form."""
    if _is_chat(request) and request.get("tools"):
        return list(request["tools"])
    found: list[Json] = []
    for tool in event.get("tools") or []:
        if isinstance(tool, Mapping) and isinstance(tool.get("name"), str):
            body = {key: tool[key] for key in ("name", "description", "parameters") if tool.get(key)}
            found.append({"type": "function", "function": body})
    return found


def _sent(given: Sequence[Json], request: Json) -> dict[str, Json]:
    """The messages of a request by the names of those that they were made of; none where they do not fit."""
    listed = request.get("messages") if _is_chat(request) else None
    # Where a provider merged or split messages, nobody can say which one was made of which.
    if not isinstance(listed, list) or [m.get("role") for m in listed] != [m.get("role") for m in given]:
        return {}
    return {_name(one): made for one, made in zip(given, listed, strict=True)}


def _terms(event: Json) -> Json:
    """How a call was to answer, where its request is not of the chat interface."""
    choice = event.get("tool_choice")
    if isinstance(choice, Mapping) and isinstance(choice.get("name"), str):
        choice = {"type": "function", "function": {"name": choice["name"]}}
    choice = "required" if choice == "any" else choice
    found: Json = _asked(event).get("extra", {}).get(REQUEST, {})
    return found | ({"tool_choice": choice} if choice and event.get("tools") else {})


def _asked(event: Json) -> Json:
    """How a call's configuration asks for its turn; only what ends a turn is called otherwise there."""
    config = dict(mapping(event.get("config")))
    return asked_for(config | {"stop": config.get("stop_seqs")})


def _ranged(refs: Any, pool: list[Json], where: str) -> list[Json]:
    """The pooled messages of a call: half-open ranges of the pool, or single places."""
    found: list[Json] = []
    for ref in refs or []:
        first, last = (ref, ref + 1) if isinstance(ref, int) else ref
        if not (isinstance(first, int) and isinstance(last, int) and 0 <= first <= last <= len(pool)):
            raise BadInput(f"a call's input is {ref!r} of a pool of {len(pool)} messages", where=where)
        found += pool[first:last]
    return found


def _turn_facts(event: Json, output: Json, choice: Json) -> Json:
    """What a call says of its turn: model, costs, why it ended; the rest under ``extra``."""
    usage = output.get("usage") if isinstance(output.get("usage"), dict) else None
    names = ("timestamp", "completed", "working_start", "working_time", "config", "role", "retries", "error")
    extra: Json = {name: event[name] for name in names if event.get(name) is not None}
    extra |= {"usage": usage} if usage else {}
    extra |= {"logprobs": choice["logprobs"]} if choice.get("logprobs") else {}
    told: Json = {
        "cost": Cost(
            tokens_in=count_of(usage, "input_tokens"),
            tokens_out=count_of(usage, "output_tokens"),
            seconds=amount_of(event.get("working_time", output.get("time"))),
        ),
        "finish": _FINISH.get(str(choice.get("stop_reason"))) or finish_of(choice.get("stop_reason")),
        "extra": {"call": extra} if extra else {},
    }
    told["settings"] = _asked(event).get("settings")
    if event.get("error"):
        told |= {"error": str(event["error"]), "finish": "error"}
    return told | ({"policy": str(event["model"])} if event.get("model") else {})


def _list(raw: Any, what: str, where: str) -> list[Json]:
    if raw is None:
        return []
    if not isinstance(raw, list) or not all(isinstance(one, dict) for one in raw):
        raise BadInput(f"the {what} are not a list of objects", where=where)
    return raw


def _name(message: Json) -> str:
    """What tells a message from others: its id, in older logs its content."""
    known = message.get("id")
    return str(known) if known else content_hash([message.get("content"), message.get("tool_calls")])


def _message(raw: Json, where: str) -> Message:
    """A message in OpenAI's form; what else it says stands under ``extra``."""
    plain: Json = {"role": raw.get("role"), "content": raw.get("content")}
    reasons: list[str] = []
    if isinstance(raw.get("content"), list):
        plain["content"] = [
            part for one in raw["content"] if (part := _part(one, reasons, where)) is not None
        ]
        if all(part["type"] == "text" for part in plain["content"]):
            plain["content"] = "\n".join(part["text"] for part in plain["content"])
    if reasons:
        plain["reasoning_content"] = "\n".join(reasons)
    if raw.get("tool_calls"):
        plain["tool_calls"] = [_call(one, where) for one in _list(raw["tool_calls"], "tool calls", where)]
    for ours, theirs in (("tool_call_id", "tool_call_id"), ("name", "function")):
        if raw.get(theirs) is not None:
            plain[ours] = raw[theirs]
    message = message_of(plain, where)
    extra = {key: value for key, value in raw.items() if key not in _KNOWN and value is not None}
    extra |= {"error": raw["error"]} if raw.get("error") else {}
    return message | ({"extra": extra} if extra else {})


def _part(part: Any, reasons: list[str], where: str) -> Json | None:
    """A part of a content; reasoning is taken aside."""
    if isinstance(part, str):
        return {"type": "text", "text": part}
    if not isinstance(part, dict):
        raise BadInput("a part of a content is neither text nor an object", where=where)
    if part.get("type") == "reasoning":
        reasons.append(str(part.get("summary") if part.get("redacted") else part.get("reasoning", "")))
        return None
    if part.get("type") == "text":
        return {"type": "text", "text": str(part.get("text", ""))}
    if part.get("type") == "image":
        return {"type": "image_url", "image_url": {"url": str(part.get("image", ""))}}
    return part


def _call(raw: Json, where: str) -> Json:
    if not isinstance(raw.get("function"), str):
        raise BadInput("a tool call has no function", where=where)
    call = tool_call(raw["function"], raw.get("arguments"), str(raw["id"]) if raw.get("id") else None)
    return call | ({"parse_error": raw["parse_error"]} if raw.get("parse_error") else {})


def _with_attachments(value: Any, attached: Mapping[str, Any]) -> Any:
    """A value with every reference replaced by what it stands for; an unknown one stays."""
    if isinstance(value, str):
        if not value.startswith(_ATTACHED):
            return value
        found = attached.get(value.removeprefix(_ATTACHED))
        return found if isinstance(found, str) else value
    if isinstance(value, list):
        return [_with_attachments(one, attached) for one in value]
    if isinstance(value, dict):
        return {key: _with_attachments(one, attached) for key, one in value.items() if key != "attachments"}
    return value
