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
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from contextlib import AbstractContextManager, ExitStack, nullcontext
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, Final, Literal, TypeAlias, final

from refork.agents.dialects import (
    BEGUN,
    answer_begun,
    answer_edited,
    answer_pieces,
    answer_with,
    dialect_of,
    read_answer,
    request_begun,
)
from refork.agents.endpoint import HttpReply, Upstream, server_of
from refork.agents.hook import RepeatableRun
from refork.agents.program import (
    TIMED_OUT,
    ContainedRun,
    command_of,
    folder_of,
    proxy_for,
    run_check,
    run_program,
    unless_none,
)
from refork.agents.replay import REPEATABLE_HINT, FromTape, give
from refork.agents.simulate import ToolSimulator
from refork.agents.snapshots import FolderDivergence
from refork.agents.tape import ProgramRun, Tape, TapeEvent, Wire, changed_since, events_of, sources_of
from refork.agents.tool_calls import (
    ToolCalls,
    ToolsRule,
    before_point,
    check_replayable,
    tool_events,
    tool_modes,
)
from refork.errors import BadChange, BadInput, CannotDo
from refork.forking.arm import Fork
from refork.forking.effect import Effect, compare
from refork.forking.recorded import recorded_arm
from refork.judge import Judge, load_judge
from refork.progress import Progress, silent
from refork.tree.score import DrawRecord, ForkRecord, Producer, Score
from refork.tree.tree import Tree
from refork.types import Json

#: Version of what an arm's identity holds.
IDENTITY: Final = 1
#: Seconds after which a draw in which the provider failed is begun anew; statuses by which it says that it
#: will not answer then either.
_PAUSES: Final = (2.0, 20.0)
_REFUSED: Final = frozenset({400, 401, 402, 403, 404, 422})
#: Whose servers are known to go on from the beginning of an answer of a chat.
_GO_ON: Final = frozenset({"vllm", "sglang", "refork"})
#: What a judge must say at least of a draw that is good.
_GOOD: Final = 0.5
Kind: TypeAlias = Literal["answer", "part", "again", "text", "set", "model", "forbid"]


