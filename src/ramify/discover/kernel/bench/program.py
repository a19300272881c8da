"""Programs made of a kernel's object: the process that the bench runs it in, and the one for profilers."""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import tempfile
import threading
from dataclasses import dataclass
from importlib import resources
from pathlib import Path
from typing import final

from ramify.core.errors import BadInput, CannotDo
from ramify.discover.kernel.bench.layout import PRECISE
from ramify.discover.kernel.bench.screen import screen_object, screen_source
from ramify.discover.kernel.cpu.build import COMPILERS, Built, check_flags, compile_object
from ramify.discover.kernel.problem import Problem

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
        f'extern {result} ramify_entry({", ".join(kinds) or "void"}) __asm__("{symbol}");\n'
        "void ramify_call(char *base, const uint64_t *row) {\n"
        f"    {kept}ramify_entry({', '.join(told)});\n}}\n"
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
            BadInput: it does not compile or link, or lacks the entry. RefusedError: see ``screen``.
        """
        known = self._known.get((source, flags, precise, main))
        if known is not None and known.path.exists():
            return known
        screen_source(source)
        checked = check_flags(flags)
        built = compile_object(
            self._kept(source, self.problem.suffix), self.folder, flags=checked, seconds=self.seconds
        )
        symbol = screen_object(built.path, self.problem.entry)
        call = self._trusted("call", call_source(self.problem, symbol, precise=precise))
        host = self._trusted(main, resources.files(__package__).joinpath("native", main).read_text())
        key = hashlib.sha256("".join(one.name for one in (built.path, call, host)).encode()).hexdigest()[:16]
        path = self.folder / f"run-{key}"
        if not path.exists():
            self._link(path, built.path, symbol, (call, host))
        made = self._known[source, flags, precise, main] = Program(path, symbol, built)
        return made

    def _link(self, path: Path, kernel: Path, symbol: str, ours: tuple[Path, ...]) -> None:
        linker = shutil.which(COMPILERS[self.problem.suffix])
        if linker is None:
            raise CannotDo(f"no {COMPILERS[self.problem.suffix]} here", where="kernel build")
        with tempfile.TemporaryDirectory(dir=self.folder) as scratch:
            alone, made = Path(scratch) / "kernel.o", Path(scratch) / "run"
            # Only the entry stays in sight, so that no other name of the kernel takes a library's place.
            _run(["objcopy", f"--keep-global-symbol={symbol}", str(kernel), str(alone)], self.seconds)
            _run([linker, *map(str, ours), str(alone), *_LINK, "-o", str(made)], self.seconds)
            made.replace(path)

    def _kept(self, source: str, suffix: str) -> Path:
        folder = self.folder / "sources"
        folder.mkdir(exist_ok=True)
        path = folder / f"{hashlib.sha256(source.encode()).hexdigest()[:16]}{suffix}"
        _write(path, source)
        return path

    def _trusted(self, name: str, source: str) -> Path:
        path = self.folder / f"{Path(name).stem}-{hashlib.sha256(source.encode()).hexdigest()[:16]}.c"
        if not path.with_suffix(".o").exists():
            _write(path, source)
            made = path.with_suffix(f".{os.getpid()}.o")
            _run(["gcc", "-O2", "-std=gnu11", "-c", str(path), "-o", str(made)], self.seconds)
            made.replace(path.with_suffix(".o"))
        return path.with_suffix(".o")


def _write(path: Path, text: str) -> None:
    if not path.exists():
        made = path.with_suffix(f".{os.getpid()}-{threading.get_ident()}.tmp")
        made.write_text(text)
        made.replace(path)


def _run(command: list[str], seconds: float) -> None:
    try:
        ended = subprocess.run(
            command, capture_output=True, text=True, errors="replace", timeout=seconds, check=False,
            stdin=subprocess.DEVNULL, env=os.environ | {"LC_ALL": "C"},
        )  # fmt: skip
    except subprocess.TimeoutExpired:
        raise BadInput(f"{Path(command[0]).name} took over {seconds:g} s", where="kernel build") from None
    if ended.returncode:
        lines = [one for one in ended.stderr.splitlines() if one.strip()] or ["no message"]
        told = next((one for one in lines if "error" in one or "undefined" in one), lines[0])
        raise BadInput(told.strip(), where=f"kernel build, {Path(command[0]).name}")
