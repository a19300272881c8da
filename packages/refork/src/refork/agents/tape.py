"""The tape: a tree that holds runs of programs, every exchange with a model as it went over the wire.

A run is a task. Its conversations are paths below it: what was new in a request is one node, the answer the
next. A request that continues no conversation begins one; one that changed what was said before is a rewrite.
A run's end is a verdict below its task. What the tree cannot say of an exchange (its bytes, its path, when it
came) stands on the answer's node, under ``extra.exchange``; the bytes are a blob.
"""

from __future__ import annotations

import base64
import contextlib
import hashlib
import json
import os
import re
import secrets
import threading
import time
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Final, final

from refork.agents.dialects import ModelAnswer, ModelRequest, canonical, read_answer, read_request
from refork.agents.steps import AskedBy, facts_of, state_of, step_words
from refork.errors import BadInput
from refork.formats.conversation import asked_for
from refork.formats.redact import Redactor
from refork.json_guard import parse_json
from refork.policies.base import Cost
from refork.tree.node import NewNode, Node, node_id
from refork.tree.tree import Tree
from refork.types import Json, Message

#: Version of what stands under ``extra.exchange`` and ``extra.run``.
VERSION: Final = 1
#: Names of variables whose values are never kept, and how short a value may be to be looked for.
_SECRET: Final = re.compile(r"key|token|secret|passw|credential|auth", re.IGNORECASE)
_SHORTEST: Final = 8
#: Variables that shells, terminals and we set anew each time.
_EACH_TIME: Final = re.compile(
    r"_|PWD|OLDPWD|SHLVL|COLUMNS|LINES|WINDOWID|TERM_SESSION_ID|REFORK_\w+|SSH_\w+|XDG_SESSION_\w+|"
    r"PYTEST_\w+|INVOCATION_ID|JOURNAL_STREAM|TMUX\w*|STY"
)
#: Variables of time zones, languages and hashes, which a repeatable run has as it had them.
GIVEN_BACK: Final = re.compile(r"TZ|LANG|LANGUAGE|LC_\w+|PYTHONHASHSEED")
#: Characters of a program's output that are kept, from each end.
_OUTPUT: Final = 20_000


@final
@dataclass(frozen=True, slots=True)
class Wire:
    """One exchange as it went over the wire. ``path`` begins with the provider's name; ``query`` has no keys.

    ``chunks`` is the answer in the pieces in which it came. ``aborted``: the program went away before its
    end. ``failed``: no answer came at all, and why. ``asked_by``: the step that asks, where it was told.
    """

    method: str
    path: str
    query: str
    body: bytes
    status: int = 0
    headers: Mapping[str, str] = field(default_factory=dict)
    chunks: tuple[bytes, ...] = ()
    began: float = 0.0
    seconds: float = 0.0
    aborted: bool = False
    failed: str | None = None
    asked_by: AskedBy | None = None

    @property
    def kind(self) -> str:
        """The answer's content type."""
        return self.headers.get("content-type", "")

    @property
    def answer(self) -> bytes:
        """The whole answer."""
        return b"".join(self.chunks)

    @property
    def json(self) -> Any:
        """The request's JSON; None where it is none."""
        try:
            return parse_json(self.body, self.path) if self.body else None
        except BadInput:
            return None

    @property
    def digest(self) -> str:
        """What replay matches a request by: equal requests ask the same of a model."""
        body = self.json
        heard = canonical(self.path, body) if body is not None else base64.b64encode(self.body).decode()
        return _digest([self.method, self.path, self.query, heard])


@final
@dataclass(frozen=True, slots=True)
class TapeEvent:
    """The ``number``-th exchange of a run (from 0), the node of its answer, and its ``conversation``.

    ``files``: the blob of what the run had changed in its folder by then; None: that was not looked at.
    """

    number: int
    node: str
    conversation: int
    wire: Wire
    files: str | None = None


