"""Read changed files with every parser of the formats: no crash, no hang, no memory that grows.

Run: python tools/fuzz_formats.py --inputs 100000 [--parser NAME] [--folder DIR] [--seed N]

A parser may refuse an input as bad, and nothing else. Inputs are good files with places of their JSON, rows,
entries or bytes changed (``tests/support/mutate.py``); one that reaches a statement of the formats which none
before it reached is changed further. Input n of a seed is the same in every run. Each parser runs in a
process of its own, which is watched: what kills it or makes it hang lies in the folder as the file that did
it. A run that was stopped goes on at the last thousand inputs, unless a parser changed since. Exit status 1:
something failed.
"""

from __future__ import annotations

import argparse
import contextlib
import gc
import hashlib
import importlib
import json
import mmap
import multiprocessing
import os
import random
import resource
import shutil
import signal
import struct
import sys
import tempfile
import time
import traceback
import warnings
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from functools import cache
from multiprocessing.connection import Connection
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

ROOT: Final = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "tests"))

if TYPE_CHECKING:
    from refork.formats import Reader

#: Inputs between two states on the disk.
BLOCK: Final = 1000
#: Seconds of processor time that one input may take; seconds without an input after which a process hangs.
SLOW, HANG = 5.0, 60.0
#: Megabytes that a process may grow by after its first blocks, and that one input may ask for.
GROWTH, MOST = 64.0, 2048
#: Blocks after which caches are full.
WARM: Final = 2
#: Bytes of an input that is kept to be changed further, and how many are.
KEPT, MANY = 65536, 400
#: One input in so many is read by the whole import too, and the tree verified.
WHOLE: Final = 50
_FORMATS: Final = "refork.formats"


@dataclass(slots=True)
class State:
    """How far the fuzzing of one parser is, and what it found."""

    parser: str
    seed: int
    done: int = 0
    refused: int = 0
    seconds: float = 0.0
    reached: list[int] = field(default_factory=list)
    kept: list[int] = field(default_factory=list)
    skip: list[int] = field(default_factory=list)
    failures: list[dict[str, Any]] = field(default_factory=list)
    growth_mb: float = 0.0
    #: A digest of the parsers and of what makes the inputs: what was found of others does not count.
    code: str = ""


class Marks:
    """Which statements of the formats ran: each is compiled with a mark before it."""

    def __init__(self) -> None:
        from support.executed import Finder

        self._finder = Finder(["refork"])
        find = self._finder.find_spec
        sys.meta_path.insert(0, self)  # type: ignore[arg-type]
        self._find = find
        self.count = 0

    def find_spec(self, fullname: str, path: Any = None, target: Any = None) -> Any:
        """As an importer's: modules of the formats are compiled with marks, others as they are."""
        return self._find(fullname, path, target) if fullname.startswith(_FORMATS) else None

    @property
    def ran(self) -> list[bool]:
        """A truth value for each statement."""
        return self._finder.executed.ran

    def new(self) -> bool:
        """Whether a statement ran for the first time since the last call."""
        count = self.ran.count(True)
        found, self.count = count > self.count, count
        return found

    def known(self, places: list[int]) -> None:
        """Statements that ran in an earlier process."""
        for place in places:
            self.ran[place] = True
        self.count = self.ran.count(True)


