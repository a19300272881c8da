"""A new file that appears whole or not at all, and what killed makers of one have left."""

from __future__ import annotations

import contextlib
import os
import re
import stat
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final

_ALL: Final = ("", "-wal", "-shm", "-journal")
_NAME: Final = r"\.{name}\.[0-9a-f]{{32}}\.new"


def make(path: Path, build: Callable[[Path], None]) -> bool:
    """Have a file built under a name beside its own and given its own; False where another was first.

    While it is built its maker holds a lock on it: so :func:`sweep` knows it from what a killed maker left.
    """
    folder = path.absolute().parent
    fresh, handle = _claimed(folder, path.name)
    try:
        build(fresh)
        try:
            # A link fails where the name is taken; a rename would replace what another maker has put there.
            os.link(fresh, path)
        except FileExistsError:
            return False
        except OSError:  # a file system without hard links
            fresh.replace(path)
        # A name is an entry of its folder, and outlasts a crash only once the folder is written too.
        _sync(folder)
    finally:
        _remove(fresh)
        os.close(handle)
    return True


def sweep(path: Path) -> None:
    """Remove what killed makers of a file have left beside it; what one is still building stays.

    What cannot be looked at or locked stays too: it may be somebody's.
    """
    folder = path.absolute().parent
    pattern = re.compile(_NAME.format(name=re.escape(path.name)))
    with contextlib.suppress(OSError):
        own = _inode(path)
        for found in _matching(folder, pattern):
            one = folder / found
            with contextlib.suppress(OSError):
                if _inode(one) == own:
                    # Killed after it was done. Not opened: closing it would drop SQLite's locks on the tree.
                    one.unlink()
                elif stat.S_ISREG(one.lstat().st_mode):
                    _remove_dead(one)


def _matching(folder: Path, pattern: re.Pattern[str]) -> Iterator[str]:
    with os.scandir(folder) as entries:
        for entry in entries:
            if pattern.fullmatch(entry.name):
                yield entry.name


def _remove_dead(fresh: Path) -> None:
    # The name may be anybody's: no link is followed, and no pipe waited for.
    handle = os.open(fresh, os.O_RDWR | os.O_NOFOLLOW | os.O_NONBLOCK)
    try:
        _lock(handle)
        _remove(fresh)
    finally:
        os.close(handle)


def _claimed(folder: Path, name: str) -> tuple[Path, int]:
    """A new empty file and the handle that holds its lock."""
    while True:
        fresh = folder / f".{name}.{uuid.uuid4().hex}.new"
        handle = os.open(fresh, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o644)
        try:
            _lock(handle)
            held = True
        except BlockingIOError:
            held = False
        except OSError:  # a file system without locks, where nobody can remove it either
            held = True
        if held and _inode(fresh) == _inode_of(os.fstat(handle)):
            return fresh, handle
        os.close(handle)  # swept by another process before it was locked: made anew


def _lock(handle: int) -> None:
    import fcntl

    fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)


def _inode(path: Path) -> tuple[int, int] | None:
    try:
        return _inode_of(path.lstat())
    except FileNotFoundError:
        return None


def _inode_of(found: os.stat_result) -> tuple[int, int]:
    return found.st_dev, found.st_ino


def _remove(fresh: Path) -> None:
    for suffix in _ALL:
        Path(f"{fresh}{suffix}").unlink(missing_ok=True)


def _sync(folder: Path) -> None:
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
