"""A secret beside the sources; disguises and bombs tried on the tools, each told by its effect."""

from __future__ import annotations

import os
import secrets
import shutil
import subprocess
import sys
import tempfile
import threading
from contextlib import ExitStack, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import final

from refork.errors import BadInput
from refork.sandbox.jailed import outside
from refork_methods.kernel.bench.program import Programs
from refork_methods.kernel.bench.screen import RefusedError, screen_object
from refork_methods.kernel.cpu import toolchain
from refork_methods.kernel.cpu.build import BOUNDS, COMPILERS, LISTED, compile_object
from refork_methods.kernel.problem import Argument, Problem
from support.compiler_disguises import ENTRY, Bomb, Disguise

#: So many bytes of the secret in a row are taken for no chance.
WINDOW = 8
#: Seconds for a tool: a busy machine takes nothing away from an attempt.
SECONDS = 60.0
#: What every source is a candidate of.
PROBLEM = Problem(
    name="k", entry="k", source="", suffix=".c", sizes={"n": 1}, rtol=0, atol=0,
    arguments=(
        Argument(name="n", ctype="int", length=None, role="size"),
        Argument(name="a", ctype="float", length="n", role="inout"),
    ),
)  # fmt: skip


@final
@dataclass(frozen=True, slots=True)
class Tried:
    """What came of a disguise: where the secret was found, or what else it did; nothing where it was held."""

    name: str
    effects: tuple[str, ...]
    output: str


@final
class Planted:
    """A file that anyone may read, a link to it beside the sources, and its bytes in a process. A context."""

    def __init__(self) -> None:
        self.token = secrets.token_hex(20)
        self._stack = ExitStack()

    def __enter__(self) -> Planted:
        self.folder = Path(tempfile.mkdtemp(prefix="refork-planted-"))
        self._stack.callback(shutil.rmtree, self.folder, True)
        self.folder.chmod(0o755)
        self.secret, self.built = self.folder / "secret", self.folder / "built"
        self.secret.write_text(f"t{self.token} x;\n")
        self._near = self.built / "sources" / "near"
        self._near.parent.mkdir(parents=True)
        self._near.symlink_to(self.secret)
        self._held = os.open(self.secret, os.O_RDONLY)
        self._stack.callback(os.close, self._held)
        os.set_inheritable(self._held, True)
        code = ["-I", "-S", "-c", "import time; time.sleep(3600)"]
        self._victim = subprocess.Popen(
            [sys.executable, *code], env={"SECRET": self.token}, stdin=subprocess.DEVNULL
        )
        self._stack.callback(self._victim.wait)
        self._stack.callback(self._victim.kill)
        self._before = self._files()
        return self

    def __exit__(self, *error: object) -> None:
        self._stack.close()

    def with_true_names(self, text: str) -> str:
        """A source or flag with the true names."""
        names = {
            "SECRET": str(self.secret), "NEAR": str(self._near), "HELD": str(self._held),
            "VICTIM": str(self._victim.pid),
        }  # fmt: skip
        for name, value in names.items():
            text = text.replace(name, value)
        return text

    def effects(self, result: dict[str, bytes]) -> tuple[str, ...]:
        """Where bytes of the secret are, and what was changed beside it."""
        token = self.token.encode()
        parts = [token[at : at + WINDOW] for at in range(len(token) - WINDOW + 1)]
        leaks = [name for name, data in result.items() if any(part in data for part in parts)]
        changed = [] if self._files() == self._before else ["a file was made, changed or deleted"]
        return (*leaks, *changed)

    def _files(self) -> list[object]:
        seen, names = self.secret.lstat(), sorted(one.name for one in self.folder.iterdir())
        return [names, seen.st_mode, seen.st_size, seen.st_mtime_ns, seen.st_nlink]


