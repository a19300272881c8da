"""A run of the model loop as a fold: what to ask next, and what an answer changes. It asks nobody itself."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from typing import Literal, final

from refork.chat import Reply
from refork.compaction import Counter, approximate_tokens
from refork.errors import BadInput
from refork.formats.openai_chat import text_of
from refork.tool_calls import ToolCall
from refork.types import Json, Message
from refork_methods.localize import prompts
from refork_methods.localize.calls import Answered, Asked, LoopWatch, NotRead, cut_case, read_reply
from refork_methods.localize.casefile import CaseFile, Status, sound
from refork_methods.localize.facts import Span, ToolResult
from refork_methods.localize.synthesis import UNSAID, case_from, from_seen
from refork_methods.localize.tools import RepoTools
from refork_methods.localize.trace import Kind, Turn, recovered

# How the model loop is run.


@final
@dataclass(frozen=True, slots=True)
class LoopSettings:
    """Limits of a run.

    ``max_turns``: answers of the model in all, the final one included. ``notices``: repeated calls after
    which the final turn is forced. ``context``: tokens of one question. ``observation``: characters of one
    tool's answer. ``locations``: at most so many. ``calls``: "native" sends the tools' schemas, "text"
    does not (the prompt says them), "auto" sends them unless the model refuses. ``synthesis`` False takes the
    final turn away, to measure what it is worth: a run without an answer then ends empty.

    Raises: BadInput for settings that make no sense.
    """

    max_turns: int = 20
    notices: int = 3
    context: int = 24_000
    observation: int = 12_000
    locations: int = 5
    calls: Literal["auto", "native", "text"] = "auto"
    synthesis: bool = True

    def __post_init__(self) -> None:
        if min(self.max_turns, self.notices, self.locations) < 1:
            raise BadInput("turns, notices and locations are at least 1")
        if self.context < 500 or self.observation < 500:
            raise BadInput("a context below 500 tokens, or an answer below 500 characters, shows nothing")
        if self.calls not in ("auto", "native", "text"):
            raise BadInput(f"calls are auto, native or text, not {self.calls!r}")

    def to_json(self) -> Json:
        """Plain fields."""
        return asdict(self)


# The context cut to a budget: the first messages and the most recent stay, the middle is one line per turn.
#
# Source: arXiv:2606.24820 (what is kept); the budget, the lines and the order of giving up are ours.

_LEAD = "Earlier turns, shortened:"
_CUT = "\n... {} characters left out ...\n"


@final
@dataclass(frozen=True, slots=True)
class Exchange:
    """What one turn added to the conversation, and the line that stands for it once it is collapsed."""

    messages: tuple[Message, ...]
    line: str


@final
@dataclass(frozen=True, slots=True)
class Context:
    """Messages to send; ``collapsed``: how many of the first exchanges stand as lines."""

    messages: tuple[Message, ...]
    collapsed: int = 0
    shortened: bool = False


def fit_context(
    first: Sequence[Message], exchanges: Sequence[Exchange], budget: int, counter: Counter
) -> Context:
    """The longest recent part that fits in ``budget`` tokens beside the first messages.

    Collapsed turns stand as lines at the end of the last first message, so that roles go on taking turns; the
    text of the first messages, the issue among it, is always whole. The last exchange is never collapsed;
    where it alone is too long, its texts lose their middle. If that is not enough the context is over budget:
    the issue is not given up.
    """
    # As few turns as possible are collapsed: the first count that fits is the longest recent part.
    for count in range(len(exchanges)):
        made = _with(first, exchanges, count)
        if counter(made) <= budget:
            return Context(tuple(made), count)
    if not exchanges:
        return Context(tuple(first))
    made = _with(first, exchanges, len(exchanges) - 1)
    room = budget - counter(_with(first, exchanges, len(exchanges)))
    # Four characters a token, as the counter that approximates has it; the loop corrects what is not so.
    size = max(4 * room // max(len(exchanges[-1].messages), 1), 200)
    kept = len(made) - len(exchanges[-1].messages)
    for _ in range(6):
        short = [*made[:kept], *(_shorter(one, size) for one in made[kept:])]
        if counter(short) <= budget or size <= 200:
            break
        size = max(size // 2, 200)
    return Context(tuple(short), len(exchanges) - 1, shortened=True)


def _with(first: Sequence[Message], exchanges: Sequence[Exchange], collapsed: int) -> list[Message]:
    if not collapsed:
        return [*first, *(one for exchange in exchanges for one in exchange.messages)]
    lines = "\n".join([_LEAD, *(exchange.line for exchange in exchanges[:collapsed])])
    last = {**first[-1], "content": f"{first[-1]['content']}\n\n{lines}"}
    tail = [one for exchange in exchanges[collapsed:] for one in exchange.messages]
    return [*first[:-1], last, *tail]


def _shorter(message: Message, size: int) -> Message:
    text = message.get("content")
    if not isinstance(text, str) or len(text) <= size:
        return message
    half = size // 2
    return {**message, "content": text[:half] + _CUT.format(f"{len(text) - 2 * half:,}") + text[-half:]}


# A tool's answer cut to a size, so that the lines it is said to have shown are those it really shows.


def answer(tools: RepoTools, call: ToolCall, size: int) -> ToolResult:
    """The tool's answer in about ``size`` characters: fewer lines, fewer hits, else its first lines.

    Lines that are not shown whole in the text are in no span.
    """
    result = tools.call(call.name, call.arguments)
    if len(result.text) <= size or result.error is not None:
        return result
    if call.name == "view_file" and result.spans:
        return _view(tools, call, result, size)
    if call.name == "search":
        return _search(tools, call, result, size)
    kept = _first_lines(result.text, size)
    left = result.text.count("\n") - kept.count("\n")
    note = f"{left} more lines not shown: ask for less\n"
    return replace(result, text=kept + note, spans=(), cut=result.cut + left)


def _view(tools: RepoTools, call: ToolCall, result: ToolResult, size: int) -> ToolResult:
    span = result.spans[0]
    rows = result.text.split("\n")[1:]
    room, count = size, 0
    for row in rows[: span.end - span.start + 1]:
        room -= len(row) + 1
        if room < 0:
            break
        count += 1
    if count == 0:
        kept = result.text[:size]
        return replace(result, text=f"{kept} ...\n(the line is longer than an answer)\n", spans=())
    end = span.start + count - 1
    made = tools.view_file(span.path, span.start, end)
    left = result.cut + span.end - end
    note = f"({span.end - end} of the lines not shown: the answer would be too long)\n"
    return replace(made, text=made.text + note, cut=left)


def _search(tools: RepoTools, call: ToolCall, result: ToolResult, size: int) -> ToolResult:
    most, made = int(call.arguments.get("max_hits") or 50), result
    while most > 1:
        most //= 2
        made = tools.call("search", {**call.arguments, "max_hits": most})
        if len(made.text) <= size:
            return made
    kept = _first_lines(made.text, size)
    return replace(result, text=f"{kept}(the rest is too long to show)\n", spans=())


def _first_lines(text: str, size: int) -> str:
    kept = text[:size]
    at = kept.rfind("\n")
    return kept[: at + 1] if at >= 0 else kept + "\n"


# A run of the model loop as a fold: what to ask next, and what an answer changes. It asks nobody itself.

VERSION = 1
#: Questions without tools: the final one, and (where turns are left) one more if its answer does not stand.
FINAL_ASKS = 2


@final
@dataclass(frozen=True, slots=True)
class _Reply:
    """What an answer was, and what is said to it."""

    kind: Kind
    text: str
    line: str
    call: ToolCall | None = None
    repairs: tuple[str, ...] = ()
    spans: tuple[Span, ...] = ()
    error: str | None = None


@final
class Session:
    """The state of one run, changed by answers alone: the same answers make the same run, byte for byte."""

    def __init__(
        self,
        tools: RepoTools,
        issue: str,
        settings: LoopSettings,
        *,
        start: CaseFile | None = None,
        counter: Counter = approximate_tokens,
    ) -> None:
        if not issue.strip():
            raise BadInput("the issue is empty", hint="say what happens and what should happen")
        self.tools, self.issue, self.settings = tools, issue, settings
        # A start may be of another snapshot: what is not in this one is not shown.
        self.start = None if start is None else sound(start, tools.snapshot)[0]
        self.turns: list[Turn] = []
        self.error: str | None = None
        self.first = prompts.first_messages(issue, settings.max_turns, settings.locations, self.start)
        if self.final:
            last = self.first[-1]
            self.first[-1] = {**last, "content": f"{last['content']}\n\n{self._demand()}"}
        self._counter = counter
        self._watch = LoopWatch()
        self._exchanges: list[Exchange] = []
        self._given: CaseFile | None = None
        self._problems: tuple[str, ...] = ()
        self._asked_again = False

    @property
    def number(self) -> int:
        """The turn that comes next, from 1."""
        return len(self.turns) + 1

    @property
    def final(self) -> bool:
        """Whether the next turn is a final one: tools are withdrawn and the case file is due."""
        if not self.settings.synthesis:
            return False
        return self.number >= self.settings.max_turns or self._looping

    @property
    def over(self) -> bool:
        """Whether there is nothing left to ask."""
        if self._given is not None or self.error is not None:
            return True
        if self._looping and not self.settings.synthesis:
            return True
        asked = sum(not turn.offered for turn in self.turns)
        return asked >= FINAL_ASKS or self.number > self.settings.max_turns

    @property
    def _looping(self) -> bool:
        # `final` is asked for before the watch exists, and without a turn nothing has been repeated.
        return bool(self.turns) and self._watch.notices >= self.settings.notices

    def context(self) -> Context:
        """What the model is asked with next."""
        return fit_context(self.first, self._exchanges, self.settings.context, self._counter)

    def offered(self) -> list[Json]:
        """The tools' schemas that go with the question; none on a final turn or where calls are text."""
        return [] if self.final or self.settings.calls == "text" else RepoTools.schemas()

    def fail(self, why: str) -> None:
        """The model gave no answer: the run ends with what it has."""
        self.error = why

    def take(self, reply: Reply) -> Turn:
        """Fold one answer in; returns the turn it made."""
        # Before the turn is added: all three change with it.
        number, final, collapsed = self.number, self.final, self.context().collapsed
        told = self._read(reply, number, final)
        message = repeatable(reply.message)
        made = Turn(
            number, told.kind, reply, (message,), told.call, told.repairs, told.spans, told.error, told.line,
            collapsed, not final,
        )  # fmt: skip
        self.turns.append(made)
        if told.kind == "case":
            return made
        said = f"{prompts.head(number, self.settings.max_turns)} {told.text}"
        # Beside the answer to the turn before: two user messages in a row break some templates.
        if self.final and not self.over:
            said += f"\n\n{self._demand()}"
        made = replace(made, messages=(message, *_answer_messages(message, said)))
        self.turns[-1] = made
        self._exchanges.append(Exchange(made.messages, prompts.collapsed_line(number, *_line(told))))
        return made

    def case(self) -> CaseFile:
        """The case file of a finished run: the model's, else (with synthesis) what it has seen."""
        case = self._given
        notes: list[str] = []
        if case is None and self.settings.synthesis:
            case, note = self._left()
            notes.append(note)
        case = case or CaseFile((), "empty")
        if self.error is not None:
            notes.append(f"The model stopped answering: {self.error}")
        meta: Json = {
            "producer": {"name": "loop", "version": VERSION, "settings": self.settings.to_json()},
            "snapshot": self.tools.snapshot.digest,
            "commit": self.tools.snapshot.commit,
            "issue": hashlib.sha256(self.issue.encode()).hexdigest(),
            "turns": len(self.turns),
            "recovery": recovered(self.turns),
            "problems": list(self._problems),
            "notes": notes,
        }
        return replace(case, meta=meta)

    def _left(self) -> tuple[CaseFile, str]:
        """What stands for a case file that was never given."""
        if self.start is not None and self.start.locations:
            places = self.start.locations[: self.settings.locations]
            return CaseFile(places, "forced"), "The model gave no case file; these are the starting places."
        why = "the model ended without a case file"
        viewed = [
            turn.number for turn in self.turns if turn.call is not None and turn.call.name == "view_file"
        ]
        case = from_seen(self._viewed(), viewed, self.settings.locations, why)
        said = "these are the lines it looked at last" if case.locations else "it had looked at no lines"
        return case, f"The model gave no case file; {said}."

    def _viewed(self) -> dict[int, tuple[Span, ...]]:
        return {turn.number: turn.spans for turn in self.turns}

    def _demand(self) -> str:
        return prompts.final_demand(self.settings.locations)

    def _read(self, reply: Reply, number: int, final: bool) -> _Reply:
        read = read_reply(reply.message, reply.finish)
        if isinstance(read, NotRead) and final and read.kind != "silent":
            rows = cut_case(reply.message)
            if rows is not None and read.kind == "length":
                read = Answered(rows, ("the complete locations of a case file that was cut off",))
        if isinstance(read, Answered):
            return self._case(read, final)
        if isinstance(read, NotRead):
            say = prompts.malformed_notice if read.kind == "malformed" else prompts.again_notice
            return _Reply(read.kind, say(read.why), read.kind, error=read.why)
        if final:
            why = f"{prompts.FINAL} {read.call.name} was not run"
            return _Reply("malformed", why, "a call when tools were gone", error=why)
        return self._call(read, number)

    def _call(self, read: Asked, number: int) -> _Reply:
        line = prompts.call_text(read.call.name, read.call.arguments)
        earlier = self._watch.earlier(read.call, number)
        if earlier is not None:
            text = prompts.repeat_notice(earlier, self._watch.notices, self.settings.notices)
            return _Reply("repeat", text, f"{line}, as in turn {earlier}", read.call, read.repairs)
        result = answer(self.tools, read.call, self.settings.observation)
        text = prompts.result_text(result, read.repairs)
        return _Reply("call", text, line, read.call, read.repairs, result.spans, result.error)

    def _case(self, read: Answered, final: bool) -> _Reply:
        status: Status = "forced" if final else "final"
        made = case_from(read.data, self.tools.snapshot, self._viewed(), self.settings.locations, status)
        named = bool(read.data.get("locations"))
        stands = bool(made.case.locations) or not named
        if stands and (final or self._asked_again or not made.incomplete):
            self._given, self._problems = made.case, made.problems
            return _Reply("case", "", "the case file", repairs=read.repairs)
        # A place without a diagnosis is asked for once more, then taken as it is.
        self._asked_again = self._asked_again or stands
        why = [one.replace(UNSAID, "nothing") for one in made.problems]
        return _Reply(
            "rejected", prompts.case_notice(why), "a case file that does not stand", error="; ".join(why)
        )