@final
@dataclass(frozen=True, slots=True)
class ProgramChange:
    """One thing that differs from the exchange on.

    ``answer``: the model says ``new`` there. ``part``: in its recorded answer ``old`` is ``new``, in the text
    and in arguments of calls. ``again``: it is asked anew. With these the control keeps the recorded answer.
    ``text``: in every request from there on, ``old`` is ``new``. ``set``: the setting ``old`` is ``new``, as
    JSON. ``model``: its name is ``new``. ``forbid``: the tool ``new`` is not offered.
    With these the control asks anew, too.

    With a ``token``, which goes with ``again`` and ``answer``, the recorded answer is kept up to it, ``new``
    stands in its place, and the model goes on from there.
    """

    kind: Kind
    new: str = ""
    old: str = ""
    token: int | None = None

    def __post_init__(self) -> None:
        if self.token is not None and self.kind not in ("again", "answer"):
            raise BadChange(f"{self.kind} is no change at a token", hint="again, or answer:TEXT")

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
        if kind in ("text", "part") and "=>" in rest and not rest.startswith("=>"):
            old, _, new = rest.partition("=>")
            return cls(kind, new, old)  # type: ignore[arg-type]  # one of the two
        if kind == "set" and re.match(r"\w+=.", rest):
            old, _, new = rest.partition("=")
            return cls("set", new, old)
        raise BadChange(
            f"{text!r} is no change of a program's run",
            hint="answer:TEXT, part:OLD=>NEW, again, text:OLD=>NEW, set:NAME=VALUE, model:NAME, forbid:TOOL",
        )

    @property
    def keeps_answer(self) -> bool:
        """Whether the control keeps the recorded answer."""
        return self.kind in ("answer", "part", "again")

    def to_json(self) -> Json:
        """Plain fields, with a text as the tree's other changes have it."""
        if self.kind == "set":
            return {"kind": "set", "values": {self.old: self.new}}
        told: Json = {"kind": self.kind, "text": f"{self.old} => {self.new}" if self.old else self.new}
        return told if self.token is None else {**told, "at": self.token}

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
    """How a draw is graded: 1 where all that is given holds of how the program ended, else 0.

    ``succeeds``: a regular expression that its output must have, ``fails`` one that it must not have.
    ``check``: a shell command that must end with status 0; it runs in the folder that the program left, and
    reads what the program printed. ``judge``: a judge of trajectories by its name, ``FILE.py:NAME`` or
    ``package.module:NAME``; 0.5 and more is good, and a draw of which it says nothing is not graded. Without
    any of them: exit status 0.
    """

    succeeds: str | None = None
    fails: str | None = None
    check: str | None = None
    judge: str | None = None

    def __post_init__(self) -> None:
        for option, pattern in (("--succeeds", self.succeeds), ("--fails", self.fails)):
            try:
                re.compile(pattern or "")
            except re.error as error:
                raise BadInput(f"{pattern!r} is no regular expression: {error}", where=option) from error
        if self.check is not None and not self.check.strip():
            raise BadInput("an empty command checks nothing", where="--check")
        self._loaded()

    def _loaded(self) -> Judge | None:
        return None if self.judge is None else load_judge(self.judge)

    @property
    def by_ending(self) -> bool:
        """Whether exit status and output say it all."""
        return self.check is None and self.judge is None

    def grade(self, status: int, output: str) -> float:
        """1 or 0, by exit status and output alone."""
        if self == Outcome():
            return float(status == 0)
        good = self.succeeds is None or re.search(self.succeeds, output) is not None
        return float(good and (self.fails is None or re.search(self.fails, output) is None))

    def grade_draws(self, tree: Tree, leaves: Sequence[str]) -> Iterator[tuple[str, float]]:
        """1 or 0 of draws that end with nodes; those of which the judge says nothing are left out."""
        judge = self._loaded()
        for end in tree.nodes(leaves):
            facts = end.extra["run"]
            good = self.grade(facts["exit"], end.text) and not (self.check and facts["check"]["exit"])
            value = float(good)
            if good and judge is not None:
                said = judge.judge(next(iter(tree.paths([end.id])))).value
                if said is None:
                    continue
                value = float(said >= _GOOD)
            yield end.id, value

    @property
    def producer(self) -> Producer:
        """Who grades."""
        said: Json = {"succeeds": self.succeeds, "fails": self.fails}
        if self.check is not None:
            said["check"] = self.check
        if (judge := self._loaded()) is not None:
            said["judge"] = [judge.producer.name, judge.producer.version, dict(judge.producer.config)]
        return Producer("outcome", "1", said)


@final
@dataclass(frozen=True, slots=True)
class ProgramForkSettings:
    """How draws are run. ``to``: a server in place of the providers. ``folder``: not the recorded one.

    ``limit_s``: seconds until a draw is ended. ``jobs``: programs that run at the same time. ``contained``:
    each draw changes no folder but a layer of its own, above the folder as it was when the run began, where
    that was kept; ``network``: it may reach other machines all the same. ``tools``: what becomes of
    intercepted calls of tools behind the point. The tape answers equal ones; others are refused, or answered
    by the model ``simulator`` (``simulate``); or all run (``live``). Before the point they are the tape's
    always. ``in_order``: before the point, a request that equals no recorded one gets the next recorded
    answer, and the first one behind those is the point: for a program that was changed since. ``stop``: once
    it is set, what runs is ended and nothing is begun. ``budget``: requests to providers after which no draw
    is begun.
    """

    to: str | None = None
    folder: str | None = None
    limit_s: float = 600.0
    jobs: int = 1
    contained: bool = False
    network: bool = False
    tools: ToolsRule = "tape"
    in_order: bool = False
    stop: threading.Event | None = None
    simulator: str | None = None
    budget: int | None = None

    def __post_init__(self) -> None:
        if (self.tools == "simulate") != bool(self.simulator):
            raise BadInput(
                "a model that answers for tools goes with the rule simulate",
                where="--simulator",
                hint="--tools simulate --simulator MODEL",
            )

    def container(
        self, tree: Tree, run: ProgramRun, folder: Path
    ) -> AbstractContextManager[ContainedRun | None]:
        """Where the programs run; None: in the folder itself."""
        if not self.contained:
            return nullcontext()
        return ContainedRun(tree, run, folder=folder, network=self.network)

    @property
    def kept_apart(self) -> list[Json]:
        """What of this an arm's identity holds beside what every arm's does."""
        return [{"contained": True, "network": self.network}] if self.contained else []


