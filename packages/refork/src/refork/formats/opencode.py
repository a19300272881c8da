"""Sessions of OpenCode, as ``opencode export`` writes them: one JSON document, a message with its parts each.

A step of the model (a request and its answer) is a turn, with the results of its tools behind it. Where the
session was compacted a rewrite has the summary. A sub-agent's session is exported by its own id.

Source: what OpenCode 1.18 exports, and the requests that it makes meanwhile.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final, final

from refork.errors import BadInput
from refork.formats.base import Head
from refork.formats.conversation import amount_of, count_of, mapping, origin, tool_call
from refork.formats.log_reader import LogReader
from refork.formats.sampled import finish_of
from refork.formats.spans import ModelCall, ToolRun, TracePath, model_of
from refork.formats.tokenised import lacking
from refork.policies.base import Cost, Policy
from refork.tree.records import Record, Remark
from refork.types import Json, Message

#: What is said of a session and changes as it goes on.
_CHANGES: Final = ("time", "cost", "tokens", "summary", "title", "revert", "share", "agent", "model")
#: What a session asks for in the place of all that a summary stands for.
_COMPACTED: Final = "What did we do so far?"


@final
class OpenCode(LogReader):
    """Reads sessions of OpenCode; token ids are recorded where a policy is given to tokenise with."""

    name, label = "opencode", "OpenCode"
    order = 28

    def sniff(self, head: Head) -> bool:
        """Whether the file is an object that begins with a session's facts."""
        start = "".join(head.text[:4096].split())
        return start.startswith('{"info":{') and '"ses_' in start and '"directory":' in start

    def item(self, body: Json, name: str, where: str) -> Iterator[Record]:
        """One session."""
        info, messages = mapping(body.get("info")), body.get("messages")
        if not info.get("id") or not isinstance(messages, list):
            raise BadInput("this is no session of OpenCode", where=where)
        reader = _SessionParts(self._policy)
        for number, message in enumerate(messages, start=1):
            place = f"{where}, message {number}"
            try:
                reader.take(message, place)
            except BadInput as error:
                yield Remark("skipped", error.what, error.where)
        yield Remark("lost", f"{lacking(self._policy)}: a session has none", where)
        yield Remark("lost", "system prompts and definitions of tools: a session has none", where)
        if left := sum(key in info for key in _CHANGES):
            yield Remark("lost", "what changes as a session goes on: its title, times and sums", where, left)
        yield from reader.remarks
        if not reader.calls:
            yield Remark("skipped", "a session to which no model answered", where)
            return
        rest = {key: value for key, value in body.items() if key not in ("info", "messages")}
        reader.calls[0].facts["extra"]["session"] = _still(info) | rest
        came = origin(
            "opencode",
            model_of(reader.calls),
            version=info.get("version"),
            agent=info.get("agent") if info.get("parentID") else None,
        )
        yield from reader.drafts(came)


def _still(info: Mapping[str, Any]) -> Json:
    """What is said of a session, without what changes as it goes on: it may be exported again then."""
    return {key: value for key, value in info.items() if key not in _CHANGES}


def _own(value: Any) -> Json:
    """An object without the ids of what it lies in."""
    return {key: one for key, one in mapping(value).items() if key not in ("sessionID", "messageID")}


