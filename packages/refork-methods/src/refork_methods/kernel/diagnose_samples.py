"""Where the time goes by samples of the processor's clock, and how often pages are mapped in calls.

Both compare a run of one call with one of many, so that what the program does before its calls counts for
nothing. Source of the signals: arXiv 2606.26453 uses a GPU's in their place.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import tempfile
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from refork.errors import BadInput, CannotDo
from refork_methods.kernel.bench import Driver
from refork_methods.kernel.cpu import metrics as m
from refork_methods.kernel.cpu import perf
from refork_methods.kernel.cpu.build import LISTED, read_whole, run_tool
from refork_methods.kernel.signals import Signals

#: Samples a second; perf is allowed more nearly everywhere.
RATE = 4000
#: Seconds of sampled calls that are aimed at.
AIM = 0.25
MOST_CALLS = 100_000
_SCRIPT = re.compile(r"^\s*([0-9a-f]+)\s+(\S+)")
_SECONDS = 30.0


def calls_for(seconds: float, most: int = MOST_CALLS) -> int:
    """How many calls to sample of a kernel that takes so long."""
    return max(2, min(most, round(AIM / max(seconds, 1e-9))))


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
                places = _places(Path(folder) / "many", many.symbol)
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
    _said(("perf", "record", "-q", "-F", str(RATE), "-e", "cpu-clock", "-o", str(out), "--", *driver.argv))
    return Counter(name for _, name in _script(out))


def _script(recorded: Path) -> list[tuple[int, str]]:
    """Address and symbol of each sample."""
    text = _said(("perf", "script", "--no-demangle", "-i", str(recorded), "-F", "ip,sym"))
    return [(int(found[1], 16), found[2]) for line in text.splitlines() if (found := _SCRIPT.match(line))]


def _places(recorded: Path, symbol: str) -> Counter[int]:
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
    once, often = (_counted(one, folder) for one in (few, many))
    if once is None or often is None:
        raise BadInput("this machine does not count page faults")
    more = max(0.0, often - once)
    return {m.FAULTS.name: more}, [f"{more:.0f} page-faults in the calls, {once:.0f} before them"]


def _counted(driver: Driver, folder: Path) -> float | None:
    out = folder / "stat"
    _said(("perf", "stat", "-x", ",", "-e", "page-faults", "-o", str(out), "--", *driver.argv))
    return perf.parse_stat(out.read_text())[0].get(m.FAULTS.name)


def _said(command: Sequence[str]) -> str:
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