@final
@dataclass(frozen=True, slots=True)
class ProgramCost:
    """What a fork will ask, by what the recorded run asked from the exchange on; tokens None: not known."""

    calls: int
    tokens: int | None


def answer_tokens(tree: Tree, run: ProgramRun, event: int) -> list[str]:
    """The text of a recorded answer in the pieces that a change at a token counts; none: it has no text.

    Raises:
        BadInput: no such exchange.
    """
    events = events_of(tree, run)
    _check_event(run, events, event)
    at = events[event].wire
    return answer_pieces(dialect_of(at.path), at.kind, at.answer)


def cost_of(tree: Tree, run: ProgramRun, event: int, draws: int) -> ProgramCost:
    """About how much both arms will ask for: each draw as much as the recorded run from there on."""
    events = events_of(tree, run)
    _check_event(run, events, event)
    later = events[event:]
    nodes = [tree.node(one.node) for one in later]
    known = [(node.cost.tokens_in, node.cost.tokens_out) for node in nodes]
    tokens = [i + o for i, o in known if i is not None and o is not None]
    return ProgramCost(2 * draws * len(later), 2 * draws * sum(tokens) if len(tokens) == len(known) else None)


@final
class ProgramPoints:
    """Exchanges of one recorded run at which arms leave the tape, and how their draws are run and graded.

    As a context it keeps what contained programs begin in from one :meth:`draw` to the next.

    Raises:
        BadInput: no such program or folder; the run cannot be read.
    """

    def __init__(
        self,
        tree: Tree,
        run: ProgramRun,
        *,
        outcome: Outcome | None = None,
        settings: ProgramForkSettings | None = None,
    ) -> None:
        self.tree, self.run = tree, run
        self._how, self._outcome = settings or ProgramForkSettings(), outcome or Outcome()
        self._producer = self._outcome.producer
        self._place = folder_of(self._how.folder or run.folder)
        self._command = command_of(run.command, self._place)
        self._changed = changed_since(run, self._place)
        self.events, self._called = events_of(tree, run), tool_events(tree, run)
        self._lock, self._stopped = threading.Lock(), threading.Event()
        # What the recorded run met is the program's world.
        self._met = {0 if event.wire.failed else event.wire.status for event in self.events}
        self._took: dict[str, _Took] = {}
        self._simulator: ToolSimulator | None = None
        self._goes_on: bool | None = None
        self._kept: ExitStack | None = None
        self._inside: ContainedRun | None = None
        #: Requests that went to providers, and runs of the program, of all draws until now.
        self.calls = self.runs = 0

    def __enter__(self) -> ProgramPoints:
        self._kept = ExitStack()
        return self

    def __exit__(self, *_: object) -> None:
        if self._kept is not None:
            self._kept.close()
        self._kept = self._inside = None

    def _container(self, stack: ExitStack) -> ContainedRun | None:
        if self._inside is not None:
            return self._inside
        inside = (self._kept or stack).enter_context(self._how.container(self.tree, self.run, self._place))
        if self._kept is not None:
            self._inside = inside
        return inside

    @property
    def by_ending(self) -> bool:
        """Whether exit status and output alone say how a run is graded."""
        return self._outcome.by_ending

    def pieces(self, event: int) -> list[str]:
        """The text of a recorded answer in the pieces at which it can be cut, its tokens where known.

        Raises:
            CannotDo: nobody would go on from the beginning of this answer, or it has no text.
        """
        at = self.events[event].wire
        name, what = dialect_of(at.path), f"the answer at step {event}"
        hint = "change a part of the answer (part:OLD=>NEW), or draw it anew (again)"
        if name not in BEGUN or not isinstance(at.json, dict):
            raise CannotDo(f"{what}: no answer of {name} can be gone on with", hint=hint)
        answer = read_answer(name, at.kind, at.answer)
        if (answer.message or {}).get("reasoning_content"):
            raise CannotDo(f"{what} was thought of before it was said, which cannot be given back", hint=hint)
        if name == "chat" and self._goes_on is None:
            self._goes_on = server_of(at.path, to=self._how.to) in _GO_ON
        if name == "chat" and not self._goes_on:
            raise CannotDo(
                f"{what}: its server is not known to go on from the beginning of an answer",
                hint="vLLM, SGLang and refork serve do (--to ADDRESS); or " + hint,
            )
        pieces = answer_pieces(name, at.kind, at.answer)
        if not pieces:
            raise CannotDo(f"{what} has no text", hint=hint)
        return pieces

    def arm(
        self, event: int, change: ProgramChange | None = None, *, keeps: bool = False, seed: int = 0
    ) -> ProgramArm:
        """The arm that leaves the tape at an exchange. ``keeps``: it has the recorded answer there.

        Arms of another ``seed`` are draws of their own of the same.

        Raises:
            BadInput: no such exchange.
            BadChange: a change that changes nothing there.
            CannotDo: the recorded answer cannot be replaced, or what a tool returned before it was not kept.
        """
        _check_event(self.run, self.events, event)
        begun = ""
        if change is not None and change.token is not None:
            pieces = self.pieces(event)
            if not 0 <= change.token < len(pieces):
                raise BadInput(
                    f"the answer at step {event} has no token {change.token}",
                    hint=f"it has 0 to {len(pieces) - 1}",
                )
            begun = "".join(pieces[: change.token]) + change.new
            if change.new == pieces[change.token]:
                raise BadChange("it is the token that stands there", where=repr(change.new))
        elif change is not None:
            _check(change, self.events[event])
        check_replayable(self.run, list(filter(before_point(self.events[event]), self._called)))
        above = self.tree.node(self.tree.node(self.events[event].node).parent or self.run.node)
        told, how = None if change is None else change.to_json(), self._how
        # The files of the command are part of it: another version of the program is another arm.
        drawn = [how.to, how.folder, how.limit_s, sources_of(self._command, self._place), *how.kept_apart]
        drawn += [how.tools, *([how.simulator] if how.simulator else [])] if self._called else []
        body = [IDENTITY, self.run.id, event, keeps, told, drawn, *([seed] if seed or how.in_order else [])]
        body += ["in order"] if how.in_order else []
        # It looks at what is gone after the draw, so draws without it cannot be graded by it later.
        body += [{"check": self._outcome.check}] if self._outcome.check is not None else []
        card: Json = {
            "kind": "program",
            "name": " ".join(self.run.command),
            "capabilities": [],
            "extra": {"to": how.to},
        }
        record = self.tree.begin_fork(
            ForkRecord(
                hashlib.blake2b(json.dumps(body).encode(), digest_size=16).hexdigest(),
                above.parent or self.run.node, None, told, card, {}, None, seed, event,
                {"program": self.run.id, "event": event, "keeps": keeps}
                | ({"tools": how.tools} if self._called else {})
                | ({"simulator": {"model": how.simulator, "to": how.to}} if how.simulator else {}),
            )
        )  # fmt: skip
        self._took.setdefault(record.id, _Took())
        return ProgramArm(record, event, change, keeps, begun)

    def draw(self, arms: Mapping[ProgramArm, int], progress: Progress = silent) -> list[Fork]:
        """The arms with draws 0 to as many as named; those that the tree holds are not drawn again.

        Raises:
            BadInput: less than one.
            CannotDo: the provider does not answer. What was drawn stays.
        """
        if any(draws < 1 for draws in arms.values()):
            raise BadInput(f"{min(arms.values())} draws are none", where="--draws")
        have = {arm.record.id: {draw.draw for draw in self.tree.draws(arm.record.id)} for arm in arms}
        # Draw by draw, all arms: what is stopped in the middle has as many of the one as of the other.
        missing = [
            (number, arm)
            for number in range(max(arms.values()))
            for arm, draws in arms.items()
            if number < draws and number not in have[arm.record.id]
        ]
        self.tree.add_producer(self._producer)
        self._stopped.clear()
        progress("runs of the program", 0, len(missing))
        with ExitStack() as stack:
            contained = self._container(stack) if missing else None
            if self._how.simulator is not None:
                self._simulator = stack.enter_context(ToolSimulator(self._how.simulator, self._how.to))
            pool = stack.enter_context(ThreadPoolExecutor(self._how.jobs))
            waiting = [pool.submit(self._draw, *item, contained) for item in missing]
            try:
                for count, ended in enumerate(as_completed(waiting), start=1):
                    ended.result()
                    progress("runs of the program", count, len(missing))
            finally:
                # After an error or Ctrl-C: what runs ends, what waits does not begin.
                self._stopped.set()
                pool.shutdown(cancel_futures=True)
        _grade(self.tree, [arm.record.id for arm in arms], self._outcome, self._producer.id)
        return [self._drawn(arm.record.id) for arm in arms]

    def _draw(self, number: int, arm: ProgramArm, contained: ContainedRun | None) -> None:
        """One draw, begun anew where the provider failed in it: an outage is no outcome of the program."""
        record, lock = arm.record, self._lock
        if self._how.budget is not None and self.calls >= self._how.budget:
            raise CannotDo(
                f"the budget of {self._how.budget:,} requests is spent: {self.calls:,} were asked",
                where=f"draw {number} from exchange {arm.event} of run {self.run.id}",
                hint="what was drawn is kept: with a larger --budget the same command goes on from there",
            )
        for pause in (*_PAUSES, None):
            way, upstream, tape, status, seconds = self._run(number, arm, contained)
            with lock:
                took = self._took[record.id]
                took.tokens += tape.tokens
                took.seconds += seconds
                self.calls += way.asked
                self.runs += 1
            failed = [one for one in upstream.unanswered.values() if one[0] not in self._met]
            if not failed:
                break
            code, said = failed[0]
            if pause is None or code in _REFUSED or self._stopped.wait(pause):
                raise CannotDo(
                    f"the provider did not answer: {f'HTTP {code}: ' if code else ''}{said}",
                    where=f"draw {number} from exchange {arm.event} of run {self.run.id}",
                    hint="what was drawn is kept: the same command goes on from there",
                )
        error = way.error or (None if way.reached else "the program ended before the point was reached")
        left = way.before.divergence
        if error and left is not None and left.by_chance and self.run.repeatable is None:
            error += f"; {REPEATABLE_HINT}"
        if error and self._changed:
            error += f"; {', '.join(self._changed)} changed since"
        end = "error" if error else "limit" if status == TIMED_OUT else "done"
        with lock:
            self.tree.finish_draws([DrawRecord(record.id, number, tape.last, end, error)])

    def _run(
        self, number: int, arm: ProgramArm, contained: ContainedRun | None
    ) -> tuple[_Branch, Upstream, Tape, int, float]:
        """Run the program once; who answered it, its tape, and exit status and seconds."""
        record, how, lock = arm.record, self._how, self._lock
        if how.stop is not None and how.stop.is_set():
            raise CannotDo("it was stopped", hint="what was drawn is on the tape")
        tape = Tape(
            self.tree,
            self._command,
            self._place,
            draw=(record.node, f"draw/{record.id}/{number}"),
            lock=lock,
        )
        tape.goes_on(self.events[: arm.event])
        upstream = Upstream(tape, to=how.to, hosts=self.run.hosts)
        with unless_none(contained, self.tree, lock) as (view, check):
            repeatable = RepeatableRun.of(self.tree, self.run, record.id, number)
            way = _Branch(
                self.events, arm, tape, upstream, in_order=how.in_order, observed=check,
                reached=repeatable and repeatable.reached,
            )  # fmt: skip
            tools = ToolCalls(
                tape,
                self._called,
                source=way.before,
                rule=how.tools,
                reached=lambda: way.reached,
                before=before_point(self.events[arm.event]),
                simulator=self._simulator,
            )
            status, output, _ = run_program(
                way, self._command, self._place, quiet=True, limit_s=how.limit_s, view=view, tools=tools,
                patch=self.run.patched, repeatable=repeatable, proxy=proxy_for(self.run.hosts, view),
                stop=how.stop,
            )  # fmt: skip
            checked = None
            if self._outcome.check is not None and way.error is None:
                checked = run_check(
                    self._outcome.check, self._place, output, limit_s=how.limit_s, view=view, stop=how.stop
                )
        way.asked += tools.simulated
        ended = tape.end(
            status,
            output,
            differs=check and check.difference and asdict(check.difference),
            check=checked,
        )
        return way, upstream, tape, status, ended.seconds or 0.0

    def _drawn(self, arm: str) -> Fork:
        took = self._took[arm]
        judge = (self._producer.id, "success")
        return replace(recorded_arm(self.tree, arm), tokens=took.tokens, seconds=took.seconds, judge=judge)