@final
@dataclass(frozen=True, slots=True)
class ProgramRun:
    """One execution of a program, as recorded. ``exit``, ``output`` and ``seconds`` None: it never ended.

    ``environment`` are names of variables, never values, and ``marks`` a few bits of each value's digest, by
    which another one is found out: too few to tell what it was. ``sources`` are digests of the files that the
    command names. ``files``: the blob of how the folder was at the start, where that was kept. ``patched``:
    known packages were made to show the calls of their tools. ``repeatable``: what clock and chance of its
    Python processes were made of, with ``processes`` and ``looks`` at the clock; None: it was not asked for.
    ``hosts``: what was asked of them came through a proxy, and where it went; None: there was none.
    """

    id: str
    node: str
    command: tuple[str, ...]
    folder: str
    environment: tuple[str, ...]
    sources: Mapping[str, str]
    began: float
    exit: int | None = None
    output: str | None = None
    seconds: float | None = None
    files: str | None = None
    patched: bool = False
    marks: Mapping[str, str] = field(default_factory=dict)
    repeatable: Mapping[str, Any] | None = None
    hosts: Mapping[str, str] | None = None


class Tape:
    """Writes the exchanges of one run to a tree; safe in threads.

    ``draw`` is of a run that goes on from a recorded one: the node below which it stands, and its key there.
    ``lock``: of all that write this tree. ``start``: the blob of how the folder is, and ``changes`` what the
    program changed in it since.

    Raises:
        TreeError: the tree cannot be written.
    """

    def __init__(
        self,
        tree: Tree,
        command: Sequence[str],
        folder: Path,
        *,
        draw: tuple[str, str] | None = None,
        lock: threading.Lock | None = None,
        start: str | None = None,
        changes: Callable[[], Json] | None = None,
        patched: bool = False,
        repeatable: Json | None = None,
        hosts: Mapping[str, str] | None = None,
    ) -> None:
        self._tree, self._lock = tree, lock or threading.Lock()
        self._began, self._changes = time.time(), changes
        self._conversations: list[_Conversation] = []
        self._bodies: dict[int, bytes] = {}
        #: All that was said up to an answer, by its id: requests may name it in place of saying it again.
        self._said: dict[str, tuple[Message, ...]] = {}
        self.events, self.tokens, self._draw = 0, 0, draw is not None
        self._tools, self._asking = 0, dict[str, str]()
        run = ProgramRun(
            secrets.token_hex(8),
            "",
            _command_as_kept(command),
            str(folder),
            tuple(sorted(os.environ)),
            sources_of(command, folder),
            self._began,
            files=start,
            patched=patched,
            marks=marks_of(os.environ),
            repeatable=repeatable,
            hosts=hosts,
        )
        facts = {
            "version": VERSION, "id": run.id, "command": list(run.command), "folder": run.folder,
            "environment": list(run.environment), "sources": dict(run.sources), "began": run.began,
            **({} if start is None else {"files": start}),
            "patched": run.patched, "marks": dict(run.marks),
            **({} if repeatable is None else {"repeatable": repeatable}),
            **({} if hosts is None else {"hosts": dict(hosts)}),
        }  # fmt: skip
        begun = NewNode(kind="task", key=f"run/{run.id}", text=" ".join(run.command), extra={"run": facts})
        if draw is not None:
            parent, key = draw
            begun = NewNode(kind="observation", parent=parent, key=f"{key}/{run.id}", extra={"run": facts})
        with self._lock:
            (root,) = tree.append([begun])
        self.last = root.id
        self.run = replace(run, node=root.id)

    def add(self, wire: Wire, *, sampled: bool = True) -> TapeEvent:
        """Put an exchange on the tape, durably. ``sampled``: a model answered it now."""
        # The program waits for this answer, so that its folder stands still.
        changed = None if self._changes is None else zlib.compress(json.dumps(self._changes()).encode())
        with self._lock:
            number, self.events = self.events, self.events + 1
            request = self._whole(read_request(wire.path, wire.json))
            reply = (
                read_answer(request.dialect, wire.kind, wire.answer)
                if 200 <= wire.status < 300
                else ModelAnswer()
            )
            talk, prompt = self._position(request, number)
            base = talk.last if talk.last is not None else (number - 1 if number else None)
            blob = self._tree.put_blob(
                _packed(wire, base, self._bodies.get(-1 if base is None else base, b""))
            )
            above = node_id(prompt.parent, prompt.keep, prompt.kind, str(prompt.key))
            facts: Json = {"event": number, "conversation": talk.number, "wire": blob}
            facts |= facts_of(wire.asked_by, self._tree, without_variables)
            if changed is not None:
                facts["files"] = self._tree.put_blob(changed)
            answer = self._answer(wire, request, reply, above, facts)
            stored = self._tree.append([prompt, answer])
            self.last = stored[-1].id
            self.tokens += (reply.tokens_out or 0) * sampled
            talk.last, self._bodies[number] = number, wire.body
            if base is not None and not any(one.last == base for one in self._conversations):
                self._bodies.pop(base, None)  # nothing will be packed against it any more
            if request.messages is not None and reply.message is not None:
                talk.history = (*_digests(request.messages), *_digests([reply.message]))
                talk.leaf = stored[-1].id
            for call in (reply.message or {}).get("tool_calls") or []:
                self._asking[call["function"]["name"]] = stored[-1].id
            self._says(request, reply)
            return TapeEvent(number, stored[-1].id, talk.number, wire, facts.get("files"))

    def add_tool(self, name: str, made: NewNode, data: bytes) -> None:
        """Put a call of a tool on the tape, durably: below the last answer that asked for it, if any did."""
        with self._lock:
            number, self._tools = self._tools, self._tools + 1
            facts = {"run": self.run.id, "number": number, "after": self.events}
            node = replace(
                made,
                parent=self._asking.get(name, self.run.node),
                key=f"run/{self.run.id}/tool/{number}",
                extra={"tool": made.extra["tool"] | facts | {"data": self._tree.put_blob(data)}},
            )
            self._tree.append([node])

    def goes_on(self, events: Sequence[TapeEvent]) -> None:
        """What was said before this run began to be recorded, so that its requests add only what is new."""
        known: dict[int, _Conversation] = {}
        for event in events:
            request = self._whole(read_request(event.wire.path, event.wire.json))
            if request.messages is None or not 200 <= event.wire.status < 300:
                continue
            reply = read_answer(request.dialect, event.wire.kind, event.wire.answer)
            whole = _digests(request.messages)
            if event.conversation not in known:
                known[event.conversation] = _Conversation(
                    len(known), self.run.node, opening=_opening(request.messages, whole)
                )
            one = known[event.conversation]
            one.asked = whole
            # Asked once more, it stands at the beginning of this run.
            one.begun = _Begun(request.messages, "observation", self.run.node, whole)
            one.history = (*whole, *_digests([reply.message])) if reply.message is not None else ()
            self._says(request, reply)
        self._conversations = list(known.values())

    def end(
        self,
        exit_code: int,
        output: str,
        *,
        differs: Json | None = None,
        check: tuple[int, str] | None = None,
        readings: Mapping[str, str] | None = None,
    ) -> ProgramRun:
        """Say how the program ended.

        ``differs``: where its folder first differed from the recorded one. ``check``: exit status and output
        of the command that looked at what it left. ``readings``: what its processes read of the clock.
        """
        seconds, text = time.time() - self._began, as_kept(output)
        facts: Json = {"version": VERSION, "id": self.run.id, "exit": exit_code, "seconds": seconds}
        if differs is not None:
            facts["differs"] = differs
        if check is not None:
            facts["check"] = {"exit": check[0], "output": as_kept(check[1])}
        if readings is not None:
            facts["repeatable"] = {
                "readings": self._tree.put_blob(zlib.compress(json.dumps(dict(readings)).encode())),
                "processes": len(readings),
                "looks": sum(len(re.findall(r"^\d+\t", text, re.MULTILINE)) for text in readings.values()),
            }
        # Of a draw below its last answer: what it ends with is the end of that path.
        under = self.last if self._draw else self.run.node
        ended = NewNode(
            kind="verdict", parent=under, key=f"run/{self.run.id}/end", text=text, origin="real",
            cost=Cost(seconds=seconds), extra={"run": facts},
        )  # fmt: skip
        with self._lock:
            (node,) = self._tree.append([ended])
        self.last = node.id
        held = self.run.repeatable
        if held is not None:
            held = dict(held) | facts.get("repeatable", {})
        return replace(self.run, exit=exit_code, output=text, seconds=seconds, repeatable=held)

    def _whole(self, request: ModelRequest) -> ModelRequest:
        """A request with what the server holds of its conversation, as far as we have heard it."""
        if not request.after or request.messages is None:
            return request
        before = self._said.get(request.after)
        return replace(request, messages=None if before is None else (*before, *request.messages))

    def _says(self, request: ModelRequest, reply: ModelAnswer) -> None:
        if reply.id and request.messages is not None and reply.message is not None:
            self._said[reply.id] = (*request.messages, reply.message)

    def _position(self, request: ModelRequest, number: int) -> tuple[_Conversation, NewNode]:
        """The conversation that a request belongs to, and the node of what it adds."""
        if request.messages is None:
            # Not a conversation that we can read (embeddings, a list of models): each stands for itself.
            talk = _Conversation(len(self._conversations), self.run.node)
            self._conversations.append(talk)
            text = f"{request.dialect} request"
            return talk, NewNode(kind="observation", parent=self.run.node, key=f"asked/{number}", text=text)
        whole = _digests(request.messages)
        own = [one for one in self._conversations if one.asked]
        # The longest history first, and of equal ones the newest.
        going_on = [one for one in own if one.history and whole[: len(one.history)] == one.history]
        if going_on and len(whole) > len(max(going_on, key=_history).history):
            talk = max(going_on, key=_history)
            new, kind = request.messages[len(talk.history) :], "observation"
            talk.asked, talk.parent = whole, talk.leaf
        elif again := [one for one in own if one.asked == whole]:
            talk = again[-1]  # asked once more: after an error, or to draw again
            return talk, self._prompt(talk.begun, request, number)
        elif kin := [one for one in own if _opening(request.messages, whole) == one.opening]:
            talk = max(kin, key=lambda one: (_shared(one.history or one.asked, whole), one.number))
            new, kind = request.messages, "rewrite"
            talk.asked, talk.parent = whole, talk.leaf
        else:
            talk = _Conversation(
                len(self._conversations),
                self.run.node,
                asked=whole,
                opening=_opening(request.messages, whole),
            )
            self._conversations.append(talk)
            new, kind = request.messages, "observation"
        talk.begun = _Begun(tuple(new), kind, talk.parent, whole)
        return talk, self._prompt(talk.begun, request, number)

    def _prompt(self, begun: _Begun, request: ModelRequest, number: int) -> NewNode:
        messages = [dict(message) for message in begun.new]
        if request.tools and begun.parent == self.run.node:
            messages[0]["tools"] = list(request.tools)
        extra: Json = {"messages": messages} if len(messages) > 1 else {}
        if begun.kind == "rewrite":
            extra = {"messages": messages, "reason": "the program changed what was said before"}
        return NewNode(
            kind="rewrite" if begun.kind == "rewrite" else "observation",
            parent=begun.parent,
            key=f"asked/{_digest([begun.whole, list(request.tools)])}",
            text="\n".join(_content(message) for message in begun.new),
            message=messages[0] if len(messages) == 1 and begun.kind != "rewrite" else None,
            origin="real",
            policy=request.model if begun.kind == "rewrite" else None,
            extra=extra,
        )

    def _answer(
        self, wire: Wire, request: ModelRequest, reply: ModelAnswer, above: str, facts: Json
    ) -> NewNode:
        error = wire.failed or (None if 200 <= wire.status < 300 else f"HTTP {wire.status}")
        if wire.aborted:
            error = "the program went away before the answer's end"
        fields = asked_for(wire.json) if request.dialect == "chat" else {}
        more: Json = {
            "version": VERSION, "run": self.run.id, "dialect": request.dialect, "path": wire.path,
            "status": wire.status, "began": wire.began, "asked": wire.digest,
        }  # fmt: skip
        return NewNode(
            kind="action",
            parent=above,
            key=f"run/{self.run.id}/{facts['event']}",
            text=reply.text,
            message=reply.message,
            policy=request.model or None,
            settings=fields.get("settings"),
            finish="error" if error else reply.finish,
            error=error,
            cost=Cost(tokens_in=reply.tokens_in, tokens_out=reply.tokens_out, seconds=wire.seconds),
            extra={**fields.get("extra", {}), "exchange": more | facts},
        )


