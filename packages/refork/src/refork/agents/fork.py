"""Fork a recorded program: from the tape up to one exchange, then live, with one thing changed and without.

Both arms run the same program. The control is always drawn. A draw is a run of its own on the tree, below the
exchange at which it left the tape; its last node holds how the program ended, and the score of that.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
import re
import threading
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import dataclass, replace
from typing import Any, Final, Literal, TypeAlias, final

from refork.agents.dialects import answer_with, dialect_of
from refork.agents.endpoint import HttpReply, Upstream
from refork.agents.program import TIMED_OUT, command_of, folder_of, run_program
from refork.agents.replay import FromTape, give
from refork.agents.tape import ProgramRun, Tape, TapeEvent, Wire, events_of, sources_of
from refork.errors import BadChange, BadInput
from refork.forking.arm import Fork
from refork.forking.recorded import recorded_arm
from refork.progress import Progress, silent
from refork.tree.score import DrawRecord, ForkRecord, Producer, Score
from refork.tree.tree import Tree
from refork.types import Json

#: Version of what an arm's identity holds.
IDENTITY: Final = 1
Kind: TypeAlias = Literal["answer", "again", "text", "set", "model", "forbid"]


@final
@dataclass(frozen=True, slots=True)
class ProgramChange:
    """One thing that differs from the exchange on.

    ``answer``: the model says ``new`` there. ``again``: it is asked anew. With both the control keeps the
    recorded answer. ``text``: in every request from there on, ``old`` is ``new``. ``set``: the setting
    ``old`` is ``new``, as JSON. ``model``: its name is ``new``. ``forbid``: the tool ``new`` is not offered.
    With these the control asks anew, too.
    """

    kind: Kind
    new: str = ""
    old: str = ""

    @classmethod
    def parse(cls, text: str) -> ProgramChange:
        """A change as the command line names it.

        Raises:
            BadChange: it is none.
        """
        kind, _, rest = text.partition(":")
        if text == "again":
            return cls("again")
        if kind in ("answer", "model", "forbid") and rest:
            return cls(kind, rest)  # type: ignore[arg-type]  # one of the three
        if kind == "text" and "=>" in rest and not rest.startswith("=>"):
            old, _, new = rest.partition("=>")
            return cls("text", new, old)
        if kind == "set" and re.match(r"\w+=.", rest):
            old, _, new = rest.partition("=")
            return cls("set", new, old)
        raise BadChange(
            f"{text!r} is no change of a program's run",
            hint="answer:TEXT, again, text:OLD=>NEW, set:NAME=VALUE, model:NAME or forbid:TOOL",
        )

    @property
    def keeps_answer(self) -> bool:
        """Whether the control keeps the recorded answer."""
        return self.kind in ("answer", "again")

    def to_json(self) -> Json:
        """Plain fields, with a text as the tree's other changes have it."""
        if self.kind == "set":
            return {"kind": "set", "values": {self.old: self.new}}
        return {"kind": self.kind, "text": f"{self.old} => {self.new}" if self.old else self.new}

    def edit(self, path: str, body: Any) -> Any:
        """A request's JSON with the change; the same where it has no effect there."""
        if not isinstance(body, dict):
            return body
        if self.kind == "text":
            return _replaced(body, self.old, self.new)
        if self.kind == "model" and "model" in body:
            return {**body, "model": self.new}
        if self.kind == "set":
            try:
                value = json.loads(self.new)
            except ValueError:
                value = self.new
            return {**body, self.old: value}
        if self.kind == "forbid" and isinstance(body.get("tools"), list):
            kept = [tool for tool in (_without(tool, self.new) for tool in body["tools"]) if tool is not None]
            rest = {key: value for key, value in body.items() if key != "tools"}
            # Some servers refuse an empty list of tools, and a choice where there is nothing to choose.
            return {**rest, "tools": kept} if kept else {k: v for k, v in rest.items() if k != "tool_choice"}
        return body


def _replaced(value: Any, old: str, new: str) -> Any:
    if isinstance(value, str):
        return value.replace(old, new)
    if isinstance(value, dict):
        return {key: _replaced(one, old, new) for key, one in value.items()}
    return [_replaced(one, old, new) for one in value] if isinstance(value, list) else value


def _without(tool: Any, name: str) -> Any:
    """A tool of any dialect, None where it is the one; Gemini's hold several."""
    if not isinstance(tool, dict):
        return tool
    if name in (tool.get("name"), (tool.get("function") or {}).get("name")):
        return None
    for key in ("functionDeclarations", "function_declarations"):
        if isinstance(tool.get(key), list):
            left = [one for one in tool[key] if one.get("name") != name]
            return {**tool, key: left} if left else None
    return tool