@final
@dataclass(frozen=True, slots=True)
class ProgramArm:
    """One arm of a program's fork. ``keeps``: at the point it has the recorded answer, or a changed one.

    ``begun``: what the answer there begins with; the model goes on.
    """

    record: ForkRecord
    event: int
    change: ProgramChange | None
    keeps: bool
    begun: str = ""

    def __hash__(self) -> int:
        return hash(self.record.id)


@dataclass(slots=True)
class _Took:
    tokens: int = 0
    seconds: float = 0.0


def fork_run(
    tree: Tree,
    run: ProgramRun,
    event: int,
    change: ProgramChange,
    draws: int = 16,
    *,
    through: int | None = None,
    seed: int = 0,
    outcome: Outcome | None = None,
    settings: ProgramForkSettings | None = None,
    progress: Progress = silent,
) -> tuple[Fork, Fork]:
    """Run a recorded program on from one exchange, ``draws`` times with a change and as often without.

    Up to exchange ``event`` every answer is the tape's, and no model is asked. From there on requests go to
    the providers. Calls of tools that were intercepted are the tape's up to there, and behind it as
    ``settings.tools`` says; all else that the program does it does again, in a folder of each draw's own
    where it is contained. Draws that are on the tree are not drawn again; those of another ``seed`` are
    draws of their own. Arms share no noise. The pair of arms, control first, is what ``compare`` takes.
    ``through``: where the change is ``again``, the control keeps the recorded answers up to that exchange.

    Raises:
        BadInput: no such exchange, no such program or folder.
        BadChange: a change that changes nothing there.
        CannotDo: the recorded answer cannot be replaced, what a tool returned before it could not be kept, or
            programs cannot be contained here; answers ``through`` one of a repeatable run.
    """
    points = ProgramPoints(tree, run, outcome=outcome, settings=settings)
    if draws < 1:
        raise BadInput(f"{draws} draws are none", where="--draws")
    if through is not None and (change != ProgramChange("again") or through < event):
        raise BadInput(
            f"answers through {through} are kept against drawing them anew from a step up to it",
            where="--through",
            hint="--change again, and a --step before",
        )
    if through is not None and run.repeatable is not None:
        raise CannotDo(
            "the control would have the recorded chance up to another exchange than the other arm",
            where=f"run {run.id}, which is repeatable",
            hint="record without --repeatable, or change one answer",
        )
    changed = points.arm(event, change, keeps=change.keeps_answer, seed=seed)
    control = points.arm(event if through is None else through, keeps=change.keeps_answer, seed=seed)
    base, other = points.draw({control: draws, changed: draws}, progress)
    return base, other