@final
@dataclass(frozen=True, slots=True)
class _Begun:
    """What a request added to its conversation."""

    new: tuple[Message, ...]
    kind: str
    parent: str
    whole: tuple[str, ...]


@dataclass(slots=True)
class _Conversation:
    """A conversation while it is recorded: digests of the last request and of all said, and its last node."""

    number: int
    parent: str
    asked: tuple[str, ...] = ()
    opening: str = ""
    history: tuple[str, ...] = ()
    leaf: str = ""
    last: int | None = None
    begun: _Begun = _Begun((), "", "", ())

    def __post_init__(self) -> None:
        self.leaf = self.leaf or self.parent


def _history(talk: _Conversation) -> tuple[int, int]:
    return len(talk.history), talk.number


def _shared(one: Sequence[str], other: Sequence[str]) -> int:
    return next(
        (i for i, (a, b) in enumerate(zip(one, other, strict=False)) if a != b), min(len(one), len(other))
    )


def _opening(messages: Sequence[Message], digests: Sequence[str]) -> str:
    """What tells conversations of one system prompt apart: all up to the first thing that a user said."""
    first = next((i for i, message in enumerate(messages) if message.get("role") == "user"), 0)
    return _digest(digests[: first + 1])


def _content(message: Message) -> str:
    content = message.get("content")
    if isinstance(content, list):
        return "".join(str(part.get("text", "")) for part in content if isinstance(part, dict))
    return str(content or "")


