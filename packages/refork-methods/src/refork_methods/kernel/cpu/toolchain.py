"""gcc, binutils and what they need, and how they are run: in a jail, as what they read may be a model's.

A compiler reads any file that its source can name, and a source has more ways to name one than a screen of
its text knows. So the tools see themselves, their headers and libraries, and one folder.
"""

from __future__ import annotations

import os
import platform
import re
import shutil
import subprocess
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import final

from refork.sandbox.jailed import Bounds, ExposedPaths, JailResult, exposed, jailed

#: Programs of gcc and binutils, and llvm-mca; those that are not installed are not shown.
TOOLS = ("gcc", "g++", "as", "ld", "objcopy", "objdump", "addr2line", "llvm-mca")
#: What gcc starts.
_BEHIND = ("cc1", "cc1plus", "as", "collect2", "ld", "lto-wrapper", "liblto_plugin.so")
#: What a program is linked of; the folders that these lie in are the libraries.
_LINKED = (
    "crt1.o", "crtbegin.o", "libc.so", "libc.so.6", "libm.so", "libm.so.6", "libgcc.a", "libgcc_s.so.1",
    "libstdc++.so", "libstdc++.so.6",
)  # fmt: skip
_LIBRARY = re.compile(r"(?:=>\s*)?(/\S+) \(0x[0-9a-f]+\)")
_SEARCH = re.compile(r"^#include .* search starts here:$(.*?)^End of search list", re.MULTILINE | re.DOTALL)


@final
@dataclass(frozen=True, slots=True)
class Toolchain:
    """What the tools may see, the folders of headers as gcc names them, and the path that they search."""

    shows: ExposedPaths
    headers: tuple[str, ...]
    search: str


def toolchain() -> Toolchain:
    """Of the tools that are on the path now."""
    return _toolchain_at(os.environ.get("PATH", os.defpath), os.environ.get("LD_LIBRARY_PATH", ""))


def run(
    command: Sequence[str],
    *,
    files: Mapping[str, bytes],
    wanted: Sequence[str] = (),
    bounds: Bounds,
) -> JailResult:
    """A tool by its name, in the jail, on files; see :func:`refork.sandbox.jailed.jailed`.

    Raises:
        CannotDo: this system cannot hold it back. FileNotFoundError: it is not installed.
    """
    program = shutil.which(command[0])
    if program is None:
        raise FileNotFoundError(command[0])
    known = toolchain()
    environment = {"PATH": known.search}
    if libraries := os.environ.get("LD_LIBRARY_PATH"):
        environment["LD_LIBRARY_PATH"] = libraries
    # What a link leads to: the link may lie where the command's user cannot go.
    told = [str(Path(program).resolve()), *command[1:]]
    return jailed(told, known.shows, files=files, wanted=wanted, bounds=bounds, environment=environment)


@lru_cache(maxsize=8)
def _toolchain_at(path: str, libraries: str) -> Toolchain:
    # A part of the cache's key and no more: what ldd answers hangs on it.
    del libraries
    programs = [Path(one).absolute() for name in TOOLS if (one := shutil.which(name, path=path))]
    needed, headers = {str(one) for one in programs}, []
    for name, language in (("gcc", "c"), ("g++", "c++")):
        driver = shutil.which(name, path=path)
        if driver is not None:
            told = _output_of([driver, "-v", "-E", f"-x{language}", os.devnull])
            found = _SEARCH.search(told)
            # gcc indents the folders, and nothing else between these two lines.
            headers += [line.strip() for line in (found[1] if found else "").splitlines() if line[:1] == " "]
            needed |= _behind(told)
    needed |= {one for one in headers if Path(one).is_dir()}
    needed |= _libraries([one for one in needed if os.access(one, os.X_OK) and Path(one).is_file()])
    needed.add("/etc/ld.so.cache")
    if platform.machine() not in ("x86_64", "AMD64"):  # there -march=native reads what the processor is
        needed.add("/proc/cpuinfo")
    search = list(dict.fromkeys(str(one.parent) for one in programs))
    return Toolchain(
        exposed(needed), tuple(dict.fromkeys(map(os.path.normpath, headers))), os.pathsep.join(search)
    )


def _behind(told: str) -> set[str]:
    """What a driver starts, and the folders of what it links, by what it says of its paths."""
    lines = dict(re.findall(r"^(COMPILER_PATH|LIBRARY_PATH)=(.*)$", told, re.MULTILINE))
    programs, libraries = (
        [one for one in lines.get(name, "").split(os.pathsep) if one]
        for name in ("COMPILER_PATH", "LIBRARY_PATH")
    )
    found = {f"{one}/{name}" for one in programs for name in _BEHIND if Path(one, name).is_file()}
    for name in _LINKED:
        first = next((one for one in libraries if Path(one, name).exists()), None)
        if first is not None:  # where it leads as well: a library of the language may lie with the system's
            found |= {str(Path(first)), str(Path(first, name).resolve().parent)}
    return found


def _libraries(programs: Iterable[str]) -> set[str]:
    """Shared libraries that programs load, and what loads them."""
    ldd, told = shutil.which("ldd") or shutil.which("ldd", path=os.defpath), sorted(programs)
    return set(_LIBRARY.findall(_output_of([ldd, *told]))) if ldd and told else set()


def _output_of(command: Sequence[str]) -> str:
    """Both streams of a command of ours, which reads nothing of others'."""
    # In English, since words of it are looked for.
    done = subprocess.run(
        command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
        errors="replace", check=False, timeout=60, env=os.environ | {"LC_ALL": "C"},
    )  # fmt: skip
    return done.stdout
