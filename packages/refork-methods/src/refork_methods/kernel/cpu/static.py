"""What can be said of a kernel without running it: disassembly, gcc's records, the model of the ports."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from refork.errors import BadInput
from refork_methods.kernel.cpu import metrics as m
from refork_methods.kernel.cpu import objdump, toolchain
from refork_methods.kernel.cpu.build import LISTED, Built, read_whole
from refork_methods.kernel.cpu.metrics import Metric
from refork_methods.kernel.signals import Signals, Source

OPTINFO_WHERE = "gcc -fopt-info-vec-all"
_RECORD = re.compile(
    r"^(?P<file>.+?):(?P<line>\d+):(?P<column>\d+): (?P<kind>optimized|missed|note): *(?P<what>.*)$"
)
_BYTES = re.compile(r"loop vectorized using (\d+) byte vectors")
#: Words of gcc 12 and 13, and what they mean; the first that fits counts.
_REASONS: tuple[tuple[Metric, tuple[str, ...]], ...] = (
    (m.MISSED_REDUCTION, ("reduction:", "fp math", "reduction used in loop", "not commutative")),
    (m.MISSED_ALIAS, ("possible alias", "may alias", "bad data dependence", "dependence distance")),
    (m.MISSED_CALL, ("statement clobbers memory", "function calls")),
    (m.MISSED_STRIDE, ("complicated access pattern", "strided", "not consecutive", "gather")),
    (m.MISSED_CONTROL, ("control flow", "number of iterations", "multiple exits", "early break")),
    (m.MISSED_COST, ("not profitable", "cost model", "vectorization costs")),
)  # fmt: skip


def parse_optinfo(text: str, *, lines: range | None = None) -> tuple[dict[str, float], tuple[str, ...]]:
    """Loops by source line, and reasons; ``lines`` are the kernel's in its file (None: the whole file).

    A loop that gcc vectorised in one of several versions is vectorised. Returns metrics by name, and the
    records that name a loop or a reason, each once, vectorised ones first.

    Raises:
        BadInput: text without one record.
    """
    records = [record for line in text.splitlines() if (record := _RECORD.match(line.rstrip()))]
    if not records:
        raise BadInput(
            "no record of the vectoriser", where=OPTINFO_WHERE, hint="compile with -O2 or -O3 and this flag"
        )
    done: set[int] = set()
    failed: set[int] = set()
    widths: list[int] = []
    why: dict[Metric, set[int]] = {metric: set() for metric, _ in _REASONS}
    said: dict[str, int] = {}
    for record in records:
        line, what = int(record["line"]), record["what"]
        if lines is not None and line not in lines:
            continue
        if record["kind"] == "optimized" and (width := _BYTES.search(what)):
            done.add(line)
            widths.append(int(width[1]))
            said.setdefault(record[0].strip(), 0)
        elif record["kind"] == "missed":
            if "couldn't vectorize loop" in what:
                failed.add(line)
            reason = next((one for one, words in _REASONS if any(word in what for word in words)), None)
            if reason is not None:
                why[reason].add(line)
                said.setdefault(record[0].strip(), 1)
    values = {m.VECTORISED.name: float(len(done)), m.MISSED.name: float(len(failed - done))}
    if widths:
        values[m.VECTOR_BYTES.name] = max(widths)
    values |= {metric.name: float(len(at)) for metric, at in why.items()}
    return values, tuple(sorted(said, key=lambda one: said[one]))


MCA_WHERE = "llvm-mca"
_NAMED = re.compile(r"^\[([\d.]+)\]\s+- (\S+)$")


def parse_mca(text: str) -> tuple[dict[str, float], tuple[str, ...]]:
    """Metrics of a report with the resource pressure view, and its lines that are to be cited.

    Raises:
        BadInput: a report without cycles, iterations or throughput, or with a damaged pressure table.
    """
    iterations, total = _number(text, "Iterations"), _number(text, "Total Cycles")
    if not (iterations and total):
        raise BadInput("no iterations or no cycles", where=MCA_WHERE)
    cycles = total / iterations
    values = {
        m.LOOP_CYCLES.name: cycles,
        m.BLOCK_CYCLES.name: _number(text, "Block RThroughput"),
        m.IPC.name: _number(text, "IPC"),
    }
    lines = [line.strip() for line in text.splitlines()]
    cites = [
        line for line in lines if line.startswith(("Iterations:", "Total Cycles:", "Block RThroughput:"))
    ]
    busiest = _busiest(lines)
    if busiest is not None:
        port, pressure = busiest
        values[m.PORT_USE.name] = pressure / cycles
        cites.append(f"{port}: {pressure:g} of {cycles:g} cycles per iteration")
    return values, tuple(cites)


def _number(text: str, name: str) -> float:
    found = re.search(rf"^{name}:\s+(\d+(?:\.\d+)?)\s*$", text, re.MULTILINE)
    if found is None:
        raise BadInput(f"no {name}", where=MCA_WHERE, hint="the report of one code region is read")
    return float(found[1])


def _busiest(lines: list[str]) -> tuple[str, float] | None:
    """The most used port and its cycles per iteration; None without the view."""
    if "Resource pressure per iteration:" not in lines:
        return None
    names = {found[1]: found[2] for line in lines if (found := _NAMED.match(line))}
    at = lines.index("Resource pressure per iteration:")
    table = lines[at + 1 : at + 3]
    keys = re.findall(r"\[([\d.]+)\]", table[0]) if table else []
    cells = table[1].split() if len(table) == 2 else []
    if not keys or len(keys) != len(cells) or any(not re.fullmatch(r"-|\d+\.\d+", one) for one in cells):
        raise BadInput("a damaged table of port pressure", where=MCA_WHERE)
    pressure = {key: 0.0 if cell == "-" else float(cell) for key, cell in zip(keys, cells, strict=True)}
    key = max(pressure, key=lambda one: pressure[one])
    return names.get(key, f"port {key}"), pressure[key]


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
    text, why = _last_word(("objdump", "-dr", "--no-show-raw-insn", "kernel.o"), read_whole(built.path))
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
        values["optinfo"], cited["optinfo"] = parse_optinfo(built.records, lines=lines)
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
    report, why = _last_word(("llvm-mca", f"-mcpu={chosen or cpu}", "loop.s"), loop.encode())
    if report is None:
        raise BadInput(why)
    values, cites = parse_mca(report)
    said = (f"modelled as {chosen}: this llvm-mca does not know the processor",) if chosen else ()
    return values, (*cites, *said)


def _stand_in() -> str | None:
    """Whom to model where llvm-mca is older than the processor; None where it knows it, or none is near.

    It would take a processor of 2011 otherwise, whose divisions wait for no result but for each other.
    """
    known, _ = _last_word(("llvm-mca", "--version"))
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


def _last_word(command: Sequence[str], given: bytes = b"") -> tuple[str | None, str]:
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