def _digests(messages: Sequence[Message]) -> tuple[str, ...]:
    """Of each message what makes it the same when it comes again; programs drop or change the rest."""
    found = []
    for message in messages:
        calls = []
        for call in message.get("tool_calls") or []:
            told = call.get("function") or {}
            arguments = told.get("arguments")
            with contextlib.suppress(ValueError):
                arguments = json.loads(arguments) if isinstance(arguments, str) else arguments
            calls.append([told.get("name"), arguments])
        content = message.get("content")
        if isinstance(content, list):
            rest = [part for part in content if not (isinstance(part, dict) and part.get("type") == "text")]
            content = [_content(message), *rest] if rest else _content(message)
        found.append(_digest([message.get("role"), content or "", calls]))
    return tuple(found)


def _digest(value: object) -> str:
    return hashlib.blake2b(json.dumps(value, sort_keys=True).encode(), digest_size=16).hexdigest()


def sources_of(command: Sequence[str], folder: Path) -> dict[str, str]:
    """Digests of the files that a command names: another one later is another program."""
    found = {}
    for part in command[:16]:
        path = Path(folder, part)
        if path.is_file() and path.stat().st_size < 1 << 24:
            found[part] = hashlib.sha256(path.read_bytes()).hexdigest()
    return found


def changed_since(run: ProgramRun, folder: Path) -> tuple[str, ...]:
    """Files of a run's command that are not what they were when it was recorded."""
    known = sources_of(run.command, folder)
    return tuple(name for name, digest in run.sources.items() if known.get(name, digest) != digest)


