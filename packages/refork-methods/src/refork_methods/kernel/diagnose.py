"""A CPU kernel diagnosed end to end: compiled, timed, profiled once, classified, and all tools asked.

Source: arXiv 2606.26453 for the method, which is about GPUs. Of ours are the CPU signals, smaller sizes for
the simulated run, and that every tool is asked whatever the class: theory calls a naive matmul compute-bound,
and the tools that its row leaves out are those that tell why it is slow.
"""

from __future__ import annotations

import math
import os
import re
import shutil
import signal
import subprocess
import tempfile
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path, PurePath
from typing import TYPE_CHECKING, final

from refork.errors import BadInput, CannotDo
from refork.progress import Progress, silent
from refork.types import Json
from refork_methods.kernel.bench import Bench, Calibration, Candidate, Driver, Evaluated
from refork_methods.kernel.bench.screen import read_object
from refork_methods.kernel.cpu import cachegrind, perf, toolchain
from refork_methods.kernel.cpu import metrics as m
from refork_methods.kernel.cpu.build import LISTED, Built, compile_object, for_profiling, read_whole, run_tool
from refork_methods.kernel.cpu.diagnose import derived, diagnose_cpu
from refork_methods.kernel.cpu.static import static_signals
from refork_methods.kernel.cpu.tools import DEPENDENCY_CHAIN_MOST_RATIO as MOST_RATIO
from refork_methods.kernel.problem import BYTES, Problem, functions_of, parse
from refork_methods.kernel.roofline import Ceilings, Work, roof
from refork_methods.kernel.signals import Signals
from refork_methods.kernel.tool import Diagnosis, Finding

if TYPE_CHECKING:
    from tree_sitter import Node


#: A guest that is told of the host's whole last-level cache has this much of it for each of its processors.
SHARE = 2 << 20
#: Where the system tells nothing: a first and a last level as most processors of the last ten years have.
USUAL = ((32 << 10, 8, 64), (8 << 20, 16, 64))
#: With fewer misses than this share of the accesses, conflicts are not looked for (see the tool).
LEAST_MISSES = 0.01
#: In a quick diagnosis they are looked for where a tenth of the accesses miss, and the last level has what
#: they look for: a stream from memory has no conflicts worth a second simulation.
QUICK_MISSES, IN_LAST = 0.10, 4.0
#: How much longer a run may take by the clock on the wall than by the processor's.
BUSY = 4.0
_SYSTEM = Path("/sys/devices/system/cpu/cpu0/cache")