@final
@dataclass(frozen=True, slots=True)
class Outcome:
    """How a draw is graded: 1 where the program ended so, else 0. Both where both are given.

    ``succeeds``: a regular expression that its output must have, ``fails`` one that it must not have. Without
    either: exit status 0.
    """

    succeeds: str | None = None
    fails: str | None = None

    def __post_init__(self) -> None:
        for option, pattern in (("--succeeds", self.succeeds), ("--fails", self.fails)):
            try:
                re.compile(pattern or "")
            except re.error as error:
                raise BadInput(f"{pattern!r} is no regular expression: {error}", where=option) from error

    def grade(self, status: int, output: str) -> float:
        """1 or 0."""
        if self.succeeds is None and self.fails is None:
            return float(status == 0)
        good = self.succeeds is None or re.search(self.succeeds, output) is not None
        return float(good and (self.fails is None or re.search(self.fails, output) is None))

    @property
    def producer(self) -> Producer:
        """Who grades."""
        return Producer("outcome", "1", {"succeeds": self.succeeds, "fails": self.fails})


@final
@dataclass(frozen=True, slots=True)
class ProgramForkSettings:
    """How draws are run. ``to``: a server in place of the providers. ``folder``: not the recorded one.

    ``limit_s``: seconds until a draw is ended. ``jobs``: programs that run at the same time.
    """

    to: str | None = None
    folder: str | None = None
    limit_s: float = 600.0
    jobs: int = 1


@final
@dataclass(frozen=True, slots=True)
class ProgramCost:
    """What a fork will ask, by what the recorded run asked from the exchange on; tokens None: not known."""

    calls: int
    tokens: int | None


def cost_of(tree: Tree, run: ProgramRun, event: int, draws: int) -> ProgramCost:
    """About how much both arms will ask for: each draw as much as the recorded run from there on."""
    events = events_of(tree, run)
    _check_event(run, events, event)
    later = events[event:]
    nodes = [tree.node(one.node) for one in later]
    known = [(node.cost.tokens_in, node.cost.tokens_out) for node in nodes]
    tokens = [i + o for i, o in known if i is not None and o is not None]
    return ProgramCost(2 * draws * len(later), 2 * draws * sum(tokens) if len(tokens) == len(known) else None)


def fork_run(
    tree: Tree,
    run: ProgramRun,
    event: int,
    change: ProgramChange,
    draws: int = 16,
    *,
    outcome: Outcome | None = None,
    settings: ProgramForkSettings | None = None,
    progress: Progress = silent,
) -> tuple[Fork, Fork]:
    """Run a recorded program on from one exchange, ``draws`` times with a change and as often without.

    Up to exchange ``event`` every answer is the tape's, and no model is asked. From there on requests go to
    the providers. The program's own tools run again, before the point, too. Draws that are on the tree are
    not drawn again. Arms share no noise. The pair of arms, control first, is what ``compare`` takes.

    Raises:
        BadInput: no such exchange, no such program or folder.
        BadChange: a change that changes nothing there.
        CannotDo: the recorded answer cannot be replaced.
    """
    how, grading = settings or ProgramForkSettings(), outcome or Outcome()
    place = folder_of(how.folder or run.folder)
    command = command_of(run.command, place)
    events = events_of(tree, run)
    _check_event(run, events, event)
    if draws < 1:
        raise BadInput(f"{draws} draws are none", where="--draws")
    _check(change, events[event])
    point = tree.node(tree.node(events[event].node).parent or run.node)
    card: Json = {
        "kind": "program",
        "name": " ".join(run.command),
        "capabilities": [],
        "extra": {"to": how.to},
    }
    records = []
    for one in (None, change):
        told = None if one is None else one.to_json()
        # The files of the command are part of it: another version of the program is another arm.
        drawn = [how.to, how.folder, how.limit_s, sources_of(command, place)]
        body = [IDENTITY, run.id, event, change.keeps_answer, told, drawn]
        records.append(
            tree.begin_fork(
                ForkRecord(
                    hashlib.blake2b(json.dumps(body).encode(), digest_size=16).hexdigest(),
                    point.parent or run.node, None, told, card, {}, None, 0, event,
                    {"program": run.id, "event": event, "keeps": change.keeps_answer},
                )
            )
        )  # fmt: skip
    # Draw by draw, both arms: what is stopped in the middle has as many of the one as of the other.
    wanted = [
        (number, record, one)
        for number in range(draws)
        for record, one in zip(records, (None, change), strict=True)
    ]
    have = {record.id: {draw.draw for draw in tree.draws(record.id)} for record in records}
    missing = [item for item in wanted if item[0] not in have[item[1].id]]
    tree.add_producer(grading.producer)
    lock = threading.Lock()
    took = {record.id: [0, 0.0] for record in records}

    def draw(item: tuple[int, ForkRecord, ProgramChange | None]) -> None:
        number, record, one = item
        tape = Tape(tree, command, place, draw=(record.node, f"draw/{record.id}/{number}"), lock=lock)
        way = _Branch(events, event, one, change.keeps_answer, tape, Upstream(tape, to=how.to))
        tape.goes_on(events[:event])
        status, output, _ = run_program(way, command, place, quiet=True, limit_s=how.limit_s)
        ended = tape.end(status, output)
        error = way.error or (None if way.reached else "the program ended before the point was reached")
        end = "error" if error else "limit" if status == TIMED_OUT else "done"
        with lock:
            leaf = tape.last
            took[record.id][0] += tape.tokens
            took[record.id][1] += ended.seconds or 0.0
            tree.finish_draws([DrawRecord(record.id, number, leaf, end, error)])

    progress("runs of the program", 0, len(missing))
    with ThreadPoolExecutor(how.jobs) as pool:
        waiting = [pool.submit(draw, item) for item in missing]
        try:
            for count, ended in enumerate(as_completed(waiting), start=1):
                ended.result()
                progress("runs of the program", count, len(missing))
        finally:
            # After an error or Ctrl-C: what runs ends, what waits does not begin.
            pool.shutdown(cancel_futures=True)
    _grade(tree, [record.id for record in records], grading)
    control, changed = (
        replace(
            recorded_arm(tree, record.id),
            tokens=int(took[record.id][0]),
            seconds=took[record.id][1],
            judge=(grading.producer.id, "success"),
        )
        for record in records
    )
    return control, changed


