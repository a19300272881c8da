"""What the assembler says of each kernel's registers, spills and shared memory (``nvcc -Xptxas -v``)."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import final

from refork.errors import BadInput
from refork_methods.kernel.signals import Signals

_ENTRY = re.compile(r"Compiling entry function '([^']+)' for '([^']+)'")
_PROPERTIES = re.compile(r"Function properties for (\S+)")
_STACK = re.compile(r"(\d+) bytes stack frame, (\d+) bytes spill stores, (\d+) bytes spill loads")
_USED = re.compile(r"Used (\d+) registers")
_PARTS = (
    ("shared_static_bytes", re.compile(r"(\d+)(?:\+\d+)? bytes smem")),
    ("barriers", re.compile(r"used (\d+) barriers")),
)


@final
@dataclass(frozen=True, slots=True)
class Resources:
    """One kernel for one architecture, as the assembler reports it."""

    kernel: str
    architecture: str
    values: dict[str, float] = field(default_factory=dict)
    lines: list[str] = field(default_factory=list)


def resources(text: str, *, name: str = "ptxas report") -> list[Resources]:
    """Every entry function of a report, in its order.

    Raises:
        BadInput: no kernel is in it, or one has no line of registers.
    """
    found: list[Resources] = []
    about = ""
    for line in text.splitlines():
        entry, properties, stack = _ENTRY.search(line), _PROPERTIES.search(line), _STACK.search(line)
        used = _USED.search(line)
        if entry is not None:
            found.append(Resources(entry[1], entry[2], lines=[line.strip()]))
            about = entry[1]
        elif properties is not None:
            about = properties[1]
        elif stack is not None and found and about == found[-1].kernel:
            names = ("stack_bytes", "spill_store_bytes", "spill_load_bytes")
            found[-1].values.update(
                {key: float(value) for key, value in zip(names, stack.groups(), strict=True)}
            )
            found[-1].lines.append(line.strip())
        elif used is not None and found and "registers_per_thread" not in found[-1].values:
            found[-1].values["registers_per_thread"] = float(used[1])
            # The report leaves out what is none.
            for key, part in _PARTS:
                hit = part.search(line)
                found[-1].values[key] = float(hit[1]) if hit else 0.0
            found[-1].lines.append(line.strip())
    if not found:
        raise BadInput("no kernel in it", where=name, hint="nvcc -Xptxas -v -cubin FILE.cu")
    for one in found:
        if "registers_per_thread" not in one.values:
            raise BadInput(
                f"no registers of {one.kernel}", where=name, hint="the report is cut off; make it again"
            )
    return found


def ptxas_signals(text: str, kernel: str | None = None, *, name: str = "ptxas report") -> Signals:
    """Signals of the kernel that is named (mangled, whole or a part), or of the only one.

    Of several architectures the last counts.

    Raises:
        BadInput: a damaged report, or no kernel, or several, answer to the name.
    """
    found = resources(text, name=name)
    names = list(dict.fromkeys(one.kernel for one in found))
    fitting = [one for one in names if kernel in {None, one}] or [
        one for one in names if kernel and kernel in one
    ]
    if len(fitting) != 1:
        raise BadInput(
            f"{len(fitting)} kernels answer to {kernel or 'no name'}", where=name,
            hint="name one of: " + "; ".join(fitting or names),
        )  # fmt: skip
    chosen = [one for one in found if one.kernel == fitting[0]][-1]
    return Signals({"ptxas": chosen.values}, {"ptxas": tuple(chosen.lines)})
