"""What perf samples of a kernel's calls: time outside of it and on stack accesses, and page faults."""

from __future__ import annotations

import re
import shutil
import subprocess
import tempfile
from collections import Counter
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from refork.errors import BadInput, CannotDo
from refork_methods.kernel.cpu import metrics as m
from refork_methods.kernel.cpu.build import LISTED, read_whole, run_tool
from refork_methods.kernel.cpu.objdump import functions, stack_accesses
from refork_methods.kernel.signals import Signals

if TYPE_CHECKING:
    from refork_methods.kernel.bench import Driver

#: Samples a second; perf is allowed more nearly everywhere.
RATE = 4000
#: Seconds of sampled calls that are aimed at, and the most calls.
AIM, MOST_CALLS = 0.25, 100_000
_SCRIPT = re.compile(r"^\s*([0-9a-f]+)\s+(\S+)")
_SECONDS = 30.0


def calls_for(seconds: float) -> int:
    """How many calls to sample of a kernel that takes so long."""
    return max(2, min(MOST_CALLS, round(AIM / max(seconds, 1e-9))))


def repeated(driver: Driver, calls: int) -> Driver:
    """The same program with another number of calls, which is its last argument."""
    return replace(driver, argv=(*driver.argv[:-1], str(calls)))


def sampled(driver: Driver, calls: int, *, stack: bool, output_bytes: float) -> Signals:
    """Signals of perf on a program that calls the kernel once, and ``calls`` times more.

    What the first run counts is taken off the second, so that starting and drawing inputs fall out.
    ``stack`` asks which samples lie on spilled registers. Where perf is not installed or not permitted, its
    signals are absent, with why.
    """
    if shutil.which("perf") is None:
        return Signals(absent={"perf": "perf is not installed"})
    few, many = repeated(driver, 1), repeated(driver, 1 + calls)
    values: dict[str, float] = {}
    lines: list[str] = []
    why: list[str] = []
    with tempfile.TemporaryDirectory(prefix="refork-perf-") as folder:
        # The last step reads what the first one recorded.
        for step in (_samples, _faults, *([_on_stack] if stack else [])):
            try:
                found, said = step(few, many, Path(folder))
                values |= found
                lines += said
            except (BadInput, CannotDo) as error:
                why.append(error.what)
    if not values:
        return Signals(absent={"perf": "; ".join(why)})
    timing = {m.TIMED_CALLS.name: float(calls), m.OUTPUT_BYTES.name: output_bytes}
    return Signals({"perf": values, "timing": timing}, {"perf": tuple(lines)})


def _samples(few: Driver, many: Driver, folder: Path) -> tuple[dict[str, float], list[str]]:
    """The share of the calls' samples that lie in the kernel."""
    counts = []
    for driver, name in ((few, "few"), (many, "many")):
        out = str(folder / name)
        _perf("record", "-q", "-F", str(RATE), "-e", "cpu-clock", "-o", out, "--", *driver.argv)
        counts.append(Counter(symbol for _, symbol in _script(folder / name)))
    # Counter drops what comes out below 0: symbols that the longer run met less often by chance.
    calls = counts[1] - counts[0]
    total = calls.total()
    if not total:
        raise BadInput("perf took no samples of the calls")
    inside = sum(count for name, count in calls.items() if name.split(".")[0] == many.symbol)
    lines = [f"{count / total:.2%} of {total} samples [.] {name}" for name, count in calls.most_common(5)]
    return {m.SAMPLES.name: float(total), m.INSIDE.name: inside / total}, lines


def _script(recorded: Path) -> list[tuple[int, str]]:
    """Address and symbol of each sample; without a symbol it is ``[unknown]``."""
    text = _perf("script", "--no-demangle", "-i", str(recorded), "-F", "ip,sym")
    return [(int(found[1], 16), found[2]) for line in text.splitlines() if (found := _SCRIPT.match(line))]


def _on_stack(few: Driver, many: Driver, folder: Path) -> tuple[dict[str, float], list[str]]:
    """The share of the longer run's samples that lie on spilled registers."""
    # Addresses in our programs are those of the file.
    places = Counter(at for at, name in _script(folder / "many") if name.split(".")[0] == many.symbol)
    # Not perf's own listing, which reads the sources that a program names, outside of a jail.
    command = ("objdump", "-d", "--no-show-raw-insn", "program")
    files = {"program": read_whole(many.path)}
    listing = run_tool(command, files, (), seconds=_SECONDS, where="objdump", bounds=LISTED).out
    share, hottest = on_stack(places, listing.decode(errors="replace"), many.symbol)
    return share, list(hottest)


def on_stack(
    samples: Mapping[int, int], listing: str, entry: str
) -> tuple[dict[str, float], tuple[str, ...]]:
    """Share of the samples in ``entry`` and its copies that lie on stack accesses; its hottest lines.

    ``samples``: how many at each address of a program; ``listing``: its disassembly.

    Raises:
        BadInput: no sample lies in it.
    """
    bodies = [body for name, body in functions(listing).items() if name.split(".")[0] == entry]
    total = sum(samples.get(one.address, 0) for body in bodies for one in body)
    if not total:
        raise BadInput(f"no samples of instructions of {entry}", where="perf script")
    stack = sum(samples.get(one.address, 0) for body in bodies for one in stack_accesses(body))
    rows = [(samples.get(one.address, 0) / total, one.line) for body in bodies for one in body]
    hottest = sorted(rows, key=lambda row: -row[0])[:3]
    return {m.STACK_SHARE.name: stack / total}, tuple(
        f"{100 * share:.2f}% {line.partition(':')[2].strip()}" for share, line in hottest
    )


def _faults(few: Driver, many: Driver, folder: Path) -> tuple[dict[str, float], list[str]]:
    """Page faults of the calls alone."""
    counts = []
    for driver in (few, many):
        out = folder / "stat"
        _perf("stat", "-x", ",", "-e", "page-faults", "-o", str(out), "--", *driver.argv)
        counts.append(parse_stat(out.read_text()))
    once, often = counts
    more = max(0.0, often - once)
    return {m.FAULTS.name: more}, [f"{more:.0f} page-faults in the calls, {once:.0f} before them"]


def parse_stat(text: str) -> float:
    """Page faults of ``perf stat -x , -e page-faults``.

    Raises:
        BadInput: no such event in it, or the machine does not count them.
    """
    for line in text.splitlines():
        fields = line.split(",")
        # It is page-faults:u where perf may look at user space alone.
        if len(fields) > 2 and fields[2].split(":")[0] in ("page-faults", "faults", "minor-faults"):
            if fields[0].startswith("<not "):
                raise BadInput("this machine does not count page faults")
            if fields[0].isdigit():
                return float(fields[0])
    raise BadInput("no count of page faults", where="perf stat", hint="perf stat -x , -e page-faults")


def _perf(*arguments: str) -> str:
    """What perf printed.

    Raises:
        BadInput: it failed, with its first line.
    """
    try:
        done = subprocess.run(
            ("perf", *arguments), stdin=subprocess.DEVNULL, capture_output=True, text=True, errors="replace",
            timeout=_SECONDS, check=False,
        )  # fmt: skip
    except subprocess.TimeoutExpired:
        raise BadInput(f"perf {arguments[0]} took over {_SECONDS:g} s") from None
    if done.returncode:
        said = [line for line in done.stderr.splitlines() if line.strip()]
        why = said[0].strip() if said else f"ended with {done.returncode}"
        raise BadInput(f"perf {arguments[0]}: {why}")
    return done.stdout