def other_files(tree: Tree, *arms: Fork) -> list[str]:
    """Of the draws whose folder was not the recorded one by the point, where that showed first."""
    ends = [tree.node(draw.leaf) for arm in arms for draw in arm.draws if draw.leaf is not None]
    told = (node.extra.get("run", {}).get("differs") for node in ends)
    return [str(FolderDivergence(**one)) for one in told if one]


def _grade(tree: Tree, arms: Sequence[str], outcome: Outcome, producer: str) -> None:
    """Grade all draws by what the tape holds of their ends, those of earlier calls, too."""
    leaves = [draw.leaf for arm in arms for draw in tree.draws(arm) if draw.end != "error"]
    known = tree.score_map("success", leaves, producer)
    graded = outcome.grade_draws(tree, [leaf for leaf in leaves if leaf is not None and leaf not in known])
    tree.add_scores([Score(leaf, "success", value, producer) for leaf, value in graded])


def tools_of(tree: Tree, arms: Sequence[Fork]) -> dict[str, int]:
    """How the tools behind the point came to their results in all draws of arms: calls by mode."""
    found: Counter[str] = Counter()
    leaves = [draw.leaf for arm in arms for draw in arm.draws if draw.error is None]
    for path in tree.paths(leaves):
        begun = next(step.node for step in reversed(path.steps[:-1]) if "run" in step.node.extra)
        found += tool_modes(tree, begun.extra["run"]["id"], begun.id)
    return dict(sorted(found.items()))


