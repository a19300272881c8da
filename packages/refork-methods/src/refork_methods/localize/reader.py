"""Reads the files of a snapshot, in this process and, where it pays, in a second one."""

from __future__ import annotations

import gc
import pickle
import subprocess
import sys
from array import array
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from refork.errors import BadInput
from refork_methods.localize.facts import FileFacts
from refork_methods.localize.languages.registry import read_file
from refork_methods.localize.lexing import Names, add_names
from refork_methods.localize.snapshot import Snapshot

_PAYS = 3_000_000
"""Bytes of text from which a second process is worth its start of about half a second."""

_CHILD = "from refork_methods.localize.reader import serve; serve()"

_Part = tuple[list[FileFacts], Names]


def read_files(
    snapshot: Snapshot, workers: int | None = None, words: bool = True
) -> tuple[dict[str, FileFacts], Names | None]:
    """Facts of every file by path, in order, and the counts of names where words are wanted.

    Raises: BadInput where workers is neither 1 nor 2.
    """
    if workers not in (None, 1, 2):
        raise BadInput(f"workers is 1 or 2, not {workers}")
    files = [(path, snapshot.bytes(path)) for path in snapshot.files]
    total = sum(len(raw) for _, raw in files)
    if workers == 1 or (workers is None and total < _PAYS) or len(files) < 2:
        found, names = read_part(files, words)
        return {facts.path: facts for facts in found}, names if words else None
    half = _half(files, total)
    child = _start(files[half:], words)
    try:
        found, names = read_part(files[:half], words)
        answer = _answer(child)
    finally:
        _end(child)
    more, other = answer or read_part(files[half:], words)
    if words:
        _join(names, other, sum(len(facts.symbols) for facts in found))
    return {facts.path: facts for facts in [*found, *more]}, names if words else None


def read_part(files: Iterable[tuple[str, bytes]], words: bool) -> _Part:
    """Facts and counts of some files."""
    found: list[FileFacts] = []
    names = Names()
    first = 0
    with _no_collection():
        for path, raw in files:
            lines = _lines(raw)
            facts, layouts = read_file(path, raw, lines)
            if words:
                add_names(names, first, facts, layouts, lines)
            first += len(facts.symbols)
            found.append(facts)
    return found, names


def serve() -> None:
    """The second process: files in by standard input, facts out by standard output."""
    files, words = pickle.load(sys.stdin.buffer)
    pickle.dump(read_part(files, words), sys.stdout.buffer, protocol=5)


def _lines(raw: bytes) -> list[str]:
    try:
        text = raw.decode("utf-8")
    except UnicodeDecodeError:
        text = raw.decode("latin-1")
    lines = text.split("\n")
    if not lines[-1]:
        lines.pop()
    return lines


def _half(files: list[tuple[str, bytes]], total: int) -> int:
    """Where to cut so that both parts hold about as much; the second has a start to make up for."""
    seen = 0
    for place, (_, raw) in enumerate(files):
        seen += len(raw)
        if seen * 20 >= total * 11:
            return max(1, min(place + 1, len(files) - 1))
    return len(files) - 1


def _start(files: list[tuple[str, bytes]], words: bool) -> subprocess.Popen[bytes] | None:
    # A plain child with a pipe: it needs no guard in the caller's main module and copies no threads.
    source = str(Path(__file__).resolve().parents[2])
    begin = f"import sys; sys.path.insert(0, {source!r}); {_CHILD}"
    try:
        child = subprocess.Popen(
            [sys.executable, "-c", begin],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
        )
    except OSError:
        return None
    assert child.stdin is not None
    with suppress(OSError):  # it may have ended already: then it gives no answer
        pickle.dump((files, words), child.stdin, protocol=5)
        child.stdin.flush()
    with suppress(OSError):
        child.stdin.close()
    return child


def _answer(child: subprocess.Popen[bytes] | None) -> _Part | None:
    """What the second process found; None where it failed, and its part is to be done here."""
    if child is None or child.stdout is None:
        return None
    raw = child.stdout.read()
    # Only what our own child wrote down its pipe is ever unpickled.
    return pickle.loads(raw) if child.wait() == 0 else None


def _end(child: subprocess.Popen[bytes] | None) -> None:
    """Leave no process behind, whatever happened here."""
    if child is not None:
        child.kill()
        child.wait()
        if child.stdout is not None:
            child.stdout.close()


def _join(names: Names, other: Names, first: int) -> None:
    """Add the second part's counts, its symbols numbered from ``first``."""
    number = names.vocabulary.setdefault
    place = [number(name, len(names.vocabulary)) for name in other.vocabulary]
    names.symbols.extend(array("i", (first + symbol for symbol in other.symbols)))
    names.fields.extend(other.fields)
    names.names.extend(array("i", (place[name] for name in other.names)))
    names.counts.extend(other.counts)


@contextmanager
def _no_collection() -> Iterator[None]:
    """Without the cyclic collector: syntax trees are millions of objects and no cycles."""
    was = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was:
            gc.enable()
