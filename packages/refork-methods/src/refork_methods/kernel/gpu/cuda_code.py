"""A GPU kernel's compiled code, as its tools print it: the assembler's report, and the disassembly.

``nvcc -cubin -Xptxas -v FILE.cu -o FILE.cubin`` prints the report, ``cuobjdump -sass FILE.cubin`` (or
nvdisasm) the code. Neither needs a GPU.
"""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import final

from refork.errors import BadInput
from refork_methods.kernel.gpu.profiler_exports import named, text_of
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
        # The properties of functions that a kernel calls are listed as well: they are not the kernel's.
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
    chosen = named(kernel, (one.kernel for one in found), name)
    last = [one for one in found if one.kernel == chosen][-1]
    return Signals({"ptxas": last.values}, {"ptxas": tuple(last.lines)})


_FUNCTION = re.compile(r"^\s*(?:Function : (\S+)|\.text\.(\S+):)")
_INSTRUCTION = re.compile(
    r"^\s*/\*([0-9a-f]{4,})\*/\s+\{?\s*(?:@!?U?P[T\d]+\s+)?([A-Z][A-Z0-9_]*)((?:\.\w+)*)"
)
_WIDTH = re.compile(r"\.(64|128|256)(?=\.|$)")
#: Names that say that matrix instructions are meant; ours, a guess by the name.
_MEANT = re.compile(
    r"(?<![a-z])(?:w|wg|h|u)?mma|tensor_?(?:op|core)|hgemm|igemm|gemm_?(?:bf16|fp16|f16|half)", re.IGNORECASE
)

#: Opcode -> its class; what no tool reads is not counted.
_CLASSES = {
    "FFMA": "ffma", "FFMA2": "ffma", "FMUL": "fmul", "FMUL2": "fmul", "FADD": "fadd", "FADD2": "fadd",
    "LDL": "ldl", "STL": "stl", "LDSM": "ldsm", "BAR": "bar", "BRA": "branches", "BRX": "branches",
    "JMP": "branches", "JMX": "branches",
}  # fmt: skip
#: Loads of global memory by their bits; narrower ones count with those of 32.
_LOADS = ("ldg_32", "ldg_64", "ldg_128", "ldg_256")
_CITED, _MOST = ("ldl", "stl", "ldg_32", "ffma", "tensor"), 3


def _class(opcode: str, modifiers: str) -> str:
    """The class of one instruction; empty where it has none."""
    if opcode in ("LDG", "LDGSTS"):
        width = _WIDTH.search(modifiers)
        return f"ldg_{width[1] if width else '32'}"
    return "tensor" if opcode.endswith("MMA") else _CLASSES.get(opcode, "")


def functions(text: str, *, name: str = "disassembly") -> dict[str, list[str]]:
    """The instruction lines of each kernel.

    Raises:
        BadInput: there is none.
    """
    found: dict[str, list[str]] = {}
    current: list[str] | None = None
    for line in text.splitlines():
        head = _FUNCTION.match(line)
        if head is not None:
            current = found.setdefault(head[1] or head[2], [])
        elif current is not None and _INSTRUCTION.match(line):
            current.append(line.split(";")[0].strip())
    if not any(found.values()):
        raise BadInput(
            "no instruction in it", where=name, hint="cuobjdump -sass FILE.cubin, or nvdisasm FILE.cubin"
        )
    return {kernel: lines for kernel, lines in found.items() if lines}


def sass_signals(text: str, kernel: str | None = None, *, name: str = "disassembly") -> Signals:
    """Counts by class of the kernel that is named (mangled, whole or a part), or of the only one.

    That matrix instructions were meant is told by fragments loaded for them (LDSM), or the kernel's name.

    Raises:
        BadInput: no instruction, or no kernel, or several, answer to the name.
    """
    found = functions(text, name=name)
    chosen = named(kernel, found, name)
    lines = found[chosen]
    # A class that does not occur is a counted 0.
    counts: Counter[str] = Counter(dict.fromkeys((*_CLASSES.values(), *_LOADS, "tensor"), 0))
    cited: dict[str, list[str]] = {one: [] for one in _CITED}
    for line in lines:
        match = _INSTRUCTION.match(line)
        assert match is not None  # functions() kept only these
        one = _class(match[2], match[3])
        if one:
            counts[one] += 1
        if one in cited and len(cited[one]) < _MOST:
            cited[one].append(line)
    values = {one: float(count) for one, count in counts.items()} | {"instructions": float(len(lines))}
    guessed = counts["ldsm"] > 0 or _MEANT.search(chosen) is not None
    values["matrix_meant"] = float(guessed)
    return Signals({"sass": values}, {"sass": tuple(line for one in cited.values() for line in one)})


def read_code(path: Path, kernel: str | None = None) -> Signals:
    """Signals of a file that holds a report or a disassembly.

    Raises:
        BadInput: it holds neither, or no kernel, or several, answer to the name.
    """
    text = text_of(path)
    read = ptxas_signals if _ENTRY.search(text) else sass_signals
    return read(text, kernel, name=path.name)
