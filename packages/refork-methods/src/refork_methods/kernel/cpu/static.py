"""What can be said of a kernel without running it: disassembly, gcc's records, the model of the ports.

Places in what is cited are in the source, so that a reader finds them.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, final

from refork.errors import BadInput, CannotDo
from refork_methods.kernel.bench.screen import read_object
from refork_methods.kernel.cpu import metrics as m
from refork_methods.kernel.cpu import objdump, toolchain
from refork_methods.kernel.cpu.build import LISTED, Built, compile_object, read_whole, run_tool
from refork_methods.kernel.cpu.metrics import Metric
from refork_methods.kernel.cpu.tools import DEPENDENCY_CHAIN_MOST_RATIO as MOST_RATIO
from refork_methods.kernel.problem import functions_of, parse
from refork_methods.kernel.signals import Signals, Source
from refork_methods.kernel.tool import Finding

if TYPE_CHECKING:
    from tree_sitter import Node


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


def _cpu_info() -> str:
    """What the system tells of its processors; empty where it does not."""
    path = Path("/proc/cpuinfo")
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


#: Sums in any order, and vectors wherever gcc can make them: what then still waits, waits by the problem.
REORDERED = (
    "-O3",
    "-fassociative-math",
    "-fno-signed-zeros",
    "-fno-trapping-math",
    "-fvect-cost-model=unlimited",
)
_ADDRESS = re.compile(r"^\s*([0-9a-f]+):\s")
_PLACE = re.compile(r"(?:[^\s:]*/)?([^\s:/]+\.\w+):(\d+)")


@final
@dataclass(frozen=True, slots=True)
class Code:
    """Signals of the object, the object, and whether its dependencies remain when sums may be reordered."""

    signals: Signals
    built: Built
    inherent: bool


def read_code(source: Path, folder: Path, entry: str, flags: Sequence[str]) -> Code:
    """Compile a kernel and read its code.

    Raises:
        BadInput: it does not compile, or has no such function.
    """
    built = compile_object(source, folder, flags=flags)
    symbol = _symbol(built.path, entry)
    known = functions_of(parse(source.read_text(errors="replace"), source.suffix).root_node)
    own = known.get(entry)
    # Where the file has other functions, their loops may be inlined: the whole file's records count.
    # Rows of the tree count from 0, lines of the records from 1.
    lines = range(own.start_point[0] + 1, own.end_point[0] + 2) if own and len(known) == 1 else None
    signals = static_signals(built, symbol, lines=lines)
    # What one loop waits for, the loop around it may do side by side.
    waits = _waits(signals) and own is not None and _depth(own) <= 1
    return Code(signals, built, waits and _still_waits(source, folder, entry, flags))


def _symbol(path: Path, entry: str) -> str:
    """The entry's name in an object: mangled in C++."""
    mangled = re.compile(rf"_Z{len(entry)}{re.escape(entry)}(?!\d)\w*")
    own = [one.name for one in read_object(read_whole(path))[1] if one.defined]
    return next((name for name in own if name == entry or mangled.fullmatch(name)), entry)


def _waits(signals: Signals) -> bool:
    known = m.together(signals, m.LOOP_CYCLES, m.BLOCK_CYCLES)
    return known is not None and known[1] > 0 and known[0] / known[1] > MOST_RATIO


def _still_waits(source: Path, folder: Path, entry: str, flags: Sequence[str]) -> bool:
    """Whether gcc finds no vectors, and the model still waits, where every order of a sum is allowed."""
    try:
        # gcc takes the last of two flags that differ: -O3 here, whatever the kernel is built with.
        built = compile_object(source, folder, flags=(*flags, *REORDERED))
        signals = static_signals(built, _symbol(built.path, entry))
    except BadInput:
        return False
    return _waits(signals) and not m.VECTOR_LOOPS.of(signals)


def _depth(node: Node) -> int:
    """How deep loops are nested."""
    own = node.type in ("for_statement", "while_statement", "do_statement")
    return own + max((_depth(child) for child in node.children), default=0)


def named(signals: Signals, name: str) -> Signals:
    """The same where a copy of the source, kept under a digest, has its own name again."""
    pattern = re.compile(r"(?:[^\s:]*/)?[0-9a-f]{16}\.\w+(?=:\d)")
    lines = {one: tuple(pattern.sub(name, line) for line in given) for one, given in signals.lines.items()}
    return replace(signals, lines=lines)


def with_places(findings: Sequence[Finding], built: Built, name: str) -> tuple[Finding, ...]:
    """The same findings, each disassembled line of their evidence with the source line it comes from."""
    addresses = sorted(
        {found[1] for one in findings for line in one.evidence if (found := _ADDRESS.match(line))}
    )
    places = dict(zip(addresses, _lines_of(built.path, addresses), strict=True))

    def placed(line: str) -> str:
        found = _ADDRESS.match(line)
        at = places.get(found[1]) if found else None
        code = re.sub(r"\s+", " ", line.strip())
        return f"{name}:{at}: {code}" if at else line

    return tuple(replace(one, evidence=tuple(map(placed, one.evidence))) for one in findings)


def _lines_of(path: Path, addresses: Sequence[str]) -> list[int | None]:
    """Source lines of addresses in the text section of an object; None where they cannot be told."""
    if not addresses:
        return []
    command = ("addr2line", "-j", ".text", "-e", "kernel.o", *addresses)
    try:
        done = run_tool(
            command, {"kernel.o": read_whole(path)}, (), seconds=_SECONDS, where="addr2line", bounds=LISTED
        )
    except (BadInput, CannotDo):
        return [None] * len(addresses)
    found = [re.search(r":(\d+)", line) for line in done.out.decode(errors="replace").splitlines()]
    if len(found) != len(addresses):
        return [None] * len(addresses)
    return [int(one[1]) if one else None for one in found]


def source_lines(findings: Sequence[Finding], source: str, name: str) -> dict[int, str]:
    """The lines of the source that evidence names, by number."""
    text = source.splitlines()
    wanted = {
        int(found[2])
        for one in findings
        for line in one.evidence
        for found in _PLACE.finditer(line)
        if found[1] == name
    }
    return {number: text[number - 1].strip() for number in sorted(wanted) if 0 < number <= len(text)}
