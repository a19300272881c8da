"""Commands that try to outlive or alter, ways out of the sandboxes, and entries without a wall; by effect."""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "tests"))

from refork.sandbox import Limits, Sandbox
from refork.sandbox.result import SandboxResult
from refork.sandbox.shell import Shell, ShellLimits
from refork_testbed.sandbox.arena import Arena
from refork_testbed.sandbox.escapes import ESCAPES, try_all
from support.poisons import FIRST, POISONS, Poison, after, found, told_to

#: Few processes: run by root, all sandboxes share a user.
LIMITS = ShellLimits(seconds=30.0, output=40_000, disk=1 << 20, files=128, processes=24)
#: Commands in a row, each in an episode of its own, before one looks at what they left (quick).
GROUP = 9


def shell(quick: bool, namespaces: bool) -> dict[str, int]:
    """How many commands, escapes and entries got through, and how many were tried.

    ``poisoned_episodes``: commands after which the next episode found otherwise than a fresh process, in
    namespaces or with Landlock alone. ``jail_escapes``: ways out of the shell and the tools' sandbox that had
    an effect. ``fail_open``: entries that ran where the kernel lacks seccomp, or, without namespaces, also
    Landlock and namespaces; and entries that do not run where it lacks nothing, since they show nothing.
    Quick: commands in groups, and no escape that only uses too much.
    """
    way = "namespaces" if namespaces else "landlock"
    fresh = Shell(LIMITS, ways=[way])
    expected = found(fresh)
    fresh.close()
    with Arena() as arena:
        held = Shell(LIMITS, ways=[way])
        poisoned = _poisoned(held, expected, GROUP if quick else 1)
        escaped, tried = _escaped(held, arena)
        held.close()
    wanted = [one for one in ESCAPES if not quick or one.group != "resources"]
    with Sandbox(Limits(seconds=0.5)) as sandbox:
        escaped += sum(not one.contained for one in try_all(sandbox, wanted))
    opened, entries = _opened(namespaces)
    return {
        "poisoned_episodes": len(poisoned), "poisons_tried": len(POISONS), "jail_escapes": escaped,
        "jail_escapes_tried": tried + len(wanted), "fail_open": opened, "entries_tried": entries,
    }  # fmt: skip


def _poisoned(held: Shell, expected: str, group: int) -> list[str]:
    """Names of the commands that the next episode notices."""
    names: list[str] = []
    for first in range(0, len(POISONS), group):
        mine: tuple[Poison, ...] = POISONS[first : first + group]
        if group > 1:
            ended = [
                held.run(FIRST, told_to(one, held), seconds=0.3 if one.short else 20.0).ended for one in mine
            ]
            if found(held) == expected and "lost" not in ended:
                continue
        alone = [one.name for one in (after(poison, held, expected) for poison in mine) if one.differs]
        names += alone or ([f"{mine[0].name} and those after it"] if group > 1 else [])
    return names


def _escaped(held: Shell, arena: Arena) -> tuple[int, int]:
    """How many commands got out, and how many tried."""
    from support.shell_escapes import attempts

    told = arena.prepare()
    commands = attempts(told)
    out = 0
    for command in commands:
        ran = held.run(FIRST, command, seconds=20.0)
        out += bool(arena.effects(SandboxResult("ok", value=ran.output), []))
    return out, len(commands)


def _opened(namespaces: bool) -> tuple[int, int]:
    """How many entries ran without a wall or show nothing, and how many were tried."""
    from support.foreign_code import ENTRIES, tried

    lacking = ("seccomp",) if namespaces else ("seccomp", "landlock", "namespaces")
    out = 0
    for entry in ENTRIES.values():
        with tempfile.TemporaryDirectory() as one, tempfile.TemporaryDirectory() as other:
            runs = tried(entry, Path(one)) == "ran"
            out += not runs or not tried(entry, Path(other), *lacking).startswith("refused: ")
    return out, len(ENTRIES)