def _grade(tree: Tree, arms: Sequence[str], outcome: Outcome) -> None:
    """Grade all draws by what the tape holds of their ends, those of earlier calls, too."""
    leaves = [draw.leaf for arm in arms for draw in tree.draws(arm) if draw.end != "error"]
    known = tree.score_map("success", leaves, outcome.producer.id)
    ends = tree.nodes(leaf for leaf in leaves if leaf not in known)
    tree.add_scores(
        Score(node.id, "success", outcome.grade(node.extra["run"]["exit"], node.text), outcome.producer.id)
        for node in ends
    )


def _check_event(run: ProgramRun, events: Sequence[TapeEvent], event: int) -> None:
    if not 0 <= event < len(events):
        raise BadInput(f"run {run.id} has no exchange {event}", hint=f"it has 0 to {len(events) - 1}")


def _check(change: ProgramChange, at: TapeEvent) -> None:
    """Refuse what would change nothing, before anything is drawn."""
    body = at.wire.json
    if change.kind == "answer":
        answer_with(dialect_of(at.wire.path), at.wire.kind, at.wire.answer, change.new)
    elif change.kind != "again" and change.edit(at.wire.path, body) == body:
        raise BadChange(
            f"{change.kind} changes nothing in the request of exchange {at.number}",
            where=f"{change.old or change.new!r}",
            hint="it must stand in the request: refork view shows what was asked",
        )


@final
class _Branch:
    """Answers one draw: from the tape up to the point, there what the arm says, behind it live.

    ``error``: the program went another way before the point, so that this is no draw of this arm.
    """

    def __init__(
        self,
        events: Sequence[TapeEvent],
        event: int,
        change: ProgramChange | None,
        keeps_answer: bool,
        tape: Tape,
        upstream: Upstream,
    ) -> None:
        self._at, self._change, self._keeps = events[event], change, keeps_answer
        # All but the point: a conversation beside it may be ahead of where it was when it was recorded.
        self._before = FromTape([one for one in events if one.number != event])
        self._tape, self._upstream = tape, upstream
        self.reached = False

    @property
    def error(self) -> str | None:
        """Why this is no draw; None: it is one."""
        found = self._before.divergence
        return None if found is None else f"it left the tape before the point: {found}"

    async def answer(self, wire: Wire, headers: Mapping[str, str], reply: HttpReply) -> None:
        """Answer a request of the program."""
        if not self.reached and self._is_point(wire):
            self.reached = True
            await self._at_the_point(wire, headers, reply)
        elif not self.reached:
            await self._before.answer(wire, headers, reply)
        elif self._before.takes(wire, self._at.number):
            # Of another conversation, which was behind: it has not come to the point yet.
            await self._before.answer(wire, headers, reply)
        else:
            await self._live(wire, headers, reply)

    async def close(self) -> None:
        """Give back the connections."""
        await self._upstream.close()

    def _is_point(self, wire: Wire) -> bool:
        # Equal requests before it are the tape's.
        return wire.digest == self._at.wire.digest and not self._before.takes(wire, self._at.number)

    async def _at_the_point(self, wire: Wire, headers: Mapping[str, str], reply: HttpReply) -> None:
        if not self._keeps or (self._change is not None and self._change.kind == "again"):
            await self._live(wire, headers, reply)
            return
        given = replace(self._at.wire, body=wire.body)
        if self._change is not None:
            name = dialect_of(wire.path)
            given = replace(given, chunks=answer_with(name, given.kind, given.answer, self._change.new))
        await asyncio.to_thread(self._tape.add, given, sampled=False)
        await give(given, reply)

    async def _live(self, wire: Wire, headers: Mapping[str, str], reply: HttpReply) -> None:
        if self._change is not None and not self._keeps:
            body = self._change.edit(wire.path, wire.json)
            if body is not None:
                wire = replace(wire, body=json.dumps(body).encode())
        await self._upstream.answer(wire, headers, reply)
