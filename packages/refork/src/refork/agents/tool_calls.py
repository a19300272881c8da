"""Calls of a program's tools on the tape, and what is answered to a program that shows one.

A call is shown before it runs. The answer is to run it and tell what came, what the tape has, or a refusal.
So nothing that is intercepted runs before the point of a fork, or in a replay.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
import time
import zlib
from collections import Counter, defaultdict, deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Final, Literal, TypeAlias, final

from refork.agents.replay import FromTape, ReplayDivergence
from refork.agents.simulate import ToolSimulator
from refork.agents.tape import ProgramRun, Tape, TapeEvent, without_variables
from refork.errors import BadInput, CannotDo
from refork.formats.redact import Redactor
from refork.policies.base import Cost
from refork.tree.node import NewNode, Node
from refork.tree.tree import Tree
from refork.types import Json

#: Version of what stands under ``extra.tool`` and in its blob.
VERSION: Final = 1
#: Characters of a call that its node shows.
_SHOWN: Final = 2_000

#: What happens after the point of a fork: equal calls are the tape's and others are refused, or answered by a
#: model; or all run.
ToolsRule: TypeAlias = Literal["tape", "live", "simulate"]
#: What showed requests of MCP that are no calls of tools; a server is opened and asked what it has by them.
PROTOCOL: Final = "mcp-protocol"
#: How a call came to its result.
ToolMode: TypeAlias = Literal["recorded", "tape", "live", "simulated", "refused"]


@final
@dataclass(frozen=True, slots=True)
class ToolEvent:
    """The ``number``-th call of a tool in a run (from 0). ``after``: exchanges that had ended before it did.

    ``by`` is what showed it: ``decorator``, a package's name, ``mcp``, or :data:`PROTOCOL`; ``server`` is the
    command of an MCP server. ``line`` names the line of work of a repeatable run that made it. ``result``
    holds ``json``, ``error`` or, of what could not be kept, ``unkept``.
    """

    number: int
    node: str
    after: int
    mode: ToolMode
    name: str
    by: str
    server: str
    arguments: Any
    result: Json
    began: float
    seconds: float
    line: str = ""

    @property
    def digest(self) -> str:
        """What a call is matched by."""
        return _digest(self.name, self.server, self.arguments)

    @property
    def replayable(self) -> bool:
        """Whether the tape can answer the call."""
        return self.mode != "refused" and ("json" in self.result or "error" in self.result)


def of_tools(events: Sequence[ToolEvent]) -> list[ToolEvent]:
    """Calls of tools alone, without what else an MCP server was asked."""
    return [event for event in events if event.by != PROTOCOL]


@dataclass(slots=True)
class _Running:
    """A call that runs in the program."""

    call: Json
    mode: ToolMode
    began: float


@final
class ToolCalls:
    """Answers the calls that a program shows, and puts them on ``tape``.

    Without ``source`` the program is recorded: every call runs. With one it is replayed: ``recorded`` calls
    answer equal ones, in recorded order, and a call that is not among them is a divergence of ``source``.
    With ``reached``, which says whether the point of a fork was reached, ``rule`` holds behind it; ``before``
    tells the calls that were recorded before the point. ``simulator`` answers under the rule ``simulate``.
    """

    def __init__(
        self,
        tape: Tape | None,
        recorded: Sequence[ToolEvent] = (),
        *,
        source: FromTape | None = None,
        rule: ToolsRule = "tape",
        reached: Callable[[], bool] | None = None,
        before: Callable[[ToolEvent], bool] = lambda _: False,
        simulator: ToolSimulator | None = None,
    ) -> None:
        self._tape, self._source, self._rule = tape, source, rule
        self._reached, self._before, self._simulator = reached, before, simulator
        self._recorded = recorded
        self._waiting: dict[str, deque[ToolEvent]] = defaultdict(deque)
        self._last: dict[str, ToolEvent] = {}
        for event in recorded:
            self._waiting[event.digest].append(event)
            self._last[event.digest] = event
        self._running: dict[int, _Running] = {}
        self._shown = 0
        #: Calls that the tape answered, and those that a model did.
        self.given = self.simulated = 0

    async def answer(self, path: str, message: Any) -> Json:
        """Answer ``call`` or ``result``.

        Raises:
            BadInput: it is neither, or of another version.
        """
        if path == "call" and isinstance(message, dict) and message.get("version") == VERSION:
            return await self._call(_as_kept(message))
        if path == "result" and isinstance(message, dict) and message.get("id") in self._running:
            running = self._running.pop(message["id"])
            await self._put(running.call, without_variables(message["result"]), running.mode, running.began)
            return {"do": "go on"}
        raise BadInput(f"tools/{path} is not asked so", hint="the program's refork is of another version")

    async def close(self) -> None:
        """Of calls that never came back the tape says so: they ran, and are not to run again."""
        for running in self._running.values():
            await self._put(
                running.call, {"unkept": "it never came back", "text": ""}, running.mode, running.began
            )
        self._running.clear()

    async def _call(self, call: Json) -> Json:
        if self._source is None:
            return self._runs(call, "recorded")
        waiting = self._waiting.get(_digest_of(call))
        _to_the_front(waiting, call.get("line"))
        behind = self._reached is not None and self._reached()
        if not behind:
            return self._from_tape(call, waiting)
        if waiting and self._before(waiting[0]):
            # Of another conversation, which was behind: it has not come to the point yet.
            return self._from_tape(call, waiting)
        if self._rule == "live":
            return self._runs(call, "live")
        known = waiting.popleft() if waiting else self._last.get(_digest_of(call))
        if (known is None or not known.replayable) and self._simulator is not None:
            made = await asyncio.to_thread(self._simulator.result, call, self._known(call))
            self.simulated += 1
            if made is not None:
                result = {"json": made}
                await self._put(call, result, "simulated", time.time())
                return {"do": "give", "result": result}
        if known is None or not known.replayable:
            why = "no equal call is on the tape" if known is None else _unkept(known)
            why += "" if self._simulator is None else ", and nothing was simulated in the form of its results"
            await self._put(call, {"unkept": why, "text": why}, "refused", time.time())
            return {"do": "refuse", "why": f"{why}, and the rule is --tools {self._rule}"}
        self.given += call["by"] != PROTOCOL
        await self._put(call, known.result, "tape", time.time())
        return {"do": "give", "result": known.result}

    def _known(self, call: Json) -> list[tuple[Any, Any]]:
        """Arguments and results of the recorded calls of a tool."""
        return [
            (one.arguments, one.result["json"])
            for one in self._recorded
            if (one.name, one.server) == (call["name"], call["server"]) and "json" in one.result
        ]

    def _runs(self, call: Json, mode: ToolMode) -> Json:
        self._shown += 1
        self._running[self._shown] = _Running(call, mode, time.time())
        return {"do": "run", "id": self._shown}

    def _from_tape(self, call: Json, waiting: deque[ToolEvent] | None) -> Json:
        assert self._source is not None
        if self._source.divergence is None and not (waiting and waiting[0].replayable):
            cause = _unkept(waiting[0]) if waiting else self._nearest(call)
            path = f"the tool {call['name']}"
            self._source.divergence = ReplayDivergence(
                len(self._source.answered), path, None, "", None, _short(call["arguments"]), cause
            )
        if self._source.divergence is not None or not waiting:
            return {"do": "refuse", "why": f"not on the tape: {self._source.divergence}"}
        self.given += call["by"] != PROTOCOL
        return {"do": "give", "result": waiting.popleft().result}

    def _nearest(self, call: Json) -> str:
        left = [
            event
            for waiting in self._waiting.values()
            for event in waiting
            if (event.name, event.server) == (call["name"], call["server"])
        ]
        if left:
            event = min(left, key=lambda one: one.number)
            return f"the tape has it with {_short(event.arguments)}, the program {_short(call['arguments'])}"
        return f"the program called it with {_short(call['arguments'])} once more than when it was recorded"

    async def _put(self, call: Json, result: Json, mode: ToolMode, began: float) -> None:
        if self._tape is not None:
            await asyncio.to_thread(_put, self._tape, call, result, mode, began)


def _to_the_front(waiting: deque[ToolEvent] | None, line: str | None) -> None:
    """Of equal calls the one of the same line of work is next: others may run at the same time."""
    if waiting and line:
        for number, event in enumerate(waiting):
            if event.line == line:
                del waiting[number]
                waiting.appendleft(event)
                return


def _put(tape: Tape, call: Json, result: Json, mode: ToolMode, began: float) -> None:
    data = {
        "version": VERSION, "name": call["name"], "by": call["by"], "server": call["server"],
        "arguments": call["arguments"], "result": result,
    } | ({"line": call["line"]} if "line" in call else {})  # fmt: skip
    failed = result.get("unkept") or (result["error"]["text"] if "error" in result else None)
    came = f"{result['error']['class']}: {failed}" if "error" in result else _text(result)
    facts = {"version": VERSION, "mode": mode, "name": call["name"], "by": call["by"], "began": began}
    seconds = time.time() - began
    made = NewNode(
        kind="observation",
        text=f"{call['name']}({_short(call['arguments'])}) -> {came}"[:_SHOWN],
        origin="real" if mode in ("recorded", "live") else "simulated" if mode == "simulated" else "replayed",
        error=failed,
        cost=Cost(seconds=seconds),
        extra={"tool": facts},
    )
    tape.add_tool(call["name"], made, zlib.compress(json.dumps(data).encode()))


def tool_events(tree: Tree, run: ProgramRun) -> list[ToolEvent]:
    """The intercepted calls of a run's tools, in the order in which they ended.

    Raises:
        BadInput: one of them cannot be read.
    """
    found = []
    for node in tree.walk(run.node):
        if _of(node, run.id):
            facts = node.extra["tool"]
            try:
                data = json.loads(zlib.decompress(tree.blob(facts["data"])))
                found.append(
                    ToolEvent(
                        facts["number"], node.id, facts["after"], facts["mode"], data["name"], data["by"],
                        data["server"], data["arguments"], data["result"], facts["began"],
                        node.cost.seconds or 0.0, data.get("line", ""),
                    )
                )  # fmt: skip
            except (ValueError, KeyError, TypeError, zlib.error) as error:
                where = f"run {run.id}, tool call {facts.get('number')}"
                raise BadInput(
                    f"it cannot be read: {error!r}", where=where, hint="refork tree verify"
                ) from error
    return sorted(found, key=lambda event: event.number)


def tool_modes(tree: Tree, run: str, node: str) -> Counter[str]:
    """How often each mode gave a result in the run with an id, below a node."""
    return Counter(one.extra["tool"]["mode"] for one in tree.walk(node) if _of(one, run))


def before_point(at: TapeEvent) -> Callable[[ToolEvent], bool]:
    """Tells the calls that were recorded before the point of a fork."""

    def earlier(call: ToolEvent) -> bool:
        # By the clock, too: what ended behind the point may have begun before it.
        return call.after <= at.number or call.began < at.wire.began

    return earlier


def check_replayable(run: ProgramRun, events: Sequence[ToolEvent]) -> None:
    """Refuse what would have to run a tool again, before anything runs.

    Raises:
        CannotDo: the tape has a call without its result.
    """
    for event in events:
        if not event.replayable:
            raise CannotDo(
                f"what the tool {event.name} returned is not on the tape: {event.result['unkept']}",
                where=f"run {run.id}, tool call {event.number}",
                hint="let the tool return JSON, and record again",
            )


def covered(tree: Tree, run: ProgramRun) -> bool:
    """Whether every tool that a model asked for in a run was intercepted, as far as the tape can tell."""
    asked: Counter[str] = Counter()
    for node in tree.walk(run.node):
        facts = node.extra.get("exchange")
        if node.kind == "action" and isinstance(facts, dict) and facts.get("run") == run.id:
            asked.update(call["function"]["name"] for call in (node.message or {}).get("tool_calls") or [])
    had = Counter(event.name for event in tool_events(tree, run))
    return bool(had) and all(had[name] >= count for name, count in asked.items())


def _of(node: Node, run: str) -> bool:
    facts = node.extra.get("tool")
    return isinstance(facts, dict) and facts.get("run") == run and facts.get("version") == VERSION


def _as_kept(told: Json) -> Json:
    """A call as the tape holds and compares it: without secrets."""
    call = {"name": str(told["name"]), "by": str(told.get("by", "")), "server": str(told.get("server", ""))}
    if told.get("line"):
        call["line"] = str(told["line"])
    clean = without_variables({**call, "arguments": told.get("arguments")})
    return {**clean, "arguments": Redactor().json(clean["arguments"])}


def _unkept(event: ToolEvent) -> str:
    return f"its recorded result could not be kept: {event.result.get('unkept')}"


def _text(result: Json) -> str:
    if "json" not in result:
        return str(result.get("text") or result.get("unkept"))
    value = result["json"]
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


def _short(value: Any) -> str:
    text = json.dumps(value, ensure_ascii=False)
    return text if len(text) <= 160 else f"{text[:80]} ... {text[-80:]}"


def _digest_of(call: Json) -> str:
    return _digest(call["name"], call["server"], call["arguments"])


def _digest(name: str, server: str, arguments: Any) -> str:
    told = json.dumps([name, server, arguments], sort_keys=True)
    return hashlib.blake2b(told.encode(), digest_size=16).hexdigest()
