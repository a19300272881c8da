"""Machine code of GPU kernels, as ``cuobjdump -sass`` or ``nvdisasm`` print it: counts by class.

Counts are of the program text, not of what runs: a loop's body counts once.
"""

from __future__ import annotations

import re
from collections import Counter

from refork.errors import BadInput
from refork_methods.kernel.signals import Signals

_FUNCTION = re.compile(r"^\s*(?:Function : (\S+)|\.text\.(\S+):)")
_INSTRUCTION = re.compile(
    r"^\s*/\*([0-9a-f]{4,})\*/\s+\{?\s*(?:@!?U?P[T\d]+\s+)?([A-Z][A-Z0-9_]*)((?:\.\w+)*)"
)
_WIDTH = re.compile(r"\.(64|128|256)(?=\.|$)")
#: Names that say that matrix instructions are meant; ours, a guess by the name.
_MEANT = re.compile(
    r"(?<![a-z])(?:w|wg|h|u)?mma|tensor_?(?:op|core)|hgemm|igemm|gemm_?(?:bf16|fp16|f16|half)", re.IGNORECASE
)

#: Class -> its opcodes, for those that are one class whole.
_OPCODES: dict[str, frozenset[str]] = {
    "ffma": frozenset(("FFMA", "FFMA2")),
    "fmul": frozenset(("FMUL", "FMUL2")),
    "fadd": frozenset(("FADD", "FADD2")),
    "ldl": frozenset(("LDL",)),
    "stl": frozenset(("STL",)),
    "lds": frozenset(("LDS",)),
    "ldsm": frozenset(("LDSM",)),
    "sts": frozenset(("STS",)),
    "bar": frozenset(("BAR",)),
    "mufu": frozenset(("MUFU",)),
    "branches": frozenset(("BRA", "BRX", "JMP", "JMX")),
}
_GLOBAL = {"LDG": "ldg", "LDGSTS": "ldg", "STG": "stg"}
#: Matrix instructions by the kind of their numbers; the rest with MMA at their end count as tensor only.
_MATRIX = {
    "HMMA": "hmma",
    "HGMMA": "wgmma",
    "QGMMA": "wgmma",
    "IGMMA": "wgmma",
    "IMMA": "imma",
    "DMMA": "dmma",
}
_WIDTHS = ("32", "64", "128", "256")
CLASSES: tuple[str, ...] = (
    *_OPCODES,
    *(f"{kind}_{width}" for kind in ("ldg", "stg") for width in _WIDTHS),
    *dict.fromkeys(_MATRIX.values()),
    "tensor",
)
_CITED, _MOST = ("ldl", "stl", "ldg_32", "ffma", "tensor"), 3


def _classes(opcode: str, modifiers: str) -> list[str]:
    """The classes of one instruction; narrower accesses than 32 bits count with those of 32."""
    if opcode in _GLOBAL:
        width = _WIDTH.search(modifiers)
        return [f"{_GLOBAL[opcode]}_{width[1] if width else '32'}"]
    if opcode.endswith("MMA"):
        return ["tensor", *([_MATRIX[opcode]] if opcode in _MATRIX else [])]
    return [name for name, opcodes in _OPCODES.items() if opcode in opcodes]


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


def sass_signals(
    text: str, kernel: str | None = None, *, matrix_meant: bool | None = None, name: str = "disassembly"
) -> Signals:
    """Counts by class of the kernel that is named (mangled, whole or a part), or of the only one.

    ``matrix_meant`` says whether matrix instructions were intended; where it is None, fragments loaded for
    them (LDSM) or the kernel's name tell.

    Raises:
        BadInput: no instruction, or no kernel, or several, answer to the name.
    """
    found = functions(text, name=name)
    fitting = [one for one in found if kernel in {None, one}] or [
        one for one in found if kernel and kernel in one
    ]
    if len(fitting) != 1:
        raise BadInput(
            f"{len(fitting)} kernels answer to {kernel or 'no name'}", where=name,
            hint="name one of: " + "; ".join(fitting or found),
        )  # fmt: skip
    lines = found[fitting[0]]
    counts: Counter[str] = Counter(dict.fromkeys(CLASSES, 0))
    cited: dict[str, list[str]] = {one: [] for one in _CITED}
    for line in lines:
        match = _INSTRUCTION.match(line)
        assert match is not None  # functions() kept only these
        for one in _classes(match[2], match[3]):
            counts[one] += 1
            if one in cited and len(cited[one]) < _MOST:
                cited[one].append(line)
    values = {one: float(count) for one, count in counts.items()} | {"instructions": float(len(lines))}
    guessed = counts["ldsm"] > 0 or _MEANT.search(fitting[0]) is not None
    values["matrix_meant"] = float(guessed if matrix_meant is None else matrix_meant)
    return Signals({"sass": values}, {"sass": tuple(line for one in cited.values() for line in one)})
