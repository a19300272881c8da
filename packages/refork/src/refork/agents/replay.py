"""A run answered from its tape, and where the program first asked for something else."""

from __future__ import annotations

import asyncio
import json
import re
from collections import Counter, defaultdict, deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Final, final

from refork.agents.dialects import canonical
from refork.agents.endpoint import HttpReply
from refork.agents.snapshots import FolderDivergence
from refork.agents.tape import TapeEvent, Wire
from refork.types import Json

#: Characters of a value that a divergence shows.
_SHOWN: Final = 160
#: Variables that a sentence names.
_NAMED: Final = 6
#: Ends of causes that a Python program's recorded clock and chance do away with.
_BY_CHANCE: Final = ("a random id", "the clock", "a measured one", "the order of a set or a dictionary")
REPEATABLE_HINT: Final = "recorded with --repeatable, a Python program has its clock and chance again"
_UUID: Final = re.compile(
    r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}|\b[0-9a-f]{16,64}\b", re.I
)
_TIME: Final = re.compile(
    r"\d{4}-\d\d-\d\d|\d\d?:\d\d(?::\d\d)?|\b1[6-9]\d{8}(?:\d{3})?\b|"
    r"\b(?:mon|tues|wednes|thurs|fri|satur|sun)day\b|"
    r"\b(?:jan|feb|mar|apr|may|jun|jul|aug|sep|oct|nov|dec)[a-z]* \d",
    re.I,
)
_FOLDER: Final = re.compile(r"/(?:tmp|var/folders)/[^\s\"']+")


@final
@dataclass(frozen=True, slots=True)
class ReplayDivergence:
    """The first request that no recorded one answers.

    ``request``: how many were answered before it. ``nearest``: the number of the recorded exchange that is
    most like it (None: none is left). ``where``: the JSON path of the first difference, ``recorded`` and
    ``asked`` what stands there (None: nothing). ``cause`` is a guess, in words.
    """

    request: int
    path: str
    nearest: int | None
    where: str
    recorded: str | None
    asked: str | None
    cause: str

    @property
    def by_chance(self) -> bool:
        """Whether the cause may be the clock or chance, which can be recorded."""
        return self.cause.endswith(_BY_CHANCE)

    def __str__(self) -> str:
        if self.nearest is None:
            return f"request {self.request} to {self.path} was never recorded: {self.cause}"
        return (
            f"request {self.request} to {self.path} is not recorded exchange {self.nearest}: at {self.where} "
            f"the tape has {self.recorded or 'nothing'}, the program {self.asked or 'nothing'} ({self.cause})"
        )


@final
@dataclass(frozen=True, slots=True)
class Replayed:
    """What a replay showed.

    ``answered`` of ``recorded`` exchanges were asked for again, ``byte_equal`` of them with the very bytes of
    the recorded request. ``identical``: all of them, no other, and the program ended as it did.
    ``changed``: files of the command that are others than when it was recorded. ``files``: where the folder
    first differed from the recorded one, which makes it no identical replay. Of ``tools_recorded``
    intercepted calls of tools the tape answered ``tools_given``; one within another is a part of it.
    ``drift``: variables that the program had otherwise. ``repeatable``: clock and chance were the recorded.
    """

    run: str
    recorded: int
    answered: int
    byte_equal: int
    divergence: ReplayDivergence | None
    exit: int
    recorded_exit: int | None
    output_equal: bool | None
    changed: tuple[str, ...] = ()
    files: FolderDivergence | None = None
    tools_recorded: int = 0
    tools_given: int = 0
    drift: tuple[str, ...] = ()
    repeatable: bool = False

    @property
    def identical(self) -> bool:
        """Whether the program did the same."""
        same_end = self.recorded_exit is None or self.exit == self.recorded_exit
        same = self.divergence is None and self.files is None
        return same and self.answered == self.recorded and same_end

    def to_json(self) -> Json:
        """Plain fields."""
        return asdict(self) | {"identical": self.identical}

    @property
    def sentence(self) -> str:
        """What came of it, in words."""
        if self.files is not None and self.divergence is None:
            return f"the program's tools did something else: {self.files}"
        if self.divergence is not None:
            more = f"; {', '.join(self.changed)} changed since" if self.changed else ""
            if self.drift:
                rest = f" and {len(self.drift) - _NAMED} more" if len(self.drift) > _NAMED else ""
                more += f"; other variables than then: {', '.join(self.drift[:_NAMED])}{rest}"
            if self.divergence.by_chance and not self.repeatable:
                more += f"; {REPEATABLE_HINT}"
            before = "" if self.files is None else f"; {self.files}"
            return f"the program went another way: {self.divergence}{more}{before}"
        if self.answered < self.recorded:
            return (
                f"the program asked {self.answered} of the {self.recorded} recorded requests and no others, "
                f"and ended with exit status {self.exit}"
            )
        if not self.identical:
            return (
                f"all requests were the recorded ones, but the exit status was {self.exit}, "
                f"not {self.recorded_exit}"
            )
        output = {None: "", True: ", with the same output", False: ", with another output"}[self.output_equal]
        return (
            f"identical: {self.answered} requests, {self.byte_equal} of them byte by byte, "
            f"{f'{self.tools_given} tool calls from the tape, ' if self.tools_recorded else ''}"
            f"exit status {self.exit}{output}"
        )