def marks_of(given: Mapping[str, str]) -> dict[str, str]:
    """A few bits of what variables hold; none of those that are named like keys, or are new each time."""
    return {
        name: hashlib.sha256(f"{name}={value}".encode("utf-8", "surrogateescape")).hexdigest()[:4]
        for name, value in given.items()
        if not _SECRET.search(name) and not _EACH_TIME.fullmatch(name)
    }


def drifted(run: ProgramRun, given: Mapping[str, str]) -> tuple[str, ...]:
    """Variables that the program had, or did not have, and that are not so in an environment."""
    now, had = marks_of(given), run.marks
    names = sorted(now.keys() | had.keys()) if had else ()
    back = GIVEN_BACK if run.repeatable is not None else re.compile("(?!)")
    return tuple(name for name in names if now.get(name) != had.get(name) and not back.fullmatch(name))


def as_kept(text: str) -> str:
    """A program's output as a tape holds it: without secrets, and of a long one the beginning and the end."""
    if len(text) > 2 * _OUTPUT:
        text = f"{text[:_OUTPUT]}\n... {len(text) - 2 * _OUTPUT:,} characters ...\n{text[-_OUTPUT:]}"
    return Redactor().text(_without_variables(text))


def _command_as_kept(command: Sequence[str]) -> tuple[str, ...]:
    redactor = Redactor()
    # What follows --api-key is a key by its name, whatever it looks like.
    names = ["", *(part.lstrip("-") if part.startswith("-") else "" for part in command)]
    return tuple(
        str(redactor.json(_without_variables(part), name)) for part, name in zip(command, names, strict=False)
    )