@final
@dataclass(frozen=True, slots=True)
class Cache:
    """Bytes, ways, and bytes of a line."""

    size: int
    ways: int
    line: int

    @property
    def option(self) -> str:
        """As valgrind takes it."""
        return f"{self.size},{self.ways},{self.line}"

    @property
    def whole(self) -> Cache:
        """The same bytes in one set."""
        return replace(self, ways=self.size // self.line)

    def __str__(self) -> str:
        size = f"{self.size >> 20} MiB" if self.size >= 1 << 20 else f"{self.size / 1024:g} KiB"
        return f"{size}, {self.ways} ways"


@final
@dataclass(frozen=True, slots=True)
class Caches:
    """First-level data cache and last level, and what was changed of what the system reports."""

    first: Cache
    last: Cache
    notes: tuple[str, ...] = ()


def caches(folder: Path = _SYSTEM, *, processors: int = 1) -> Caches:
    """The machine's caches, in a form that can be simulated.

    A last level of more than 2 MiB for each of the ``processors`` is the host's, of which a virtual machine
    has a share: it is simulated with that share, at least the second level's size.
    """
    found = _reported(folder)
    first, last = found.get("first"), found.get("last")
    notes: list[str] = []
    if first is None or last is None:
        first, last = (Cache(*one) for one in USUAL)
        notes.append(f"the system reports no caches: {first} and {last} are simulated")
    share = max(SHARE * processors, found["second"].size if "second" in found else 0)
    if last.size > 2 * share:
        notes.append(
            f"last-level cache: {last.size >> 20} MiB are reported, which is the host's;"
            f" {share >> 20} MiB are simulated"
        )
        last = replace(last, size=share)
    return Caches(_simulable(first), _simulable(last), tuple(notes))


def _reported(folder: Path) -> dict[str, Cache]:
    """Data and unified caches by the role that they have here."""
    levels: dict[int, Cache] = {}
    for index in sorted(folder.glob("index*")):
        told = {
            name: _text(index / name)
            for name in ("level", "type", "size", "ways_of_associativity", "coherency_line_size")
        }
        size = re.fullmatch(r"(\d+)([KM]?)", told["size"])
        if told["type"] == "Instruction" or size is None or not told["level"].isdigit():
            continue
        ways, line = (told[name] for name in ("ways_of_associativity", "coherency_line_size"))
        if not (ways.isdigit() and line.isdigit() and int(ways) and int(line)):
            continue
        levels[int(told["level"])] = Cache(
            int(size[1]) << {"": 0, "K": 10, "M": 20}[size[2]], int(ways), int(line)
        )
    if not levels:
        return {}
    found = {"last": levels[max(levels)]}
    return found | {name: levels[at] for name, at in (("first", 1), ("second", 2)) if at in levels}


def _text(path: Path) -> str:
    try:
        return path.read_text().strip()
    except OSError:
        return ""


def _simulable(cache: Cache) -> Cache:
    """The largest of the same ways and line whose number of sets is a power of two."""
    ways = min(cache.ways, cache.size // cache.line)
    sets = 1 << ((cache.size // (cache.line * ways)).bit_length() - 1)
    return Cache(sets * cache.line * ways, ways, cache.line)


@final
@dataclass(frozen=True, slots=True)
class Simulated:
    """Signals of cachegrind, or absence with its reason, and notes on how it ran."""

    signals: Signals
    notes: tuple[str, ...] = ()


def simulate(driver: Driver, shape: Caches, *, seconds: float = 20.0, quick: bool = False) -> Simulated:
    """One call of the kernel under cachegrind; a second one without sets where conflicts may be.

    Raises:
        BadInput: the kernel is not in what was counted.
    """
    text, why = _diagnose_caches_counted(driver, shape.first, shape.last, seconds, branches=True)
    if text is None:
        return Simulated(Signals(absent={"cachegrind": why}))
    own = _file_of(text, driver.symbol)
    values, lines = cachegrind.parse(text, driver.symbol, file=own)
    first, last = shape.first, shape.last
    notes = [*shape.notes, f"simulated: first level {first}; last level {last}; one call, caches cold"]
    misses = values[m.D1_READ_MISSES.name] + values[m.D1_WRITE_MISSES.name]
    beyond = values[m.LL_READ_MISSES.name] + values[m.LL_WRITE_MISSES.name]
    share = misses / max(1.0, values[m.READS.name] + values[m.WRITES.name])
    if share < (QUICK_MISSES if quick else LEAST_MISSES):
        notes.append(f"conflicts were not looked for: {share:.2%} of the accesses miss the first level")
    elif quick and misses < IN_LAST * beyond:
        notes.append("conflicts were not looked for: most misses of the first level go on to memory")
    else:
        text, why = _diagnose_caches_counted(driver, first.whole, last, seconds / 2)
        if text is None:
            notes.append(f"conflicts were not looked for: {why}")
        else:
            values |= cachegrind.fully_associative(cachegrind.parse(text, driver.symbol, file=own)[0])
    return Simulated(Signals({"cachegrind": values}, {"cachegrind": lines}), tuple(notes))


def _diagnose_caches_counted(
    driver: Driver, first: Cache, last: Cache, seconds: float, *, branches: bool = False
) -> tuple[str | None, str]:
    """The out-file of one run; None and the reason where there is none."""
    if shutil.which("valgrind") is None:
        return None, "valgrind is not installed"
    late = f"valgrind took over {seconds:g} s: give smaller sizes (--set)"
    with tempfile.TemporaryDirectory(prefix="refork-cachegrind-") as folder:
        out = Path(folder) / "out"
        command = [
            "valgrind",
            "--tool=cachegrind",
            "--cache-sim=yes",
            f"--branch-sim={'yes' if branches else 'no'}",
            "--demangle=no",
            f"--cachegrind-out-file={out}",
            f"--D1={first.option}",
            f"--LL={last.option}",
            *driver.argv,
        ]
        # Processor seconds, so that a busy machine takes nothing away.
        limited = ["/bin/sh", "-c", 'ulimit -t "$0"; exec "$@"', str(math.ceil(seconds)), *command]
        try:
            done = subprocess.run(
                limited, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE,
                text=True, errors="replace", timeout=BUSY * seconds, check=False,
            )  # fmt: skip
        except subprocess.TimeoutExpired:
            return None, late
        if done.returncode in (-signal.SIGXCPU, -signal.SIGKILL):
            return None, late
        if done.returncode or not out.exists():
            return None, f"valgrind: {_reason(done.stderr.splitlines(), done.returncode)}"
        return out.read_text(errors="replace"), ""


def _reason(said: Sequence[str], status: int) -> str:
    """The line of valgrind's that tells why it stopped."""
    words = ("unrecognised", "Unrecognised", "unhandled", "Illegal", "signal", "error", "Error", "Bad option")
    for line in said:
        if any(word in line for word in words):
            return re.sub(r"^==\d+== *|^valgrind: *", "", line).strip()
    return f"it ended with {status}"


def _file_of(text: str, symbol: str) -> str | None:
    """The base name of the source in which a function was counted: its helpers are counted with it."""
    at = ""
    for line in text.splitlines():
        if line.startswith("fl="):
            at = PurePath(line[3:].strip()).name
        elif line.startswith("fn=") and line[3:].strip().split(".")[0] == symbol:
            return at if at not in ("", "???") else None
    raise BadInput(f"{symbol} was not called, or was compiled into its caller", where="cachegrind")


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
    signals = _plain(static_signals(built, symbol, lines=_own_lines(source, entry)), source)
    waits = _waits(signals) and not _nested(source, entry)
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
        built = compile_object(source, folder, flags=(*flags, *REORDERED))
        signals = static_signals(built, _symbol(built.path, entry))
    except BadInput:
        return False
    return _waits(signals) and not m.VECTOR_LOOPS.of(signals)


def _nested(source: Path, entry: str) -> bool:
    """Whether the entry has a loop within a loop: what one waits for, the other may do side by side."""
    root = parse(source.read_text(errors="replace"), source.suffix).root_node
    return _depth(functions_of(root).get(entry, root)) > 1


def _depth(node: Node) -> int:
    own = node.type in ("for_statement", "while_statement", "do_statement")
    return own + max((_depth(child) for child in node.children), default=0)


def _own_lines(source: Path, entry: str) -> range | None:
    """The lines of the entry; None where the file has other functions, whose loops may be inlined."""
    text = source.read_text(errors="replace")
    bodies = len(re.findall(r"^[^\s#/{}][^;{}]*\)\s*\{", text, re.MULTILINE))
    found = re.search(rf"\b{re.escape(entry)}\s*\(", text)
    if bodies != 1 or found is None:
        return None
    return range(text.count("\n", 0, found.start()) + 1, text.count("\n") + 2)


def _plain(signals: Signals, source: Path) -> Signals:
    """The same without the folder that the source was compiled in."""
    lines = {
        one: tuple(line.replace(f"{source.parent}/", "") for line in given)
        for one, given in signals.lines.items()
    }
    return replace(signals, lines=lines)


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
        done = toolchain.run(command, files={"kernel.o": read_whole(path)}, bounds=LISTED)
    except FileNotFoundError:
        return [None] * len(addresses)
    found = [re.search(r":(\d+)", line) for line in done.out.decode(errors="replace").splitlines()]
    if done.ended != "exit" or done.status or len(found) != len(addresses):
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


#: Samples a second; perf is allowed more nearly everywhere.
RATE = 4000
#: Seconds of sampled calls that are aimed at.
DIAGNOSE_SAMPLES_AIM = 0.25
MOST_CALLS = 100_000
_SCRIPT = re.compile(r"^\s*([0-9a-f]+)\s+(\S+)")
_SECONDS = 30.0


def calls_for(seconds: float, most: int = MOST_CALLS) -> int:
    """How many calls to sample of a kernel that takes so long."""
    return max(2, min(most, round(DIAGNOSE_SAMPLES_AIM / max(seconds, 1e-9))))


def repeated(driver: Driver, calls: int) -> Driver:
    """The same program with another number of calls, which is its last argument."""
    return replace(driver, argv=(*driver.argv[:-1], str(calls)))


def seconds_of(driver: Driver, *, least: float = 0.04, repeats: int = 3) -> float:
    """Seconds of one call on inputs that stay the same, by processor time: quick, and warm.

    For classes, not for claims: the kernel is trusted, and nothing is timed beside it. ``least`` are the
    seconds of calls to time at least.
    """

    def took(calls: int) -> float:
        return _processor(repeated(driver, calls))

    # By the difference of two runs, so that what it takes to start and to draw inputs falls out.
    calls, few = 1, took(1)
    while (more := took(1 + calls) - few) < least and calls < 1 << 24:
        calls = max(2 * calls, min(64 * calls, int(1.5 * least * calls / max(more, 1e-6))))
    runs = [(took(1 + calls), took(1)) for _ in range(repeats)]
    return max(1e-9, (min(many for many, _ in runs) - min(one for _, one in runs)) / calls)


def _processor(driver: Driver) -> float:
    """Seconds of the processor that a run took.

    Raises:
        BadInput: it failed.
    """
    nowhere = subprocess.DEVNULL
    process = subprocess.Popen(driver.argv, stdin=nowhere, stdout=nowhere, stderr=nowhere)
    _, status, used = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode:
        raise BadInput(f"the kernel's program ended with {process.returncode}", where="kernel diagnosis")
    return used.ru_utime + used.ru_stime


def sampled(driver: Driver, calls: int, *, stack: bool, output_bytes: float) -> Signals:
    """Signals of perf on a program that calls the kernel once, and ``calls`` times more.

    ``stack`` asks which samples lie on spilled registers.
    Where perf is not installed or not permitted, its signals are absent, with why.
    """
    if shutil.which("perf") is None:
        return Signals(absent={"perf": "perf is not installed"})
    few, many = repeated(driver, 1), repeated(driver, 1 + calls)
    values: dict[str, float] = {}
    lines: list[str] = []
    why: list[str] = []
    with tempfile.TemporaryDirectory(prefix="refork-perf-") as folder:
        for read in (_samples, _faults):
            try:
                found, said = read(few, many, Path(folder))
            except BadInput as error:
                why.append(error.what)
                continue
            values |= found
            lines += said
        if stack and m.SAMPLES.name in values:
            try:
                # Not perf's own listing, which reads the sources that a program names, outside of a jail.
                places = _samples_by_address(Path(folder) / "many", many.symbol)
                share, hottest = perf.on_stack(places, _listing(many), many.symbol)
                values |= share
                lines += hottest
            except (BadInput, CannotDo) as error:
                why.append(error.what)
    if not values:
        return Signals(absent={"perf": "; ".join(why)})
    timing = {m.TIMED_CALLS.name: float(calls), m.OUTPUT_BYTES.name: output_bytes}
    return Signals({"perf": values, "timing": timing}, {"perf": tuple(lines)})


def _samples(few: Driver, many: Driver, folder: Path) -> tuple[dict[str, float], list[str]]:
    """The share of the calls' samples that lie in the kernel."""
    once = _recorded(few, folder / "few")
    often = _recorded(many, folder / "many")
    calls = Counter({name: count - once[name] for name, count in often.items() if count > once[name]})
    total = calls.total()
    if not total:
        raise BadInput("perf took no samples of the calls")
    inside = sum(count for name, count in calls.items() if name.split(".")[0] == many.symbol)
    lines = [f"{count / total:.2%} of {total} samples [.] {name}" for name, count in calls.most_common(5)]
    return {m.SAMPLES.name: float(total), m.INSIDE.name: inside / total}, lines


def _recorded(driver: Driver, out: Path) -> Counter[str]:
    """Samples by symbol; without a symbol, they count as ``[unknown]``."""
    _perf_output(
        ("perf", "record", "-q", "-F", str(RATE), "-e", "cpu-clock", "-o", str(out), "--", *driver.argv)
    )
    return Counter(name for _, name in _script(out))


def _script(recorded: Path) -> list[tuple[int, str]]:
    """Address and symbol of each sample."""
    text = _perf_output(("perf", "script", "--no-demangle", "-i", str(recorded), "-F", "ip,sym"))
    return [(int(found[1], 16), found[2]) for line in text.splitlines() if (found := _SCRIPT.match(line))]


def _samples_by_address(recorded: Path, symbol: str) -> Counter[int]:
    """Samples of a function and its copies by address, which in our programs is that of the file."""
    return Counter(at for at, name in _script(recorded) if name.split(".")[0] == symbol)


def _listing(driver: Driver) -> str:
    """A program's disassembly.

    Raises:
        BadInput, CannotDo: as :func:`run_tool`.
    """
    command = ("objdump", "-d", "--no-show-raw-insn", "program")
    files = {"program": read_whole(driver.path)}
    done = run_tool(command, files, (), seconds=_SECONDS, where="objdump", bounds=LISTED)
    return done.out.decode(errors="replace")


def _faults(few: Driver, many: Driver, folder: Path) -> tuple[dict[str, float], list[str]]:
    """Page faults of the calls alone."""
    once, often = (_diagnose_samples_counted(one, folder) for one in (few, many))
    if once is None or often is None:
        raise BadInput("this machine does not count page faults")
    more = max(0.0, often - once)
    return {m.FAULTS.name: more}, [f"{more:.0f} page-faults in the calls, {once:.0f} before them"]


def _diagnose_samples_counted(driver: Driver, folder: Path) -> float | None:
    out = folder / "stat"
    _perf_output(("perf", "stat", "-x", ",", "-e", "page-faults", "-o", str(out), "--", *driver.argv))
    return perf.parse_stat(out.read_text())[0].get(m.FAULTS.name)


def _perf_output(command: Sequence[str]) -> str:
    """What perf printed.

    Raises:
        BadInput: it failed, with its first line.
    """
    try:
        done = subprocess.run(
            command, stdin=subprocess.DEVNULL, capture_output=True, text=True, errors="replace",
            timeout=_SECONDS, check=False,
        )  # fmt: skip
    except subprocess.TimeoutExpired:
        raise BadInput(f"perf {command[1]} took over {_SECONDS:g} s") from None
    if done.returncode:
        said = [line for line in done.stderr.splitlines() if line.strip()]
        raise BadInput(f"perf {command[1]}: {said[0].strip() if said else f'ended with {done.returncode}'}")
    return done.stdout


#: A simulated run takes about so many times as long as the kernel (ours: 20 to 150 were seen).
SLOWER = 100.0
#: Seconds that it is meant to take.
DIAGNOSE_SIZES_AIM = 5.0
#: Sizes below are not halved: they are widths of stencils and numbers of channels.
LEAST = 32
#: The arrays stay larger than so many first-level caches, that capacity tells.
CACHE = 4 * (48 << 10)


def array_bytes(problem: Problem, role: str = "") -> float:
    """Bytes of all arrays, or of those that are written (``out``); what is read and written counts twice."""
    total = 0.0
    for one in problem.arguments:
        if not one.array:
            continue
        size = problem.length(one) * BYTES[one.ctype]
        if role == "out":
            total += size * (one.role in ("out", "inout"))
        else:
            total += size * (2 if one.role == "inout" else 1)
    return total


def with_bytes(problem: Problem) -> tuple[Problem, list[str]]:
    """The problem with its least traffic where none was declared: each array moved once. And a note on it."""
    size = array_bytes(problem)
    if problem.bytes is not None or problem.flops is None or not size:
        return problem, []
    said = f"bytes are not declared: {size:.4g} are assumed, each array once (bytes=E)"
    return replace(problem, bytes=size), [said]


def simulated_problem(problem: Problem, seconds: float | None) -> tuple[Problem, list[str]]:
    """The same at sizes halved together until a simulation is quick; itself where it is, or cannot be.

    The halved problem has its work where the problem's work follows from its sizes.
    """
    if seconds is None or seconds * SLOWER <= DIAGNOSE_SIZES_AIM:
        return problem, []
    small, expected = problem, seconds * SLOWER
    while expected > DIAGNOSE_SIZES_AIM:
        try:
            halved = _halved(small)
        except BadInput:
            break
        if halved is None or array_bytes(halved) < CACHE:
            break
        expected *= _part(small, halved)
        small = halved
    if small is problem:
        return problem, [f"the simulated run may take {expected:.0f} s: no smaller sizes were found"]
    sizes = ", ".join(f"{name}={size}" for name, size in small.sizes.items())
    return small, [f"simulated at {sizes}: at full size it would take about {seconds * SLOWER:.0f} s"]


def _halved(problem: Problem) -> Problem | None:
    sizes = {name: size // 2 if size >= LEAST else size for name, size in problem.sizes.items()}
    return None if sizes == problem.sizes else problem.resized(sizes)


def _part(before: Problem, after: Problem) -> float:
    """What share of the work is left: by flops, else by bytes."""
    for name in ("flops", "bytes"):
        old, new = getattr(before, name), getattr(after, name)
        if old and new:
            return float(new / old)
    return array_bytes(after) / array_bytes(before)


#: What a diagnosis may read; each is left out where it is not asked for.
PARTS: tuple[str, ...] = ("timing", "code", "cachegrind", "perf")
_STAGE = "diagnose"


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class Diagnosed:
    """What was found of one version of a kernel, with all that it was found from.

    ``seconds``: of one call, least of several; None where it was not timed. ``simulated``: the sizes of the
    simulated call, where they are smaller than the problem's. ``notes`` say how things were measured, and
    what was assumed. ``lines``: the source lines that evidence names, by number.
    """

    problem: Problem
    candidate: Candidate
    diagnosis: Diagnosis
    signals: Signals
    ceilings: Ceilings
    work: Work | None
    seconds: float | None
    evaluated: Evaluated | None
    simulated: dict[str, int] = field(default_factory=dict)
    notes: tuple[str, ...] = ()
    lines: dict[int, str] = field(default_factory=dict)

    @property
    def roof_seconds(self) -> float | None:
        """The least seconds that the work can take on this machine; None where it is not declared."""
        return roof(self.work, self.ceilings) if self.work is not None else None

    @property
    def headroom(self) -> float | None:
        """How many times as fast it could at most be; None where work or time is not known."""
        least = self.roof_seconds
        return self.seconds / least if self.seconds is not None and least else None

    def to_json(self) -> Json:
        """Plain JSON; what was not measured is null or under ``absent``."""
        work = self.work
        return self.diagnosis.to_json() | {
            "kernel": self.problem.name,
            "entry": self.problem.entry,
            "candidate": self.candidate.digest,
            "flags": list(self.candidate.flags),
            "sizes": dict(self.problem.sizes),
            "roofline": {
                "flops": work.flops if work else None,
                "bytes": work.bytes if work else None,
                "intensity": work.intensity if work else None,
                "peak_flops_per_second": self.ceilings.flops,
                "peak_bytes_per_second": self.ceilings.bandwidth,
                "ridge": self.ceilings.ridge,
                "noise": self.ceilings.noise,
                "seconds": self.seconds,
                "flops_share": m.FLOPS_SHARE.of(self.signals),
                "bandwidth_share": m.BYTES_SHARE.of(self.signals),
                "least_seconds": self.roof_seconds,
                "headroom": self.headroom,
            },
            "simulated_sizes": dict(self.simulated) or None,
            "notes": list(self.notes),
            "source_lines": {str(number): text for number, text in self.lines.items()},
            "evaluated": self.evaluated.to_json() if self.evaluated else None,
            "signals": self.signals.to_json(),
        }


def diagnose(
    problem: Problem,
    candidate: Candidate | None = None,
    *,
    bench: Bench,
    calibration: Calibration,
    progress: Progress = silent,
    quick: bool = False,
    parts: Sequence[str] = PARTS,
    seconds: float | None = None,
) -> Diagnosed:
    """What holds a version of a kernel back (None: the problem's own source), on all measurements at hand.

    ``bench`` is open, and of the same problem. ``quick`` looks for cache conflicts only where nearly every
    access strides. ``parts`` limits what is measured, and ``seconds`` (of one call) takes the place of a
    timing; what is left out is absent.

    Raises:
        BadInput: the source does not compile or lacks the entry.
        CannotDo: there is no compiler.
    """
    chosen = candidate or Candidate(problem.source, problem.flags)
    run = _Run(problem, chosen, bench, calibration, quick, tuple(parts), progress)
    code = run.code()
    timed = run.timed(seconds)
    cache = run.cache(code, timed)
    sampling = run.samples(code, timed)
    signals = code.signals | timed | cache.signals | sampling
    return run.concluded(code, signals)


@final
class _Run:
    """One diagnosis on its way."""

    def __init__(
        self, problem: Problem, candidate: Candidate, bench: Bench, calibration: Calibration, quick: bool,
        parts: tuple[str, ...], progress: Progress,
    ) -> None:  # fmt: skip
        unknown = set(parts) - set(PARTS)
        if unknown:
            raise BadInput(f"part {min(unknown)}", where="kernel diagnosis", hint=", ".join(PARTS))
        self.problem, assumed = with_bytes(problem)
        self.candidate, self.bench, self.quick, self.parts = candidate, bench, quick, parts
        self.progress, self.notes = progress, list(assumed)
        self.calibration = calibration
        self.folder = bench.folder / "diagnose"
        self.evaluated: Evaluated | None = None
        self.simulated = problem
        self._done = 0

    def code(self) -> Code:
        self._step("compiling and reading the code")
        folder = self.folder / self.candidate.digest
        folder.mkdir(parents=True, exist_ok=True)
        source = folder / self.name
        source.write_text(self.candidate.source)
        return read_code(source, folder, self.problem.entry, self.candidate.flags)

    @property
    def name(self) -> str:
        return f"{Path(self.problem.name).stem}{self.problem.suffix}"

    def timed(self, seconds: float | None) -> Signals:
        self._step("checking and timing")
        if seconds is None and "timing" not in self.parts:
            return Signals(absent={"timing": "not asked for"})
        if seconds is None:
            self.evaluated = self.bench.evaluate(self.candidate)
            seconds = self.evaluated.seconds
            if not self.evaluated.ok:
                self.notes.append(f"it does not stand ({self.evaluated.stage}): {self.evaluated.why}")
        if seconds is None:
            return Signals(absent={"timing": "it could not be timed"})
        return Signals({"timing": {m.SECONDS.name: seconds}}, {"timing": (f"{seconds:.4g} s a call",)})

    def cache(self, code: Code, timed: Signals) -> Simulated:
        self._step("simulating the caches")
        if self._barred("cachegrind") is not None:
            return Simulated(Signals(absent={"cachegrind": self._barred("cachegrind") or ""}))
        self.simulated, why = simulated_problem(self.problem, m.SECONDS.of(timed))
        self.notes += why
        profiled = Candidate(self.candidate.source, for_profiling(self.candidate.flags))
        try:
            if self.simulated is self.problem:
                driver = self.bench.profiled(profiled)
            else:
                with Bench(self.simulated, self.bench.folder / "simulated", self.bench.seed) as small:
                    driver = small.profiled(profiled)
            found = simulate(driver, caches(processors=os.cpu_count() or 1), quick=self.quick)
        except (BadInput, CannotDo) as error:
            return Simulated(Signals(absent={"cachegrind": f"for valgrind's processor: {error.what}"}))
        self.notes += found.notes
        return replace(found, signals=named(found.signals, self.name))

    def samples(self, code: Code, timed: Signals) -> Signals:
        self._step("sampling")
        why = self._barred("perf")
        if why is not None:
            return Signals(absent={"perf": why})
        stack = bool((m.STACK_LOADS.of(code.signals) or 0) + (m.STACK_STORES.of(code.signals) or 0))
        try:
            calls = calls_for(m.SECONDS.of(timed) or 1.0)
            written = array_bytes(self.problem, "out")
            driver = self.bench.profiled(self.candidate)
            return sampled(driver, calls, stack=stack, output_bytes=written)
        except (BadInput, CannotDo) as error:
            return Signals(absent={"perf": error.what})

    def _barred(self, part: str) -> str | None:
        """Why a program is not run; None where it may be."""
        if part not in self.parts:
            return "not asked for"
        if (
            self.evaluated is not None
            and self.evaluated.stage in ("build", "run", "cheat")
            and not self.evaluated.ok
        ):
            return f"it does not stand: {self.evaluated.why}"
        return None

    def _step(self, waiting: str) -> None:
        self.progress(_STAGE, self._done, 4, waiting=waiting)
        self._done += 1

    def concluded(self, code: Code, signals: Signals) -> Diagnosed:
        self.progress(_STAGE, 4, 4)
        work = self.problem.work
        calls = (self.evaluated.calls if self.evaluated else None) or 1
        ceilings, told = ceilings_of(self.problem, self.calibration, calls)
        self.notes += told
        small = self.simulated.work if self.simulated is not self.problem else None
        if work is None:
            self.notes.append(
                "flops are not declared (flops=E): values per flop, and the class by theory, are absent"
            )
        found = diagnose_cpu(signals, work, ceilings, every=True, simulated=small, inherent=code.inherent)
        if code.inherent:
            self.notes.append("each iteration waits for the last one even where sums may be reordered")
        findings = with_places(found.findings, code.built, self.name)
        return Diagnosed(
            problem=self.problem,
            candidate=self.candidate,
            diagnosis=replace(found, findings=findings),
            signals=signals | derived(signals, work, ceilings, small),
            ceilings=ceilings,
            work=work,
            seconds=m.SECONDS.of(signals),
            evaluated=self.evaluated,
            simulated=dict(self.simulated.sizes) if small is not None else {},
            notes=tuple(self.notes),
            lines=source_lines(findings, self.candidate.source, self.name),
        )


def ceilings_of(problem: Problem, calibration: Calibration, calls: int) -> tuple[Ceilings, list[str]]:
    """The machine's ceilings for a problem's numbers, and for arrays of so many calls; what was chosen.

    Arrays that a core's own caches hold do not come from memory: their ceiling is the first cache's.
    """
    found = calibration.ceilings
    notes: list[str] = []
    kinds = {one.ctype for one in problem.arguments} | {problem.returns}
    if "double" in kinds and "float" not in kinds:
        found = replace(found, flops=calibration.flops64)
        notes.append("the ceiling of arithmetic is that of double precision")
    size = array_bytes(problem) * calls
    if size <= calibration.cache_bytes:
        found = replace(found, bandwidth=max(calibration.cached, calibration.bandwidth))
        notes.append(
            f"{size / 1024:.0f} KiB of arrays fit in a core's caches: theirs is the ceiling of bandwidth"
        )
    return found, notes
