"""CUDA sources compiled here, and their code read: the assembler's report, the disassembly where it can be.

Needs nvcc, but no GPU. What it starts runs in a jail with the toolkit, gcc and the source alone: a source may
be a stranger's, and can name any file. A disassembler (nvdisasm or cuobjdump) is looked for on PATH, beside
nvcc, under CUDA_HOME, and in Python packages that bring one; without it, the report alone is read.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sysconfig
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import final

from refork.errors import BadInput, CannotDo
from refork.sandbox.jailed import Bounds, JailResult
from refork_methods.kernel.cpu import toolchain
from refork_methods.kernel.gpu.profiler_exports import named
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


def sass_signals(text: str, kernel: str | None = None, *, name: str = "disassembly") -> Signals:
    """Counts by class of the kernel that is named (mangled, whole or a part), or of the only one.

    That matrix instructions were meant is told by fragments loaded for them (LDSM), or the kernel's name.

    Raises:
        BadInput: no instruction, or no kernel, or several, answer to the name.
    """
    found = functions(text, name=name)
    chosen = named(kernel, found, name)
    lines = found[chosen]
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
    guessed = counts["ldsm"] > 0 or _MEANT.search(chosen) is not None
    values["matrix_meant"] = float(guessed)
    return Signals({"sass": values}, {"sass": tuple(line for one in cited.values() for line in one)})


#: Where Python packages (CUDA's own, Triton) keep disassemblers, below site-packages.
_PACKAGED = ("nvidia/*/bin", "triton/backends/nvidia/bin", "triton/third_party/cuda/bin")
_DISASSEMBLERS = {"nvdisasm": (), "cuobjdump": ("-sass",)}
#: The toolkit's programs map much memory, and are many.
_BOUNDS = Bounds(memory=6 << 30, kept_bytes=32 << 20, output=32 << 20, processes=64)
#: What nvcc runs its steps by.
_SHELL = ("/bin/sh", "/dev/urandom")
_NO_NVCC = "install the CUDA toolkit and put nvcc on PATH, or diagnose an export of ncu, nsys or ptxas"


@final
@dataclass(frozen=True, slots=True)
class Compiled:
    """What compiling gave: the assembler's report, and the disassembly or why there is none."""

    report: str
    disassembly: str | None
    why_none: str = ""


def _run(
    command: Sequence[str],
    seconds: float,
    files: dict[str, bytes],
    wanted: Sequence[str],
    more: Sequence[str],
) -> JailResult:
    name = Path(command[0]).name
    bounds = replace(_BOUNDS, seconds=seconds)
    done = toolchain.run(command, files=files, wanted=wanted, bounds=bounds, more=more)
    if done.ended == "time":
        raise CannotDo(f"{name} took more than {seconds:g} s", hint="compile a smaller file")
    if done.ended != "exit":
        raise BadInput(f"{name} makes more than it may of {done.too_large or 'its output'}")
    return done


def _toolkit(nvcc: str) -> str:
    """Where the toolkit lies: nvcc may be a script that calls the real one, which says where it is."""
    told = subprocess.run(
        [nvcc, "--dryrun", "-cubin", "none.cu"], stdin=subprocess.DEVNULL, capture_output=True, text=True,
        errors="replace", check=False, timeout=60,
    ).stderr  # fmt: skip
    found = re.search(r"^#\$ _HERE_=(.+)$", told, re.MULTILINE)
    return str((Path(found[1]) if found else Path(nvcc).resolve().parent).resolve().parent)


def find_disassembler(nvcc: str | None) -> list[str] | None:
    """The command of a disassembler, less its file; None where there is none."""
    folders = [Path(nvcc).resolve().parent] if nvcc else []
    folders += [Path(os.environ[name]) / "bin" for name in ("CUDA_HOME", "CUDA_PATH") if os.environ.get(name)]
    # nvcc may be a script that calls the toolkit's.
    folders += sorted(Path("/usr/local").glob("cuda*/bin"))
    for pattern in _PACKAGED:
        folders += sorted(Path(sysconfig.get_path("purelib")).glob(pattern))
    for name, options in _DISASSEMBLERS.items():
        found = shutil.which(name) or shutil.which(name, path=os.pathsep.join(map(str, folders)))
        if found is not None:
            return [found, *options]
    return None


def compile_cuda(
    source: Path, *, architecture: str = "sm_80", options: Sequence[str] = (), seconds: float = 120.0
) -> Compiled:
    """Compile a CUDA source for one architecture and read its code.

    Raises:
        CannotDo: there is no nvcc, or it takes too long.
        BadInput: no such file, or it does not compile; with the compiler's message.
    """
    nvcc = shutil.which("nvcc")
    if nvcc is None:
        raise CannotDo("nvcc is not installed here", where=source.name, hint=_NO_NVCC)
    if not source.is_file():
        raise BadInput("no such file", where=str(source))
    toolkit = _toolkit(nvcc)
    # The user's own folders of headers, which only the command line can name.
    named = [one[2:] for one in options if one.startswith("-I") and Path(one[2:]).is_dir()]
    told = ("-cubin", "-Xptxas", "-v", f"-arch={architecture}", *options, "-o", "code.cubin", "kernel.cu")
    done = _run(
        (f"{toolkit}/bin/nvcc", *told), seconds, {"kernel.cu": source.read_bytes()}, ("code.cubin",),
        (toolkit, *_SHELL, *named),
    )  # fmt: skip
    report = _text(done.err)
    cubin = done.files.get("code.cubin")
    if done.status != 0 or cubin is None:
        message = "\n".join((report or _text(done.out)).strip().splitlines()[:8])
        message = message.replace("kernel.cu", source.name)
        raise BadInput(
            f"it does not compile:\n{message}", where=source.name, hint=f"nvcc -arch={architecture}"
        )
    disassembler = find_disassembler(nvcc)
    if disassembler is None:
        return Compiled(report, None, "neither nvdisasm nor cuobjdump is installed here")
    listed = _run([*disassembler, "code.cubin"], seconds, {"code.cubin": cubin}, (), (disassembler[0],))
    if listed.status != 0:
        why = (_text(listed.err).strip().splitlines() or ["no message"])[0]
        return Compiled(report, None, f"{Path(disassembler[0]).name} failed: {why}")
    return Compiled(report, _text(listed.out))


def _text(data: bytes) -> str:
    return data.decode(errors="replace")


def cuda_signals(
    source: Path,
    kernel: str | None = None,
    *,
    architecture: str = "sm_80",
    options: Sequence[str] = (),
) -> Signals:
    """Signals of one kernel of a CUDA source: the assembler's report, and counts of instructions.

    Raises:
        CannotDo: there is no nvcc.
        BadInput: it does not compile, or no kernel, or several, answer to the name.
    """
    made = compile_cuda(source, architecture=architecture, options=options)
    report = ptxas_signals(made.report, kernel, name=source.name)
    if made.disassembly is None:
        return Signals(report.values, report.lines, {"sass": made.why_none})
    return report | sass_signals(made.disassembly, kernel, name=source.name)