def _without_variables(text: str) -> str:
    """A text without what secret variables of the environment hold: errors quote them, and programs print."""
    for name, value in secrets_of():
        text = text.replace(value, f"[redacted:{name}]")
    return text


def secrets_of() -> list[tuple[str, str]]:
    """Names and values of the environment's variables that are named like keys."""
    named = ((name, value) for name, value in os.environ.items() if _SECRET.search(name))
    return [(name, value) for name, value in named if len(value) >= _SHORTEST]


def without_variables(value: Any) -> Any:
    """JSON without what secret variables of the environment hold."""
    if isinstance(value, str):
        return _without_variables(value)
    if isinstance(value, dict):
        return {without_variables(key): without_variables(one) for key, one in value.items()}
    return [without_variables(one) for one in value] if isinstance(value, list) else value


# -- the bytes ------------------------------------------------------------------------------------


def _packed(wire: Wire, base: int | None, before: bytes) -> bytes:
    """An exchange as a blob. A request repeats what came before: what differs from it is stored."""
    start = _common(before, wire.body)
    end = _common(before[start:][::-1], wire.body[start:][::-1])
    middle = wire.body[start : len(wire.body) - end]
    told: Json = {
        "version": VERSION, "method": wire.method, "path": wire.path, "query": wire.query,
        "base": base, "start": start, "end": end, "middle": _coded(middle),
        "status": wire.status, "headers": dict(wire.headers), "chunks": [_coded(one) for one in wire.chunks],
        "began": wire.began, "seconds": wire.seconds, "aborted": wire.aborted, "failed": wire.failed,
    }  # fmt: skip
    return zlib.compress(json.dumps(told).encode())


def _common(one: bytes, other: bytes) -> int:
    """How many bytes two texts have in common at their beginning."""
    low, high = 0, min(len(one), len(other))
    while low < high:
        half = (low + high + 1) // 2
        if one[:half] == other[:half]:
            low = half
        else:
            high = half - 1
    return low


def _coded(data: bytes) -> Any:
    """Bytes in JSON: text where they are text."""
    try:
        return data.decode()
    except UnicodeDecodeError:
        return {"base64": base64.b64encode(data).decode()}


def _decoded(value: Any) -> bytes:
    return value.encode() if isinstance(value, str) else base64.b64decode(value["base64"])


def _unpacked(blob: bytes, bodies: Mapping[int, bytes], where: str) -> Wire:
    try:
        told = json.loads(zlib.decompress(blob))
        before = b"" if told["base"] is None else bodies[told["base"]]
        tail = before[len(before) - told["end"] :] if told["end"] else b""
        return Wire(
            told["method"], told["path"], told["query"],
            before[: told["start"]] + _decoded(told["middle"]) + tail,
            told["status"], told["headers"], tuple(_decoded(one) for one in told["chunks"]),
            told["began"], told["seconds"], told["aborted"], told["failed"],
        )  # fmt: skip
    except (ValueError, KeyError, TypeError, zlib.error) as error:
        raise BadInput(
            f"the bytes of this exchange cannot be read: {error!r}", where=where, hint="refork tree verify"
        ) from error


# -- reading --------------------------------------------------------------------------------------


def runs_of(tree: Tree) -> list[ProgramRun]:
    """The runs of programs that a tree holds, in order of recording."""
    return [_run(tree, node) for node in tree.tasks() if _is_run(node)]


def find_run(tree: Tree, name: str | None) -> ProgramRun:
    """The run whose id begins so; without a name the last.

    Raises:
        BadInput: there is none, or more than one.
    """
    known = runs_of(tree)
    found = [run for run in known if run.id.startswith(name)] if name else known[-1:]
    if len(found) == 1:
        return found[0]
    ids = ", ".join(run.id for run in known[-8:]) or "none"
    raise BadInput(
        f"{'several runs begin' if found else 'no run begins'} with {name!r}"
        if name
        else "no run is recorded",
        where=tree.uri or "tree",
        hint=f"runs of this tree: {ids}; record one: refork agent record -- COMMAND",
    )


