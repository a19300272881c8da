"""What can be said of a kernel without running it: disassembly, gcc's records, the model of the ports."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from refork.errors import BadInput
from refork_methods.kernel.cpu import mca, objdump, optinfo, toolchain
from refork_methods.kernel.cpu import metrics as m
from refork_methods.kernel.cpu.build import LISTED, Built, read_whole
from refork_methods.kernel.signals import Signals, Source

_SECONDS = 30.0
#: The newest of each maker that LLVM 14 has a model of its own for.
_NEAREST = {"AuthenticAMD": "znver3", "GenuineIntel": "icelake-server"}


def static_signals(built: Built, entry: str, *, lines: range | None = None, cpu: str = "native") -> Signals:
    """Signals of ``entry`` in an object; ``lines`` are its own in its file, ``cpu`` is llvm-mca's name.

    A program that is not installed, or that cannot read this code, leaves its source absent, with why.

    Raises:
        BadInput: the object has no such function.
    """
    values: dict[Source, dict[str, float]] = {}
    cited: dict[Source, tuple[str, ...]] = {}
    absent: dict[Source, str] = {}
    text, why = _said(("objdump", "-dr", "--no-show-raw-insn", "kernel.o"), read_whole(built.path))
    if text is None:
        absent["objdump"] = why
        absent["mca"] = "no disassembly to model"
    else:
        values["objdump"], cited["objdump"] = objdump.parse(text, entry)
        flags = _cpu_flags()
        if flags:
            values["objdump"][m.WIDEST_BITS.name] = objdump.widest_bits(flags)
        try:
            values["mca"], cited["mca"] = _modelled(text, entry, cpu)
        except BadInput as error:
            absent["mca"] = error.what
    if built.records:
        values["optinfo"], cited["optinfo"] = optinfo.parse(built.records, lines=lines)
    else:
        absent["optinfo"] = "gcc's vectoriser does not run at these flags"
    return Signals(values, cited, absent)


def _modelled(text: str, entry: str, cpu: str) -> tuple[dict[str, float], tuple[str, ...]]:
    loop = objdump.loop_assembly(text, entry)
    if loop is None:
        raise BadInput("the function has no loop")
    if re.search("^call", loop, re.MULTILINE):
        raise BadInput("the loop calls a function, which the model does not follow")
    chosen = _stand_in() if cpu == "native" else None
    report, why = _said(("llvm-mca", f"-mcpu={chosen or cpu}", "loop.s"), loop.encode())
    if report is None:
        raise BadInput(why)
    values, cites = mca.parse(report)
    said = (f"modelled as {chosen}: this llvm-mca does not know the processor",) if chosen else ()
    return values, (*cites, *said)


def _stand_in() -> str | None:
    """Whom to model where llvm-mca is older than the processor; None where it knows it, or none is near.

    It would take a processor of 2011 otherwise, whose divisions wait for no result but for each other.
    """
    known, _ = _said(("llvm-mca", "--version"))
    if known is None or "Host CPU: (unknown)" not in known:
        return None
    return next((name for vendor, name in _NEAREST.items() if vendor in _cpu_info()), None)


def _cpu_info(path: Path = Path("/proc/cpuinfo")) -> str:
    """What the system tells of its processors; empty where it does not."""
    return path.read_text() if path.exists() else ""


def _cpu_flags() -> str:
    """The first processor's flags; empty where the system does not tell."""
    lines = _cpu_info().splitlines()
    return next((line.partition(":")[2] for line in lines if line.startswith("flags")), "")


def _said(command: Sequence[str], given: bytes = b"") -> tuple[str | None, str]:
    """What a tool printed of a file, its last word; None and the reason where it is not here or failed."""
    name, files = command[0], {command[-1]: given} if given else {}
    try:
        done = toolchain.run(command, files=files, bounds=replace(LISTED, seconds=_SECONDS))
    except FileNotFoundError:
        return None, f"{name} is not installed"
    if done.ended == "time":
        return None, f"{name} took over {_SECONDS:g} s"
    if done.ended != "exit":
        return None, f"{name} printed over {LISTED.output} bytes"
    if done.status:
        said = done.err.decode(errors="replace").strip().splitlines()
        return None, f"{name}: {said[0] if said else f'ended with {done.status}'}"
    return done.out.decode(errors="replace"), ""