class Fuzzer:
    """One parser, its good files, and a file in memory that every input is written to."""

    def __init__(
        self, state: State, folder: Path, current: Path, marks: Marks | None = None, place: Any = None
    ) -> None:
        from refork.formats import readers
        from refork.tree.sqlite import open_memory
        from support.fuzz_seeds import seeds_of
        from support.mutate import words_of

        self.state, self.folder, self.marks = state, folder, marks
        self.reader: Reader = next(one for one in readers() if one.name == state.parser)
        self.pool = seeds_of(state.parser)
        self.words = words_of(self.pool)
        self.file = current
        self._out = os.open(current, os.O_RDWR | os.O_CREAT)
        self._place = bytearray(8) if place is None else place
        self._db = open_memory()
        for number in state.kept:
            self.pool.append((folder / f"kept-{number}").read_bytes())

    def input(self, number: int, pool: list[bytes]) -> bytes:
        """Input ``number``, made of one of the files that stood when its block began."""
        from support.mutate import changed

        dice = random.Random(f"{self.state.seed} {self.state.parser} {number}")
        if number < len(pool):
            return pool[number]
        # New finds are changed more often than what was changed many times.
        at = dice.randrange(len(pool)) if dice.random() < 0.7 else max(0, len(pool) - 1 - dice.randrange(20))
        return changed(dice, pool[at], self.words)

    def close(self) -> None:
        """Give the file and the tree back."""
        os.close(self._out)
        self._db.close()

    def block(self, count: int = BLOCK) -> None:
        """The next inputs."""
        from refork.errors import UserError

        state = self.state
        start, pool, begun = state.done, list(self.pool), time.process_time()
        for number in range(start, start + count):
            if number in state.skip:
                continue
            data = self.input(number, pool)
            self._write(number, data)
            before = time.process_time()
            try:
                self._read(number)
            except UserError:
                state.refused += 1
            except Exception as error:  # what a fuzzer is for
                self._failed(number, data, repr(error)[:200], _where(error))
            took = time.process_time() - before
            if took > SLOW:
                self._failed(number, data, f"{took:.0f} s for {len(data):,} bytes", "slow")
            new = self.marks is not None and self.marks.new() and number >= len(pool)
            if new and len(data) <= KEPT and len(state.kept) < MANY:
                (self.folder / f"kept-{number}").write_bytes(data)
                state.kept.append(number)
                self.pool.append(data)
        state.done += count
        state.seconds += time.process_time() - begun
        if self.marks is not None:
            state.reached = [at for at, ran in enumerate(self.marks.ran) if ran]

    def _write(self, number: int, data: bytes) -> None:
        self._place[:8] = struct.pack("<q", number)
        os.ftruncate(self._out, 0)
        os.pwrite(self._out, data, 0)

    def _read(self, number: int) -> None:
        """Read an input into a tree, for what a reader lets pass must be storable too."""
        from refork.formats import Head, Redactor, import_file
        from refork.formats.redact import redacted
        from refork.tree import Tree
        from refork.tree.load import Loader

        self.reader.sniff(Head.of(self.file))
        if number % WHOLE == 0:
            with Tree.memory() as tree:
                import_file(tree, self.file, self.reader, redactor=Redactor())
                found = [str(one) for one in tree.verify()]
                assert not found, found[:3]
            return
        try:
            with self._db.transaction():
                Loader(self._db, strict=False).load(redacted(self.reader.read(self.file), Redactor()))
                raise _Undone
        except _Undone:
            pass

    def _failed(self, number: int, data: bytes, what: str, where: str) -> None:
        known = [one for one in self.state.failures if one["where"] == where]
        self.state.failures.append({"input": number, "what": what, "where": where})
        if len(known) < 3:
            (self.folder / f"failure-{number}").write_bytes(data)


class _Undone(Exception):
    """Ends a transaction without writing."""


def _where(error: Exception) -> str:
    """The innermost line of the package that an error came through."""
    frames = [one for one in traceback.extract_tb(error.__traceback__) if "/refork/" in one.filename]
    last = frames[-1] if frames else None
    return "elsewhere" if last is None else f"{Path(last.filename).name}:{last.lineno} {last.name}"


def _peak() -> float:
    """Most memory that this process held, MB."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def _resident() -> float:
    """Memory that this process holds, MB."""
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * resource.getpagesize() / 2**20


def _work(parser: str, seed: int, count: int, folder: Path, current: Path, told: Connection) -> None:
    """What the process of one parser does."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    warnings.simplefilter("ignore")
    marks = Marks()
    state = _state(folder, parser, seed)
    for name in ("pyarrow.parquet", "zstandard"):
        # What a reader imports when it meets the first such file is no growth.
        with contextlib.suppress(ImportError):
            importlib.import_module(name)
    with (folder / "place").open("r+b") as opened, mmap.mmap(opened.fileno(), 8) as place:
        fuzzer = Fuzzer(state, folder, current, marks, place)
        marks.known(state.reached)
        held = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
        most = held + MOST * 2**20
        resource.setrlimit(resource.RLIMIT_AS, (most, most))
        gc.collect()
        gc.freeze()
        before, blocks = 0.0, 0
        while state.done < count:
            fuzzer.block(min(BLOCK, count - state.done))
            blocks += 1
            gc.collect()
            if blocks == WARM:
                before = _resident()
            elif blocks > WARM:
                state.growth_mb = max(state.growth_mb, round(_resident() - before, 1))
            _save(folder, state)
            told.send((state.done, len(state.failures)))
    told.close()


def _state(folder: Path, parser: str, seed: int) -> State:
    """The state of an earlier run of the same seed and the same parsers, or a new one."""
    try:
        known = State(**json.loads((folder / "state.json").read_text()))
    except (OSError, ValueError, TypeError):
        known = None
    code = _code()
    if known is not None and (known.seed, known.code) == (seed, code):
        return known
    return State(parser, seed, code=code)


@cache
def _code() -> str:
    found = hashlib.blake2b(digest_size=16)
    makers = [ROOT / f"tests/support/{name}.py" for name in ("mutate", "fuzz_seeds")]
    for file in [*sorted((ROOT / "packages/refork/src/refork/formats").glob("*.py")), *makers]:
        found.update(file.read_bytes())
    return found.hexdigest()


def _save(folder: Path, state: State) -> None:
    fresh = folder / "state.new"
    fresh.write_text(json.dumps(asdict(state)))
    fresh.replace(folder / "state.json")