def counts(tree: Tree, run: ProgramRun) -> dict[str, int]:
    """Exchanges and conversations of a run, exchanges that failed, and tokens as far as they are known."""
    answers = [node for node in tree.walk(run.node) if node.kind == "action" and _of(node, run.id)]
    return {
        "exchanges": len(answers),
        "conversations": len({node.extra["exchange"]["conversation"] for node in answers}),
        "failed": sum(node.error is not None for node in answers),
        "tokens_in": sum(node.cost.tokens_in or 0 for node in answers),
        "tokens_out": sum(node.cost.tokens_out or 0 for node in answers),
    }


def events_of(tree: Tree, run: ProgramRun) -> list[TapeEvent]:
    """The exchanges of a run, in the order in which they ended.

    Raises:
        BadInput: one of them cannot be read.
    """
    answers = [node for node in tree.walk(run.node) if node.kind == "action" and _of(node, run.id)]
    answers.sort(key=lambda node: int(node.extra["exchange"]["event"]))
    bodies: dict[int, bytes] = {}
    found = []
    for node in answers:
        facts = node.extra["exchange"]
        where = f"run {run.id}, exchange {facts['event']}"
        wire = _unpacked(tree.blob(facts["wire"]), bodies, where)
        bodies[facts["event"]] = wire.body
        found.append(TapeEvent(facts["event"], node.id, facts["conversation"], wire, facts.get("files")))
    return found


def exchanges(tree: Tree, run: ProgramRun) -> list[Json]:
    """Of each exchange of a run its number, what was new in the request, what was said, and called."""
    answers = [node for node in tree.walk(run.node) if node.kind == "action" and _of(node, run.id)]
    answers.sort(key=lambda node: int(node.extra["exchange"]["event"]))
    found = []
    for node in answers:
        facts, calls = node.extra["exchange"], (node.message or {}).get("tool_calls") or []
        found.append(
            {
                "step": facts["event"], "conversation": facts["conversation"], "model": node.policy,
                "asked": tree.node(node.parent or run.node).text, "said": node.text,
                "calls": [call["function"]["name"] for call in calls],
                "arguments": [call["function"]["arguments"] for call in calls], "error": node.error,
                "tokens_in": node.cost.tokens_in, "tokens_out": node.cost.tokens_out, "node": node.id,
                **({"by": step_words(facts), "steps": facts["steps"]} if facts.get("steps") else {}),
                **({"state": facts["state_digest"]} if "state" in facts else {}),
            }
        )  # fmt: skip
    return found


def graph_state(tree: Tree, run: ProgramRun, step: int) -> Any:
    """The values of a graph as they were when it asked for an exchange.

    Raises:
        BadInput: there is no such exchange, or no state of it was told.
    """
    for node in tree.walk(run.node):
        if node.kind == "action" and _of(node, run.id) and node.extra["exchange"]["event"] == step:
            if "state" in node.extra["exchange"]:
                return state_of(tree, node.extra["exchange"])
            hint = "LangGraph's are kept: refork agent record --patch -- COMMAND"
            raise BadInput(f"no state is kept of step {step}", where=f"run {run.id}", hint=hint)
    raise BadInput(f"run {run.id} has no exchange {step}", hint="refork agent show")


def _of(node: Node, run: str) -> bool:
    facts = node.extra.get("exchange")
    return isinstance(facts, dict) and facts.get("run") == run


def _is_run(node: Node) -> bool:
    facts = node.extra.get("run")
    return isinstance(facts, dict) and facts.get("version") == VERSION


def _run(tree: Tree, root: Node) -> ProgramRun:
    facts = root.extra["run"]
    end = next(_ends(tree, root), None)
    return ProgramRun(
        facts["id"], root.id, tuple(facts["command"]), facts["folder"], tuple(facts["environment"]),
        facts["sources"], facts["began"],
        None if end is None else end.extra["run"]["exit"],
        None if end is None else end.text,
        None if end is None else end.extra["run"]["seconds"],
        facts.get("files"),
        facts.get("patched", False),
        facts.get("marks", {}),
        None if "repeatable" not in facts
        else facts["repeatable"] | ({} if end is None else end.extra["run"].get("repeatable", {})),
        facts.get("hosts"),
    )  # fmt: skip


def _ends(tree: Tree, root: Node) -> Iterator[Node]:
    return (node for node in tree.children(root) if node.kind == "verdict" and _is_run(node))