def compare_arms(base: Fork, other: Fork, level: float = 0.95) -> Effect:
    """The effect between two arms of a program, and which share of their tools' results was simulated."""
    effect = compare(base, other, level=level)
    if base.simulator is None and other.simulator is None:
        return effect
    shares = []
    for arm in (base, other):
        modes = tools_of(arm.tree, [arm])
        shares.append(modes.get("simulated", 0) / max(1, sum(modes.values())))
    return replace(effect, base_simulated=shares[0], other_simulated=shares[1])


def _check_event(run: ProgramRun, events: Sequence[TapeEvent], event: int) -> None:
    if not 0 <= event < len(events):
        raise BadInput(f"run {run.id} has no exchange {event}", hint=f"it has 0 to {len(events) - 1}")


def _check(change: ProgramChange, at: TapeEvent) -> None:
    """Refuse what would change nothing, before anything is drawn."""
    body = at.wire.json
    if change.kind == "answer":
        answer_with(dialect_of(at.wire.path), at.wire.kind, at.wire.answer, change.new)
    elif change.kind == "part":
        answer_edited(at.wire.kind, at.wire.answer, change.old, change.new)
    elif change.kind != "again" and change.edit(at.wire.path, body) == body:
        raise BadChange(
            f"{change.kind} changes nothing in the request of exchange {at.number}",
            where=f"{change.old or change.new!r}",
            hint="it must stand in the request: refork view shows what was asked",
        )


