"""CUDA sources compiled here, and their code read: the assembler's report, the disassembly where it can be.

Needs nvcc, but no GPU. A disassembler (nvdisasm or cuobjdump) is looked for on PATH, beside nvcc, under
CUDA_HOME, and in Python packages that bring one; without it, the report alone is read.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sysconfig
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import final

from ramify.core.errors import BadInput, CannotDo
from ramify.discover.kernel.gpu.ptxas import ptxas_signals
from ramify.discover.kernel.gpu.sass import sass_signals
from ramify.discover.kernel.signals import Signals

#: Where Python packages (CUDA's own, Triton) keep disassemblers, below site-packages.
_PACKAGED = ("nvidia/*/bin", "triton/backends/nvidia/bin", "triton/third_party/cuda/bin")
_DISASSEMBLERS = {"nvdisasm": (), "cuobjdump": ("-sass",)}
_NO_NVCC = "install the CUDA toolkit and put nvcc on PATH, or diagnose an export of ncu, nsys or ptxas"


@final
@dataclass(frozen=True, slots=True)
class Compiled:
    """What compiling gave: the assembler's report, and the disassembly or why there is none."""

    report: str
    disassembly: str | None
    why_none: str = ""


def _run(command: Sequence[str], seconds: float) -> subprocess.CompletedProcess[str]:
    try:
        return subprocess.run(command, capture_output=True, text=True, timeout=seconds, check=False)
    except subprocess.TimeoutExpired as error:
        raise CannotDo(
            f"{Path(command[0]).name} took more than {seconds:g} s", hint="compile a smaller file"
        ) from error


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
    with tempfile.TemporaryDirectory(prefix="ramify-cuda-") as folder:
        cubin = Path(folder) / "code.cubin"
        command = [
            nvcc,
            "-cubin",
            "-Xptxas",
            "-v",
            f"-arch={architecture}",
            *options,
            "-o",
            str(cubin),
            str(source),
        ]
        done = _run(command, seconds)
        if done.returncode != 0 or not cubin.is_file():
            message = "\n".join((done.stderr or done.stdout).strip().splitlines()[:8])
            raise BadInput(
                f"it does not compile:\n{message}", where=source.name, hint=f"nvcc -arch={architecture}"
            )
        disassembler = find_disassembler(nvcc)
        if disassembler is None:
            return Compiled(done.stderr, None, "neither nvdisasm nor cuobjdump is installed here")
        listed = _run([*disassembler, str(cubin)], seconds)
        if listed.returncode != 0:
            why = (listed.stderr.strip().splitlines() or ["no message"])[0]
            return Compiled(done.stderr, None, f"{Path(disassembler[0]).name} failed: {why}")
        return Compiled(done.stderr, listed.stdout)


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