def fuzz(
    parser: str, count: int, folder: Path, seed: int = 0, say: Callable[[str], None] = lambda line: None
) -> State:
    """Fuzz one parser; a process that dies or hangs is replaced, and its input is a failure."""
    folder.mkdir(parents=True, exist_ok=True)
    _code()  # what is fuzzed is what stands now
    memory = Path("/dev/shm")
    spawn = multiprocessing.get_context("spawn")
    with tempfile.TemporaryDirectory(prefix="refork-fuzz-", dir=memory if memory.is_dir() else None) as name:
        current = Path(name) / "input"
        while True:
            (folder / "place").write_bytes(struct.pack("<q", -1))
            mine, theirs = spawn.Pipe(duplex=False)
            worker = spawn.Process(target=_work, args=(parser, seed, count, folder, current, theirs))
            worker.start()
            theirs.close()
            hung = _watch(worker, mine, folder, say)
            worker.join()
            state = _state(folder, parser, seed)
            if worker.exitcode == 0:
                if state.done < count:
                    raise RuntimeError("the parsers were changed while they were fuzzed: run it again")
                break
            number = struct.unpack("<q", (folder / "place").read_bytes())[0]
            if number < 0:
                raise RuntimeError(f"the process of {parser} ended with status {worker.exitcode}")
            shutil.copy(current, folder / f"failure-{number}")
            what = f"no input in {HANG:.0f} s" if hung else f"the process ended with {worker.exitcode}"
            state.failures.append({"input": number, "what": what, "where": "process"})
            state.skip.append(number)
            _save(folder, state)
    if state.growth_mb > GROWTH:
        state.failures.append({"input": -1, "what": f"grew by {state.growth_mb:.0f} MB", "where": "memory"})
    return state


def fuzz_here(parser: str, count: int, folder: Path, seed: int = 0) -> State:
    """The first inputs of a parser in this process: not watched, not guided, and not kept."""
    state = State(parser, seed)
    fuzzer = Fuzzer(state, folder, folder / "input")
    fuzzer.block(count)
    fuzzer.close()
    return state


def _watch(worker: Any, told: Connection, folder: Path, say: Callable[[str], None]) -> bool:
    """Wait for a process; True where it had to be killed, for one input took too long."""
    last, since = b"", time.monotonic()
    while worker.is_alive():
        try:
            if told.poll(1.0):
                done, bad = told.recv()
                say(f"{done:,} inputs, {bad} failures")
        except EOFError:
            worker.join()
            return False
        now = (folder / "place").read_bytes()
        if now != last:
            last, since = now, time.monotonic()
        elif now != struct.pack("<q", -1) and time.monotonic() - since > HANG:
            worker.kill()
            return True
    return False


def parsers() -> list[str]:
    """The names of all readers."""
    from refork.formats import readers

    return [reader.name for reader in readers()]


def again(parser: str, file: Path) -> None:
    """Read one input once more, and raise what it raises."""
    from refork.formats import Head, Redactor, import_file, reader_for
    from refork.tree import Tree

    reader = reader_for(file, parser)
    reader.sniff(Head.of(file))
    with Tree.memory() as tree:
        print(import_file(tree, file, reader, redactor=Redactor()))


def main() -> int:
    """Fuzz, print a line for each parser, and a JSON object last."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--inputs", type=int, default=100_000, help="for each parser")
    parser.add_argument("--parser", action="append", help="only this one; may be given more than once")
    parser.add_argument("--folder", type=Path, default=ROOT / "build/fuzz", help="state and failures")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--again", type=Path, metavar="FILE", help="read one input with --parser, and stop")
    given = parser.parse_args()
    if given.again:
        again(given.parser[0], given.again)
        return 0
    total, failed = 0, 0
    for name in given.parser or parsers():
        folder = given.folder / name
        state = fuzz(name, given.inputs, folder, given.seed, lambda line, name=name: _live(f"{name}: {line}"))
        _live("")
        each = 1e3 * state.seconds / max(1, state.done)
        print(
            f"{name:18} {state.done:>8,} inputs, {state.refused:>7,} refused,"
            f" {len(state.reached):>5,} statements {len(state.kept):>4} kept {each:5.2f} ms each"
            f" {state.growth_mb:+6.1f} MB, {len(state.failures)} failures",
            flush=True,
        )
        for where in sorted({one["where"] for one in state.failures}):
            ones = [one for one in state.failures if one["where"] == where]
            print(f"    {len(ones)} x {where}: {ones[0]['what']} ({folder}/failure-{ones[0]['input']})")
        total, failed = total + state.done, failed + len(state.failures)
    print(json.dumps({"fuzz_inputs": total, "fuzz_failures": failed}))
    return 1 if failed else 0


def _live(line: str) -> None:
    if sys.stderr.isatty():
        print(f"\r\033[K{line}", end="", file=sys.stderr, flush=True)


if __name__ == "__main__":
    sys.exit(main())
