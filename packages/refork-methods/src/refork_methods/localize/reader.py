"""Reads the files of a snapshot: facts of each, and the counts of its names."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager

from refork_methods.localize.facts import FileFacts
from refork_methods.localize.languages.registry import read_file
from refork_methods.localize.lexing import Names, add_names
from refork_methods.localize.snapshot import Snapshot


def read_files(snapshot: Snapshot, words: bool = True) -> tuple[dict[str, FileFacts], Names | None]:
    """Facts of every file by path, in order, and the counts of names where words are wanted."""
    found: dict[str, FileFacts] = {}
    names = Names()
    first = 0
    with _no_collection():
        for path in snapshot.files:
            # Not splitlines, which also ends lines at form feeds and U+2028: git and the parsers do not.
            lines = snapshot.text(path).split("\n")
            if not lines[-1]:
                lines.pop()
            found[path], layouts = read_file(path, snapshot.bytes(path), lines)
            if words:
                add_names(names, first, found[path], layouts, lines)
            first += len(found[path].symbols)
    return found, names if words else None


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
