"""A kernel's source compiled to an object, with what gcc says of its vectoriser."""

from __future__ import annotations

import hashlib
import os
import re
import shutil
import signal
import subprocess
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import final

from ramify.core.errors import BadInput, CannotDo

#: What a kernel is compiled with unless said otherwise.
FLAGS = ("-O3", "-march=native")
#: What valgrind 3.19 can run and count: it knows no AVX-512, and takes a fused multiply-add with an operand
#: in memory for one read per number.
PROFILED = ("-march=haswell", "-mno-fma")
COMPILERS = {".c": "gcc", ".cc": "g++", ".cpp": "g++", ".cxx": "g++"}
_FLAG = re.compile(
    r"-(?:O(?:[0-3sg]|fast)?|[mf][a-z][\w.,=+-]*|std=[\w+]+|g[0-3]?|W[a-z][\w=-]*|[DU]\w+(?:=[\w.+-]*)?)"
)
#: Flags that load code or write files elsewhere.
_BARRED = re.compile(
    r"-(?:fplugin|fdump|fopt-info|fprofile|ftest-coverage|fsave|fcallgraph|fstack-usage|fdiagnostics|flto|fsyntax-only|Wl,|Wa,|Wp,)"
)
_ERROR = re.compile(r"^(.*?(?:fatal )?error: .*)$", re.MULTILINE)


@final
@dataclass(frozen=True, slots=True)
class Built:
    """An object file, the vectoriser's records (empty without -O2 or -O3), and the command."""

    path: Path
    records: str
    command: tuple[str, ...]


def compile_object(
    source: Path, folder: Path, *, flags: Sequence[str] = FLAGS, seconds: float = 60.0
) -> Built:
    """Compile one C or C++ file to an object in ``folder``, named by the digest of source and flags.

    Safe to run several times at once. The compiler reads what the source includes: give it no source that
    may not read what it can.

    Raises:
        BadInput: no such file, a flag that is not allowed, code that does not compile (the first error).
        CannotDo: no compiler for it on this machine.
    """
    if not source.is_file():
        raise BadInput(f"no file {source}", where="kernel build")
    if source.suffix not in COMPILERS:
        raise BadInput(f"{source.name} is no C or C++ file", where="kernel build", hint=", ".join(COMPILERS))
    checked = check_flags(flags)
    compiler = shutil.which(COMPILERS[source.suffix])
    if compiler is None:
        raise CannotDo(f"no {COMPILERS[source.suffix]} here", where="kernel build", hint="install gcc")
    folder.mkdir(parents=True, exist_ok=True)
    key = hashlib.sha256("\0".join([source.read_text(), *checked]).encode()).hexdigest()[:16]
    path = folder / f"{source.stem}-{key}.o"
    with tempfile.TemporaryDirectory(dir=folder) as scratch:
        made, said = Path(scratch) / "out.o", Path(scratch) / "records.txt"
        command = (compiler, *checked, "-g", f"-fopt-info-vec-all={said}", "-c", str(source), "-o", str(made))
        _run(command, seconds, source)
        records = said.read_text() if said.exists() else ""
        made.replace(path)
    return Built(path, records, (Path(compiler).name, *checked, "-g", "-c", source.name))


def check_flags(flags: Sequence[str]) -> tuple[str, ...]:
    """Flags of optimisation, target, language, warnings and macros.

    Raises:
        BadInput: another flag, such as one that loads a plug-in or names a file.
    """
    for flag in flags:
        if not _FLAG.fullmatch(flag) or _BARRED.match(flag):
            raise BadInput(f"flag {flag}", where="kernel build", hint="-O, -m, -f, -std, -W, -D and -U flags")
    return tuple(flags)


def for_profiling(flags: Sequence[str]) -> tuple[str, ...]:
    """The same flags for a processor that valgrind simulates."""
    target = re.compile(r"-m(?:arch=|tune=|avx512|prefer-vector-width=512|avx10|fma)")
    return (*(flag for flag in flags if not target.match(flag)), *PROFILED)


def _run(command: Sequence[str], seconds: float, source: Path) -> None:
    """Run the compiler; its first error becomes the message."""
    process = subprocess.Popen(
        command,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
        errors="replace",
        env=os.environ | {"LC_ALL": "C"},
        start_new_session=True,
    )
    try:
        _, said = process.communicate(timeout=seconds)
    except BaseException as stopped:
        # gcc is a driver: its children hold the pipe open unless they end with it.
        os.killpg(process.pid, signal.SIGKILL)
        process.communicate()
        if not isinstance(stopped, subprocess.TimeoutExpired):
            raise
        raise BadInput(f"{source.name} took over {seconds:g} s to compile", where="kernel build") from None
    if process.returncode:
        first = _ERROR.search(said)
        lines = said.strip().splitlines() or [f"gcc ended with {process.returncode}"]
        raise BadInput((first[1] if first else lines[-1]).strip(), where=f"compiling {source.name}")
