"""What perf sampled: the share of samples in the kernel, on stack accesses in it, and page faults."""

from __future__ import annotations

import re

from ramify.core.errors import BadInput
from ramify.discover.kernel.cpu import metrics as m
from ramify.discover.kernel.cpu.objdump import is_stack

_SAMPLES = re.compile(r"^# Samples: +([\d.]+)([KMG]?) +of event")
_REPORT = re.compile(r"^ +(\d+\.\d+)% .*\[[.k]\] +(\S+)")
_ANNOTATE = re.compile(r"^ +(\d+\.\d+) +: +[0-9a-f]+: +(\S.*)$")
_TIMES = {"": 1, "K": 1e3, "M": 1e6, "G": 1e9}


def parse_report(text: str, entry: str) -> tuple[dict[str, float], tuple[str, ...]]:
    """Share of the samples in ``entry`` and its copies, of ``perf report --stdio``; the five largest lines.

    Raises:
        BadInput: no samples, or shares of more than all.
    """
    samples = next((found for line in text.splitlines() if (found := _SAMPLES.match(line))), None)
    rows = [(float(row[1]), row[2], row[0]) for line in text.splitlines() if (row := _REPORT.match(line))]
    if samples is None or not rows:
        raise BadInput("no samples", where="perf report", hint="perf report --stdio --sort symbol")
    if sum(share for share, _, _ in rows) > 100 + 0.01 * len(rows):
        raise BadInput("the shares are more than all", where="perf report", hint="leave --children out")
    inside = sum(share for share, name, _ in rows if name.split(".")[0] == entry) / 100
    values = {m.SAMPLES.name: float(samples[1]) * _TIMES[samples[2]], m.INSIDE.name: min(1.0, inside)}
    return values, tuple(line.strip() for _, _, line in rows[:5])


def parse_annotate(text: str) -> tuple[dict[str, float], tuple[str, ...]]:
    """Share of a function's samples on stack accesses, of ``perf annotate --stdio``; its hottest lines.

    Raises:
        BadInput: no annotated instructions.
    """
    rows = [(float(row[1]), row[2].strip()) for line in text.splitlines() if (row := _ANNOTATE.match(line))]
    total = sum(share for share, _ in rows)
    if not total:
        raise BadInput("no annotated instructions", where="perf annotate", hint="perf annotate --stdio")
    frame = any(re.match(r"mov\w* +%rsp,%rbp", code) for _, code in rows)
    stack = sum(share for share, code in rows if is_stack(code, frame) and not code.startswith("lea"))
    hottest = sorted(rows, key=lambda row: -row[0])[:3]
    return {m.STACK_SHARE.name: stack / total}, tuple(f"{share:.2f}% {code}" for share, code in hottest)


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