def _line(told: _Reply) -> tuple[str, str]:
    """What a turn did and what came of it, each in a few words."""
    if told.kind in ("malformed", "length", "silent", "rejected"):
        return "no call", told.line if told.kind == "rejected" else f"not run ({told.kind})"
    if told.kind == "repeat":
        return told.line, "not run again"
    if told.error is not None:
        return told.line, f"error: {told.error}"
    places = [f"{one.path}:{one.start}-{one.end}" for one in told.spans[:4]]
    more = f" and {len(told.spans) - 4} more" if len(told.spans) > 4 else ""
    first = told.text.split("\n", 1)[0]
    return told.line, f"showed {', '.join(places)}{more}" if places else first[:160]


def repeatable(message: Message) -> Message:
    """An answer as it may stand in later questions: native calls that a server would refuse become text."""
    calls = message.get("tool_calls")
    if not calls or (isinstance(calls, list | tuple) and all(map(_sendable, calls))):
        return {**message, "role": "assistant"}
    kept = {key: value for key, value in message.items() if key != "tool_calls"}
    said = text_of({"content": message.get("content")})
    written = json.dumps(calls, ensure_ascii=False, default=str)
    return {**kept, "role": "assistant", "content": f"{said}\n{written}".strip()}


def _sendable(call: object) -> bool:
    inner = call.get("function") if isinstance(call, dict) else None
    if not isinstance(inner, dict) or not isinstance(inner.get("name"), str):
        return False
    arguments = inner.get("arguments")
    try:
        return isinstance(json.loads(arguments) if isinstance(arguments, str) else arguments, dict)
    except (ValueError, RecursionError):
        return False


def _answer_messages(message: Message, text: str) -> list[Message]:
    """An answer to a message: as results of its native calls where it made some, else as the user's turn."""
    calls: Sequence[Json] = message.get("tool_calls") or ()
    if not calls:
        return [{"role": "user", "content": text}]
    # A server refuses the next question where a native call was left without an answer.
    rest = "Not run: one call a turn."
    return [
        {"role": "tool", "tool_call_id": str(one.get("id") or ""), "content": rest if n else text}
        for n, one in enumerate(calls)
    ]
