"""What perf sampled: the share of a kernel's samples on stack accesses, and page faults."""

from __future__ import annotations

from collections.abc import Mapping

from refork.errors import BadInput
from refork_methods.kernel.cpu import metrics as m
from refork_methods.kernel.cpu.objdump import functions, stack_accesses


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


def parse_stat(text: str) -> tuple[dict[str, float], tuple[str, ...]]:
    """Page faults of ``perf stat -x , -e page-faults``; absent where the machine does not count them.

    Raises:
        BadInput: no such event in it.
    """
    for line in text.splitlines():
        fields = line.split(",")
        if len(fields) > 2 and fields[2].split(":")[0] in ("page-faults", "faults", "minor-faults"):
            if fields[0].startswith("<not "):
                return {}, ()
            if fields[0].isdigit():
                return {m.FAULTS.name: float(fields[0])}, (line.strip(),)
    raise BadInput("no count of page faults", where="perf stat", hint="perf stat -x , -e page-faults")