@final
class _SessionParts:
    """The messages of a session as the calls of models that they show."""

    def __init__(self, policy: Policy | None) -> None:
        self._policy = policy
        self._context: list[Message] = []
        self._notes: list[Json] = []
        self._runs: list[ToolRun] = []
        self.calls: list[ModelCall] = []
        self.remarks: list[Remark] = []

    def take(self, message: Any, where: str) -> None:
        """The next message.

        Raises:
            BadInput: it cannot be read.
        """
        info, parts = _own(mapping(message).get("info")), mapping(message).get("parts")
        role = info.get("role")
        if role not in ("user", "assistant") or not isinstance(parts, list):
            raise BadInput("this is no message of a session", where=where)
        if not info.get("id") or not all(isinstance(part, Mapping) for part in parts):
            raise BadInput("this message has no id, or a part that is none", where=where)
        wrong = next(
            (p for p in parts if p.get("type") == "tool" and not isinstance(p.get("callID"), str)), None
        )
        if wrong is not None:
            raise BadInput("a call of a tool has no id", where=where)
        parts = [_own(part) for part in parts]
        if role == "user":
            self._user(info, parts, where)
        else:
            self._assistant(info, parts, where)

    def drafts(self, came: Json) -> Iterator[Record]:
        """Drafts of all that was taken."""
        made = TracePath(None, self._runs, self._policy, came)
        made.add(self.calls)
        made.unanswered(self._context, f"{self.calls[-1].key}/after")
        yield from made.new_nodes

    def _user(self, info: Mapping[str, Any], parts: list[Json], where: str) -> None:
        shown: list[Json] = []
        rest: list[Json] = []
        for part in parts:
            kind = part.get("type")
            if kind == "text" and not part.get("ignored"):
                shown.append({"type": "text", "text": str(part.get("text") or "")})
            elif (
                kind == "file" and isinstance(part.get("url"), str) and part["url"].startswith("data:image/")
            ):
                shown.append({"type": "image_url", "image_url": {"url": part["url"]}})
            elif kind == "compaction":
                shown.append({"type": "text", "text": _COMPACTED})
                if part.get("tail_start_id"):
                    what = "which messages stayed behind a summary, and in what form"
                    self.remarks.append(Remark("lost", what, where))
                rest.append(part)
            else:
                rest.append(part)
        if shown:
            text = all(part["type"] == "text" for part in shown)
            content = "\n".join(part["text"] for part in shown) if text else shown
            self._context.append({"role": "user", "content": content})
        self._notes.append({"info": dict(info)} | ({"parts": rest} if rest else {}))

    def _assistant(self, info: Mapping[str, Any], parts: list[Json], where: str) -> None:
        steps: list[list[Json]] = [[]]
        for part in parts:
            steps[-1].append(part)
            if part.get("type") == "step-finish":
                steps.append([])
        # What stands behind the last step, such as what it changed in files, is said of it.
        if len(steps) > 1 and not any(
            part.get("type") in ("text", "tool", "reasoning") for part in steps[-1]
        ):
            behind = steps.pop()
            steps[-1] += behind
        for number, step in enumerate(steps):
            failed = info.get("error") if number == len(steps) - 1 else None
            self._step(info, step, f"opencode/{info['id']}/{number}", failed)
        if info.get("summary") is True and self.calls[-1].outputs:
            what = "what the model was asked for a summary: it was shown the conversation as a text"
            self.remarks.append(Remark("lost", what, where))
            self._context = [{"role": "user", "content": _COMPACTED}, self.calls[-1].outputs[0]]

    def _step(self, info: Mapping[str, Any], step: list[Json], key: str, failed: Any) -> None:
        message, others = _answer(step)
        end = next((part for part in step if part.get("type") == "step-finish"), None)
        spent = info if end is None else end
        tokens = mapping(spent.get("tokens"))
        cache = mapping(tokens.get("cache"))
        read = count_of(tokens, "input")
        cached = sum(count_of(cache, name) or 0 for name in ("read", "write"))
        error = mapping(failed)
        told = mapping(error.get("data")).get("message") or error.get("name")
        reason = info.get("finish") if end is None else end.get("reason")
        facts: Json = {
            "policy": info["modelID"] if isinstance(info.get("modelID"), str) else None,
            "cost": Cost(
                tokens_in=None if read is None else read + cached,
                tokens_out=count_of(tokens, "output"),
                money=amount_of(spent.get("cost")),
            ),
            "finish": "error" if error else finish_of(str(reason).replace("-", "_")),
            "error": str(told) if told else None,
            "extra": {"opencode": {"info": dict(info), "parts": others}}
            | ({"notes": self._notes} if self._notes else {}),
        }
        self._notes = []
        said = [message] if message["content"] or message.get("tool_calls") or not error else []
        self.calls.append(ModelCall(key, list(self._context), said, facts))
        self._context += said
        for part in step:
            if part.get("type") == "tool":
                self._tool(part)

    def _tool(self, part: Json) -> None:
        state, call = mapping(part.get("state")), part["callID"]
        result = state.get("output") if state.get("status") == "completed" else state.get("error")
        rest = {key: value for key, value in state.items() if key not in ("input", "output", "error")}
        if "sessionId" in mapping(rest.get("metadata")):
            # A sub-agent's. Ids of sessions by that name are secrets of web pages, and would be taken out.
            about = {key: one for key, one in rest["metadata"].items() if key != "parentSessionId"}
            agent = about.pop("sessionId")
            rest["metadata"] = about | {"agent": agent}
        shown: Message | None = None
        if result is not None:
            shown = {"role": "tool", "tool_call_id": call, "content": str(result)}
            self._context.append(shown)
        self._runs.append(ToolRun(call, shown, {"id": call, "state": rest}))


def _answer(step: list[Json]) -> tuple[Message, list[Json]]:
    """The parts of a step as a message, and those that have no place in it."""
    texts, thoughts, calls, others = [], [], [], []
    for part in step:
        kind = part.get("type")
        if kind == "text":
            texts.append(str(part.get("text") or ""))
        elif kind == "reasoning":
            thoughts.append(str(part.get("text") or ""))
        elif kind == "tool":
            given = mapping(part.get("state")).get("input")
            calls.append(tool_call(str(part.get("tool")), given, part["callID"]))
        else:
            others.append(part)
    message: Message = {"role": "assistant", "content": "\n".join(texts)}
    message |= {"tool_calls": calls} if calls else {}
    return message | ({"reasoning_content": "\n".join(thoughts)} if any(thoughts) else {}), others
