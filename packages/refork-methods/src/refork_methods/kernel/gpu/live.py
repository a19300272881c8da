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
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import final

from refork.errors import BadInput, CannotDo
from refork.sandbox.jailed import Bounds, JailResult
from refork_methods.kernel.cpu import toolchain
from refork_methods.kernel.gpu.ptxas import ptxas_signals
from refork_methods.kernel.gpu.sass import sass_signals
from refork_methods.kernel.signals import Signals

#: Where Python packages (CUDA's own, Triton) keep disassemblers, below site-packages.
_PACKAGED = ("nvidia/*/bin", "triton/backends/nvidia/bin", "triton/third_party/cuda/bin")
_DISASSEMBLERS = {"nvdisasm": (), "cuobjdump": ("-sass",)}
#: The toolkit's programs map much memory, and are many.
_BOUNDS = Bounds(memory=6 << 30, kept=32 << 20, output=32 << 20, processes=64)
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
    matrix_meant: bool | None = None,
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
    return report | sass_signals(made.disassembly, kernel, matrix_meant=matrix_meant, name=source.name)
