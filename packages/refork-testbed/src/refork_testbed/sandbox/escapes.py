"""Attempts to get out of the sandbox, each told by its effect and not by what the tool says."""

from __future__ import annotations

import textwrap
import time
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from refork.sandbox.result import Kind, SandboxResult
from refork.sandbox.runner import Sandbox
from refork.types import Json
from refork_testbed.sandbox.arena import Arena
from refork_testbed.sandbox.attempts import GROUPS

#: Seconds until a late effect would be there.
LATE = 0.5
#: Seconds until a process that was sent a signal has ended.
SOON = 0.05
_CANARY = "def canary(apis, tools, *, x: int):\n    return [sorted([x, 1, 2]), len(apis.app.echo(x=x))]\n"


@dataclass(frozen=True, slots=True)
class Escape:
    """One attempt: ``fails`` where any answer is an escape, ``later`` where the effect comes afterwards."""

    name: str
    group: str
    source: str
    fails: bool = False
    later: bool = False


@dataclass(frozen=True, slots=True)
class Outcome:
    """What came of an attempt: ``effects`` are what got out, nothing where it was contained."""

    name: str
    group: str
    kind: Kind
    effects: tuple[str, ...]
    error: str
    seconds: float

    @property
    def contained(self) -> bool:
        """Whether nothing got out."""
        return not self.effects


def _parsed(group: str, text: str) -> Iterator[Escape]:
    for block in text.strip().removeprefix("## ").split("\n## "):
        head, _, body = block.partition("\n")
        name, _, flags = head.partition(" [")
        lines = body.splitlines()
        above = [line.removeprefix("#!") for line in lines if line.startswith("#!")]
        inside = textwrap.indent("\n".join(line for line in lines if not line.startswith("#!")), "    ")
        source = "\n".join([*above, "def attempt(apis, tools, *, arena):", inside, ""])
        yield Escape(name, group, source, "fails" in flags, "later" in flags)


ESCAPES: tuple[Escape, ...] = tuple(one for group, text in GROUPS.items() for one in _parsed(group, text))


def attempt(escape: Escape, sandbox: Sandbox, arena: Arena) -> Outcome:
    """Try one escape and look for its effects, then whether the sandbox still works."""
    told = arena.prepare()
    sandbox.layers  # noqa: B018  it starts here, so that its number is known
    before = sandbox.process
    calls: list[tuple[str, Json]] = []

    def call(name: str, arguments: Json) -> str:
        calls.append((name, arguments))
        return "answer"

    result = sandbox.run(escape.source, "attempt", {"arena": told}, call)
    if escape.later or escape.group == "signals":
        time.sleep(LATE if escape.later else SOON)
    effects = arena.effects(result, calls)
    if escape.fails and result.ok:
        effects.append("it was allowed")
    if sandbox.process != before:
        effects.append("the sandbox's own process was ended")
    elif left := _left(before):
        effects.append(f"{left} processes were left")
    effects += _canary(sandbox)
    return Outcome(escape.name, escape.group, result.kind, tuple(effects), result.error, result.seconds)


def _left(process: int | None) -> int:
    """How many processes the sandbox's process still has."""
    with suppress(OSError):
        return len(Path(f"/proc/{process}/task/{process}/children").read_text().split())
    return 0


def _canary(sandbox: Sandbox) -> list[str]:
    """What an honest tool notices of the attempt before it."""
    result: SandboxResult = sandbox.run(_CANARY, "canary", {"x": 3}, lambda _, arguments: [arguments] * 2)
    if result.kind == "timeout" or (result.ok and result.value == [[1, 2, 3], 2]):
        return []
    return [f"the next tool was disturbed: {result.error or result.value}"]


def try_all(sandbox: Sandbox, escapes: Sequence[Escape] = ESCAPES) -> list[Outcome]:
    """Try every escape on a sandbox, which is restarted first: the outcomes, in order."""
    sandbox.close()
    with Arena() as arena:
        return [attempt(escape, sandbox, arena) for escape in escapes]