@final
class FromTape:
    """Answers from recorded exchanges. Equal requests get their answers in recorded order, whenever that is.

    After the first request that is not on the tape every other one is refused, too: what the program does
    from there on is no replay. ``observed`` is told of each exchange and its ``files`` before it is answered.
    ``in_order``: a request that equals no recorded one gets the next answer to one of its kind. So another
    version of the program, with another prompt, is given the same answers.
    """

    def __init__(
        self,
        events: Sequence[TapeEvent],
        observed: Callable[[int, str | None], None] | None = None,
        *,
        in_order: bool = False,
    ) -> None:
        self._events, self._observed, self._in_order = list(events), observed, in_order
        self._waiting: dict[str, deque[TapeEvent]] = defaultdict(deque)
        for event in events:
            self._waiting[event.wire.digest].append(event)
        self.answered: list[TapeEvent] = []
        self.byte_equal = 0
        self.divergence: ReplayDivergence | None = None

    async def answer(self, wire: Wire, headers: Mapping[str, str], reply: HttpReply) -> None:
        """Give the recorded answer, piece by piece, or refuse."""
        waiting = self._fitting(wire)
        if self.divergence is not None or not waiting:
            if self.divergence is None:
                self.divergence = self._diverged(wire)
            told = {"error": {"message": f"not on the tape: {self.divergence}", "type": "refork_divergence"}}
            # 400: clients try again after a conflict or a server's error, and would go on for minutes.
            await reply.whole(
                400,
                {"content-type": "application/json", "x-should-retry": "false"},
                json.dumps(told).encode(),
            )
            return
        event = waiting.popleft()
        self.answered.append(event)
        if self._observed is not None:
            await asyncio.to_thread(self._observed, event.number, event.files)
        self.byte_equal += event.wire.body == wire.body
        await give(event.wire, reply)

    def takes(self, wire: Wire, before: int) -> bool:
        """Whether a recorded exchange with a number below ``before`` is left for a request."""
        waiting = self._fitting(wire)
        return waiting is not None and len(waiting) > 0 and waiting[0].number < before

    def _fitting(self, wire: Wire) -> deque[TapeEvent] | None:
        waiting = self._waiting.get(wire.digest)
        if waiting or not self._in_order:
            return waiting
        kin = [left for left in self._waiting.values() if left and left[0].wire.path == wire.path]
        return min(kin, key=lambda left: left[0].number, default=None)

    async def close(self) -> None:
        """Nothing is kept open."""

    def _diverged(self, wire: Wire) -> ReplayDivergence:
        asked = canonical(wire.path, wire.json)
        left = [event for waiting in self._waiting.values() for event in waiting]
        count = len(self.answered)
        same = [event for event in left if event.wire.path == wire.path]
        if not same:
            cause = (
                "the program asked more often than when it was recorded"
                if not left
                else "another kind of request"
            )
            return ReplayDivergence(count, wire.path, None, "", None, _short(asked), cause)
        close = max(
            same,
            key=lambda event: (_alike(canonical(event.wire.path, event.wire.json), asked), -event.number),
        )
        recorded = canonical(close.wire.path, close.wire.json)
        where, before, now = next(_differences(recorded, asked, "$"), ("$", recorded, asked))
        if wire.query != close.wire.query:
            where, before, now = "query", close.wire.query, wire.query
        return ReplayDivergence(
            count, wire.path, close.number, where, _short(before), _short(now), _cause(before, now)
        )


