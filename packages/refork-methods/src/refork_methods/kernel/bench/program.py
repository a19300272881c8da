"""Programs made of a kernel's object: the process that the bench runs it in, and the one for profilers."""

from __future__ import annotations

import hashlib
import shutil
from dataclasses import dataclass
from importlib import resources
from pathlib import Path
from typing import final

from refork.errors import BadInput, CannotDo
from refork_methods.kernel.bench.process import PRECISE
from refork_methods.kernel.bench.screen import RefusedError, screen_object, screen_source
from refork_methods.kernel.cpu.build import (
    COMPILERS,
    Built,
    OpenedError,
    check_flags,
    compile_object,
    run_tool,
    write_whole,
)
from refork_methods.kernel.problem import Problem

# All addresses are found at the start and then read-only: no table of them is left to be written over.
_LINK = ("-no-pie", "-Wl,-z,now", "-Wl,-z,relro", "-Wl,-z,noexecstack", "-lm")


@final
@dataclass(frozen=True, slots=True)
class Program:
    """A program, the entry's symbol in it, and the kernel's object."""

    path: Path
    symbol: str
    built: Built


def call_source(problem: Problem, symbol: str, *, precise: bool = False) -> str:
    """C that calls the entry with one row of the table: offsets of arrays, then scalars of 16 bytes each."""
    kinds, told = [], []
    arrays = sum(one.array for one in problem.arguments) + (problem.returns is not None)
    array = scalar = 0
    for one in problem.arguments:
        ctype = _spelled(one.ctype, precise)
        if one.array:
            kinds.append(f"{ctype} *")
            told.append(f"({ctype} *)(base + row[{array}])")
            array += 1
        else:
            kinds.append(ctype)
            told.append(f"*(const {ctype} *)(row + {arrays + 2 * scalar})")
            scalar += 1
    result = "void" if problem.returns is None else _spelled(problem.returns, precise)
    kept = "" if problem.returns is None else f"*({result} *)(base + row[{array}]) = "
    return (
        "#include <stdbool.h>\n#include <stddef.h>\n#include <stdint.h>\n#include <sys/types.h>\n"
        # Bound by asm: C could not spell the mangled symbol of a C++ entry.
        f'extern {result} refork_entry({", ".join(kinds) or "void"}) __asm__("{symbol}");\n'
        "void refork_call(char *base, const uint64_t *row) {\n"
        f"    {kept}refork_entry({', '.join(told)});\n}}\n"
    )


def _spelled(ctype: str, precise: bool) -> str:
    return PRECISE.get(ctype, ctype) if precise else ctype


@final
class Programs:
    """Makes programs in a folder; what is there already is used again."""

    def __init__(self, problem: Problem, folder: Path, seconds: float = 60.0) -> None:
        self.problem, self.folder, self.seconds = problem, folder, seconds
        for tool in ("gcc", "objcopy"):
            if shutil.which(tool) is None:
                raise CannotDo(f"no {tool} here", where="kernel build", hint="install gcc and binutils")
        folder.mkdir(parents=True, exist_ok=True)
        self._known: dict[tuple[object, ...], Program] = {}

    def make(
        self, source: str, flags: tuple[str, ...], *, precise: bool = False, main: str = "host.c"
    ) -> Program:
        """Compile, screen and link a source with the bench's ``main``.

        Raises:
            BadInput: it does not compile or link, or lacks the entry. RefusedError: see ``screen``, or it had
                the compiler open what is no header. CannotDo: this system cannot hold the compiler back.
        """
        known = self._known.get((source, flags, precise, main))
        if known is not None and known.path.exists():
            return known
        screen_source(source)
        checked = check_flags(flags)
        kept = self._cached_source(source, self.problem.suffix)
        try:
            built = compile_object(kept, self.folder, flags=checked, seconds=self.seconds)
        except OpenedError as error:
            raise RefusedError("reads-files", error.what) from None
        symbol = screen_object(built.path, self.problem.entry)
        call = self._trusted("call", call_source(self.problem, symbol, precise=precise))
        host = self._trusted(main, resources.files(__package__).joinpath("native", main).read_text())
        # By what is linked: another compiler makes another object of the same source and flags.
        made_of = b"\0".join(hashlib.sha256(one.read_bytes()).digest() for one in (built.path, call, host))
        key = hashlib.sha256(made_of).hexdigest()[:16]
        path = self.folder / f"run-{key}"
        if not path.exists():
            self._link(path, built.path, symbol, (call, host))
        made = self._known[source, flags, precise, main] = Program(path, symbol, built)
        return made

    def _link(self, path: Path, kernel: Path, symbol: str, ours: tuple[Path, ...]) -> None:
        linker = COMPILERS[self.problem.suffix]
        # Only the entry stays in sight, so that no other name of the kernel takes a library's place.
        alone = self._made(
            ["objcopy", f"--keep-global-symbol={symbol}", "kernel.o", "alone.o"],
            {"kernel.o": kernel.read_bytes()}, "alone.o",
        )  # fmt: skip
        files = {one.name: one.read_bytes() for one in ours} | {"alone.o": alone}
        made = self._made([linker, *files, *_LINK, "-o", "run"], files, "run")
        write_whole(path, made, mode=0o755)

    def _made(self, command: list[str], files: dict[str, bytes], wanted: str) -> bytes:
        """The file that a tool makes of others."""
        where = f"kernel build, {command[0]}"
        done = run_tool(command, files, (wanted,), seconds=self.seconds, where=where)
        if wanted not in done.files:
            raise BadInput("it made no file", where=where)
        return done.files[wanted]

    def _cached_source(self, source: str, suffix: str) -> Path:
        folder = self.folder / "sources"
        folder.mkdir(exist_ok=True)
        path = folder / f"{hashlib.sha256(source.encode()).hexdigest()[:16]}{suffix}"
        if not path.exists():
            write_whole(path, source.encode())
        return path

    def _trusted(self, name: str, source: str) -> Path:
        path = self.folder / f"{Path(name).stem}-{hashlib.sha256(source.encode()).hexdigest()[:16]}.o"
        if not path.exists():
            command = ["gcc", "-O2", "-std=gnu11", "-c", "ours.c", "-o", "ours.o"]
            write_whole(path, self._made(command, {"ours.c": source.encode()}, "ours.o"))
        return path