def try_walls(disguise: Disguise, planted: Planted) -> Tried:
    """A disguise on the tools in their jail alone: no screen, any flags, a look at all that comes out."""
    name = f"source{disguise.suffix}"
    source = (planted.with_true_names(disguise.source) + ENTRY).encode()
    compiler = COMPILERS[disguise.suffix]
    flags = [
        *map(planted.with_true_names, disguise.flags),
        "-g",
        "-fopt-info-vec-all=records.txt",
        "-MD",
        "-MF",
        "opened.d",
    ]
    found: dict[str, bytes] = {}

    def run(command: list[str], files: dict[str, bytes], *wanted: str) -> dict[str, bytes]:
        done = toolchain.run(command, files=files, wanted=wanted, bounds=replace(LISTED, seconds=SECONDS))
        said = {f"{command[0]}, output": done.out, f"{command[0]}, errors": done.err}
        found.update(said | {f"{command[0]}, {one}": data for one, data in done.files.items()})
        return done.files

    made = run(
        [compiler, *flags, "-c", name, "-o", "out.o"], {name: source}, "out.o", "records.txt", "opened.d"
    )
    if "out.o" in made:
        thing = {"out.o": made["out.o"]}
        run(["objdump", "-dSlsr", "--dwarf=follow-links", "out.o"], thing)
        run(["addr2line", "-f", "-j", ".text", "-e", "out.o", "0", "1"], thing)
        alone = run(["objcopy", "--keep-global-symbol=k", "out.o", "alone.o"], thing, "alone.o")
        run([compiler, "-shared", "-o", "run", *alone], alone, "run")
    return Tried(disguise.name, planted.effects(found), found[f"{compiler}, errors"].decode(errors="replace"))


def try_all(disguise: Disguise, planted: Planted) -> Tried:
    """A disguise as a candidate of a search: what its verdict says, and what was built of it."""
    source = planted.with_true_names(disguise.source) + ENTRY
    problem = replace(PROBLEM, suffix=disguise.suffix)
    said, found = "", {}
    try:
        made = Programs(problem, planted.built, SECONDS).make(
            source, tuple(map(planted.with_true_names, disguise.flags))
        )
        found = {"object": made.built.path.read_bytes(), "program": made.path.read_bytes()}
        found["records"] = made.built.records.encode()
    except (BadInput, RefusedError) as refused:
        said = str(refused)
    return Tried(disguise.name, planted.effects({**found, "verdict": said.encode()}), said)


@final
@dataclass(frozen=True, slots=True)
class Blown:
    """What a bomb took: bytes by which this process grew at most, bytes of disk at most, and its verdict."""

    name: str
    memory: int
    disk: int
    said: str

    @property
    def bounded(self) -> bool:
        """Whether the process grew by less than 64 MiB, and the disk held what a jail may hold at most."""
        return self.memory < 64 << 20 and self.disk <= BOUNDS.disk


def try_bomb(bomb: Bomb, folder: Path, seconds: float) -> Blown:
    """A bomb compiled and screened as a candidate is."""
    source = folder / f"bomb{bomb.suffix}"
    source.write_text(bomb.source + ENTRY)
    before = _memory("VmRSS")
    with suppress(OSError):
        Path("/proc/self/clear_refs").write_text("5")  # the peak begins anew
    said = "built"
    with _Disk((outside(), folder)) as disk:
        try:
            built = compile_object(source, folder / "built", flags=("-O1",), seconds=seconds)
            screen_object(built.path, "k")
        except (BadInput, RefusedError) as refused:
            said = str(refused)
    return Blown(bomb.name, max(0, _memory("VmHWM") - before), disk.most, said)


def _memory(name: str) -> int:
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith(f"{name}:"):
            return int(line.split()[1]) << 10
    return 0


@final
class _Disk:
    """The most bytes that folders held while a block ran, looked at often. A context."""

    def __init__(self, folders: tuple[Path, ...]) -> None:
        self._folders, self.most = folders, 0
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._look)

    def __enter__(self) -> _Disk:
        self._thread.start()
        return self

    def __exit__(self, *error: object) -> None:
        self._over.set()
        self._thread.join()

    def _look(self) -> None:
        over = False
        while not over:
            over = self._over.wait(0.02)
            self.most = max(self.most, sum(map(_size, self._folders)))


def _size(folder: Path) -> int:
    size = 0
    for top, _, names in os.walk(folder):
        for name in names:
            with suppress(OSError):
                size += os.lstat(f"{top}/{name}").st_blocks * 512
    return size