@final
class _Branch:
    """Answers one draw: from the tape up to the point, there what the arm says, behind it live.

    ``error``: the program went another way before the point, so that this is no draw of this arm. ``asked``:
    how many requests went to a provider.
    """

    def __init__(
        self,
        events: Sequence[TapeEvent],
        arm: ProgramArm,
        tape: Tape,
        upstream: Upstream,
        *,
        in_order: bool = False,
        observed: Callable[[int, str | None], None] | None = None,
        reached: Callable[[Wire], None] | None = None,
    ) -> None:
        self._observed, self._at_point = observed, reached
        event = arm.event
        self._at, self._change, self._keeps, self._begun = events[event], arm.change, arm.keeps, arm.begun
        # All but the point: a conversation beside it may be ahead of where it was when it was recorded.
        self._in_order = in_order
        self.before = FromTape(
            [one for one in events if (one.number < event if in_order else one.number != event)],
            observed,
            in_order=in_order,
        )
        self._tape, self._upstream = tape, upstream
        self.reached, self.asked = False, 0
        self.refused: str | None = None

    @property
    def error(self) -> str | None:
        """Why this is no draw; None: it is one."""
        if self.refused is not None:
            return self.refused
        found = self.before.divergence
        return None if found is None else f"it left the tape before the point: {found}"

    async def answer(self, wire: Wire, headers: Mapping[str, str], reply: HttpReply) -> None:
        """Answer a request of the program."""
        if not self.reached and self._is_point(wire):
            self.reached = True
            if self._at_point is not None:
                self._at_point(self._at.wire)
            if self._observed is not None:
                await asyncio.to_thread(self._observed, self._at.number, self._at.files)
            await self._at_the_point(wire, headers, reply)
        elif not self.reached:
            await self.before.answer(wire, headers, reply)
        elif self.before.takes(wire, self._at.number):
            # Of another conversation, which was behind: it has not come to the point yet.
            await self.before.answer(wire, headers, reply)
        else:
            await self._live(wire, headers, reply)

    async def close(self) -> None:
        """Give back the connections."""
        await self._upstream.close()

    def _is_point(self, wire: Wire) -> bool:
        # Equal requests before it are the tape's. What left the tape does not come back to it.
        kin = self._in_order and wire.path == self._at.wire.path
        found = self.before.divergence is None and (kin or wire.digest == self._at.wire.digest)
        return found and not self.before.takes(wire, self._at.number)

    async def _at_the_point(self, wire: Wire, headers: Mapping[str, str], reply: HttpReply) -> None:
        if self._begun:
            await self._goes_on(wire, headers, reply)
            return
        if not self._keeps or (self._change is not None and self._change.kind == "again"):
            await self._live(wire, headers, reply)
            return
        given = replace(self._at.wire, body=wire.body)
        if self._change is not None:
            one = self._change
            chunks = (
                answer_edited(given.kind, given.answer, one.old, one.new)
                if one.kind == "part"
                else answer_with(dialect_of(wire.path), given.kind, given.answer, one.new)
            )
            given = replace(given, chunks=chunks)
        await asyncio.to_thread(self._tape.add, given, sampled=False)
        await give(given, reply)

    async def _goes_on(self, wire: Wire, headers: Mapping[str, str], reply: HttpReply) -> None:
        """The beginning of an answer, and what the model says behind it."""
        name = dialect_of(wire.path)
        body = json.dumps(request_begun(name, wire.json, self._begun)).encode()
        self.asked += 1
        ended = await self._upstream.ask(replace(wire, body=body), headers)
        if ended.status and not 200 <= ended.status < 300:
            # A server that refuses to go on has said nothing of the program.
            said = ended.answer[:200].decode("utf-8", "replace").strip()
            self._upstream.unanswered[ended.digest] = ended.status, said
        elif ended.status:
            try:
                chunks = answer_begun(name, ended.kind, ended.answer, self._begun)
                ended = replace(ended, chunks=chunks)
            except CannotDo as error:
                self.refused = str(error)
        given = replace(ended, body=wire.body)
        await self._upstream.put(given)
        await give(given, reply)

    async def _live(self, wire: Wire, headers: Mapping[str, str], reply: HttpReply) -> None:
        if self._change is not None and not self._keeps:
            body = self._change.edit(wire.path, wire.json)
            if body is not None:
                wire = replace(wire, body=json.dumps(body).encode())
        self.asked += 1
        await self._upstream.answer(wire, headers, reply)
