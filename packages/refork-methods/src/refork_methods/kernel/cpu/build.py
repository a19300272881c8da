"""A kernel's source compiled to an object, with what gcc says of its vectoriser."""

from __future__ import annotations

import hashlib
import os
import re
import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import final

from refork.errors import BadInput, CannotDo
from refork.sandbox.jailed import Bounds, JailResult
from refork_methods.kernel.cpu import toolchain

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
#: An object of a kernel has some kilobytes; one of this many bytes is read by nobody here.
LARGEST = 8 << 20
#: What a compiler may use.
BOUNDS = Bounds(kept_bytes=LARGEST)
#: What lists the instructions of an object, or models them, prints more than a compiler.
LISTED = replace(BOUNDS, output=16 << 20)
#: A rule of make, as compiler and assembler tell what they opened: words, spaces in them escaped.
_OPENED = re.compile(r"(?:\\[\s\S]|[^\s\\])+")
#: What gcc calls the text that it hands to the assembler.
_ASSEMBLED = re.compile(r"(?:.*/)?cc\w{6}\.s")
#: Its name, and that of the object made of it, where they are told: another in each run.
_TEMPORARY = re.compile(r"\S*/cc\w{6}\.([so])\b")
_ERROR = re.compile(r"^(.*?(?:fatal )?error: .*)$", re.MULTILINE)


@final
@dataclass(frozen=True, slots=True)
class Built:
    """An object file, the vectoriser's records (empty without -O2 or -O3), and the command."""

    path: Path
    records: str
    command: tuple[str, ...]


@final
class OpenedError(BadInput):
    """A source made the compiler or its assembler open what is neither itself nor a header."""


def compile_object(
    source: Path, folder: Path, *, flags: Sequence[str] = FLAGS, seconds: float = 60.0
) -> Built:
    """Compile one C or C++ file to an object in ``folder``, named by the digest of source and flags.

    Safe to run several times at once, and on a source that nobody trusts: the compiler is held in a jail with
    itself, its headers and this file (see ``toolchain``), and what it says that it opened is looked through.

    Raises:
        BadInput: no such file, a flag that is not allowed, code that does not compile (the first error), an
            object that is too large.
        OpenedError: it opened another file. CannotDo: no compiler for it on this machine, or no jail.
    """
    if not source.is_file():
        raise BadInput(f"no file {source}", where="kernel build")
    if source.suffix not in COMPILERS:
        raise BadInput(f"{source.name} is no C or C++ file", where="kernel build", hint=", ".join(COMPILERS))
    checked = check_flags(flags)
    compiler = COMPILERS[source.suffix]
    text = source.read_bytes()
    key = hashlib.sha256(b"\0".join([text, *(one.encode() for one in checked)])).hexdigest()[:16]
    # A name that begins with @ or - means something else to gcc.
    name = source.name if re.match(r"\w", source.name) else f"./{source.name}"
    told = (*checked, "-g", "-fopt-info-vec-all=records.txt", "-MD", "-MF", "opened.d", "-Wa,--MD,opened.asm")
    done = run_tool(
        (compiler, *told, "-c", name, "-o", "out.o"),
        {source.name: text},
        ("out.o", "records.txt", "opened.d", "opened.asm"),
        seconds=seconds, where=f"compiling {source.name}",
    )  # fmt: skip
    _check_opened(source.name, done)
    made = done.files.get("out.o")
    if made is None:
        raise BadInput("it made no object", where=f"compiling {source.name}")
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"{source.stem}-{key}.o"
    write_whole(path, made)
    records = done.files.get("records.txt", b"").decode(errors="replace")
    return Built(path, records, (compiler, *checked, "-g", "-c", source.name))


def run_tool(
    command: Sequence[str],
    files: Mapping[str, bytes],
    wanted: Sequence[str],
    *,
    seconds: float,
    where: str,
    bounds: Bounds = BOUNDS,
) -> JailResult:
    """A tool of the compiler's in its jail, on files by their plain names; it ended with 0.

    Raises:
        BadInput: it failed (its first error), took too long, or made more than it may. CannotDo: it is not
            installed, or this system cannot hold it back.
    """
    try:
        done = toolchain.run(command, files=files, wanted=wanted, bounds=replace(bounds, seconds=seconds))
    except FileNotFoundError:
        raise CannotDo(
            f"no {command[0]} here", where="kernel build", hint="install gcc and binutils"
        ) from None
    if done.ended == "time":
        raise BadInput(f"{command[0]} took over {seconds:g} s", where=where)
    if done.ended == "output":
        raise BadInput(f"{command[0]} prints over {bounds.output} bytes", where=where)
    if done.status:
        said = _TEMPORARY.sub(r"kernel.\1", done.err.decode(errors="replace"))
        first = _ERROR.search(said)
        lines = said.strip().splitlines() or [_ending(command[0], done.status)]
        raise BadInput((first[1] if first else lines[-1]).strip()[:500], where=where)
    if done.ended == "size":
        raise BadInput(f"{command[0]} makes over {bounds.kept_bytes} bytes of {done.too_large}", where=where)
    return done


def _ending(tool: str, status: int) -> str:
    return f"{tool} ended with {status}" if status < 128 else f"{tool} was ended by signal {status - 128}"


def read_whole(path: Path) -> bytes:
    """An object, where it is not too large to be read.

    Raises:
        BadInput: it is.
    """
    if (size := path.stat().st_size) > LARGEST:
        raise BadInput(f"an object of {size} bytes, where {LARGEST} are the most", where="kernel build")
    return path.read_bytes()


def write_whole(path: Path, data: bytes, mode: int = 0o644) -> None:
    """A file that is there whole or not at all, whoever else writes it at the same time."""
    # Builds run in threads too: the process alone does not tell two writers apart.
    made = path.with_name(f"{path.name}.{os.getpid()}-{threading.get_ident()}.tmp")
    made.write_bytes(data)
    made.chmod(mode)
    made.replace(path)


def _check_opened(name: str, done: JailResult) -> None:
    """What compiler and assembler say that they opened, against what they need.

    Raises:
        OpenedError: they opened another file, which is named.
    """
    headers = toolchain.toolchain().headers
    for one in _opened(done.files.get("opened.d", b"")):
        # A name such as HEADERS/../../secret begins like a header's until it is made plain.
        path = os.path.normpath(one)
        if path != name and not any(path.startswith(f"{folder}/") for folder in headers):
            raise OpenedError(f"it opens {path[:200]!r}, which is no header", where=f"compiling {name}")
    # The text that gcc made of the source, which names the source.
    told = _opened(done.files.get("opened.asm", b""))
    texts = [one for one in told if _ASSEMBLED.fullmatch(one)]
    for one in (*(one for one in told if one not in (*texts, name)), *texts[1:]):
        raise OpenedError(f"its assembler opens {one[:200]!r}", where=f"compiling {name}")
    if not texts:
        raise OpenedError("its assembler does not tell what it opened", where=f"compiling {name}")


def _opened(rule: bytes) -> list[str]:
    """The files on the right of a rule of make."""
    joined = rule.decode("utf-8", "surrogateescape").replace("\\\n", " ").partition(": ")[2]
    return [re.sub(r"\\([\s\S])", r"\1", one).replace("$$", "$") for one in _OPENED.findall(joined)]


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