async def give(wire: Wire, reply: HttpReply) -> None:
    """A recorded answer as it came: piece by piece, broken off where it was, none where there was none."""
    if not wire.status:
        told = f"the provider did not answer: {wire.failed}".encode()
        await reply.whole(502, {"content-type": "text/plain"}, told)
        return
    await reply.begin(wire.status, wire.headers)
    for chunk in wire.chunks:
        await reply.piece(chunk)
        await asyncio.sleep(0)  # each piece a write of its own
    if wire.failed is None:
        await reply.piece(b"", more=False)


def _alike(one: Any, other: Any) -> int:
    """How many characters of JSON stand before the first difference."""
    a, b = json.dumps(one), json.dumps(other)
    return next((i for i, (x, y) in enumerate(zip(a, b, strict=False)) if x != y), min(len(a), len(b)))


_NOTHING: Final = object()


def _differences(one: Any, other: Any, at: str) -> Iterator[tuple[str, Any, Any]]:
    """Every place at which two JSON values differ, with what stands there."""
    if isinstance(one, dict) and isinstance(other, dict):
        for key in [*one, *(key for key in other if key not in one)]:
            yield from _differences(one.get(key, _NOTHING), other.get(key, _NOTHING), f"{at}.{key}")
    elif isinstance(one, list) and isinstance(other, list):
        for place in range(max(len(one), len(other))):
            before, now = (part[place] if place < len(part) else _NOTHING for part in (one, other))
            yield from _differences(before, now, f"{at}[{place}]")
    elif one is not other and one != other:
        yield at, one, other


def _short(value: Any) -> str | None:
    if value is _NOTHING:
        return None
    text = json.dumps(value, ensure_ascii=False)
    return text if len(text) <= _SHOWN else f"{text[: _SHOWN // 2]} ... {text[-_SHOWN // 2 :]}"


def _cause(before: Any, now: Any) -> str:
    """A guess at why two values differ."""
    if before is _NOTHING or now is _NOTHING:
        return "something was added" if before is _NOTHING else "something is missing"
    if not (isinstance(before, str) and isinstance(now, str)):
        return "another value"
    for shape, told in ((_UUID, "a random id"), (_TIME, "the clock"), (_FOLDER, "a temporary folder")):
        # Without what the shape matches the texts are the same: then it is what differs.
        if before != now and shape.sub("", before) == shape.sub("", now):
            return f"probably {told}"
    both = [_TIME.sub("", _UUID.sub("", text)) for text in (before, now)]
    if both[0] == both[1]:
        return "probably the clock and a random id"
    lines = (sorted(before.splitlines()), sorted(now.splitlines()))
    if lines[0] == lines[1] and len(lines[0]) > 1:
        return "probably the order of a listing"
    if len(lines[0]) > 1 and (Counter(lines[0]) < Counter(lines[1]) or Counter(lines[1]) < Counter(lines[0])):
        return "lines came or went: perhaps what an earlier run left in the folder, or a listing of it"
    if sorted(re.findall(r"\w+", before)) == sorted(re.findall(r"\w+", now)):
        return "probably the order of a set or a dictionary"
    numbers = re.compile(r"-?\d+(?:\.\d*)?(?:e[-+]?\d+)?")
    before, now = (" ".join(numbers.sub(" # ", _UUID.sub("", text)).split()) for text in (before, now))
    if before == now:
        return "another number: a random one, or a measured one"
    return "another text"
