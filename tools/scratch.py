"""Run a command whose temporary files lie in memory, where there is room, and are gone afterwards.

Trees sync every commit to their disk, which takes some ten milliseconds; the tests and the documentation do
so thousands of times, and wait. What is synced is the same in memory, and nothing has to be waited for.

    python scratch.py COMMAND ARGUMENT...    run it; the exit status is the command's
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

MEMORY = Path("/dev/shm")
ROOM = 4 << 30  # bytes, of which the tests and the documentation write a tenth


def roomy(folder: Path, need: int = ROOM) -> bool:
    """Whether a folder in memory takes that much, and programs in it may run."""
    try:
        told = os.statvfs(folder)
        free = Path("/proc/meminfo").read_text().partition("MemAvailable:")[2].split()[0]
    except (OSError, IndexError):
        return False
    space = min(told.f_bavail * told.f_frsize, int(free) << 10)
    return space >= need and not told.f_flag & os.ST_NOEXEC and os.access(folder, os.W_OK)


@contextmanager
def scratch(memory: Path = MEMORY, need: int = ROOM) -> Iterator[Path]:
    """A folder for the time of a ``with`` block, in memory or where temporary files lie otherwise."""
    with tempfile.TemporaryDirectory(prefix="refork-", dir=memory if roomy(memory, need) else None) as name:
        Path(name).chmod(0o1777)  # as /tmp: databases and sandboxes run as somebody else
        yield Path(name)


def _end(*_: object) -> None:
    raise SystemExit(128 + signal.SIGTERM)


def main(command: list[str]) -> int:
    """Run the command; 128 and the signal's number where one ended it."""
    signal.signal(signal.SIGINT, lambda *_: None)  # Ctrl-C reaches the command too, which stops as it does
    signal.signal(signal.SIGTERM, _end)
    with scratch() as folder, subprocess.Popen(command, env={**os.environ, "TMPDIR": str(folder)}) as running:
        try:
            status = running.wait()
        except SystemExit:
            running.terminate()
            raise
    return status if status >= 0 else 128 - status


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
