"""Start an MCP server in a copy of a folder: ``python -m refork_worlds.mcp_fresh FOLDER ...``.

``tools:mcp?command=...`` starts a server for every episode, but what a server keeps on the disk outlives it:
a replay would then begin where the last episode ended. Here the server works in a copy of the folder that is
gone when it ends. The copy has another path each time, so in what passes through it is written as
:data:`MOUNT_POINT`, both ways, and every episode says the same. It needs the standard library alone, for it
starts with every episode.
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import IO, Final

#: What stands for the copy's path in all that is said.
MOUNT_POINT: Final = "/refork-episode"
#: Seconds that a server has to end by itself once nobody speaks to it any more.
_PATIENCE: Final = 5.0
#: Bytes of one message; a client would not take more.
_LONGEST: Final = 8 << 20
#: And once it was told to end: less than a client waits before it kills whatever is left (2 in the official
#: one, after a signal).
_HASTE: Final = 1.0


def run(
    folder: Path, command: list[str], source: IO[bytes], sink: IO[bytes], forward: Sequence[int] = ()
) -> int:
    """The status of a server that ran in a copy of a folder; messages are lines, passed on one by one.

    ``forward``: signals that the server is to get, and not this process. Before it runs they end the copying.
    """
    held = {number: signal.signal(number, lambda got, _: sys.exit(128 + got)) for number in forward}
    try:
        with tempfile.TemporaryDirectory(prefix="refork-mcp-", ignore_cleanup_errors=True) as place:
            copy = Path(place).resolve() / "folder"
            shutil.copytree(folder, copy, symlinks=True)
            return _serve(copy, command, source, sink, forward)
    finally:
        for number, handler in held.items():
            signal.signal(number, handler)


def _serve(copy: Path, command: list[str], source: IO[bytes], sink: IO[bytes], forward: Sequence[int]) -> int:
    real, shown = str(copy).encode(), MOUNT_POINT.encode()
    # A path of the program is one from here, not from the copy.
    program = str(Path(shutil.which(command[0]) or command[0]).absolute())
    words = [program, *(word.replace(MOUNT_POINT, str(copy)) for word in command[1:])]
    with subprocess.Popen(words, cwd=copy, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as server:
        for number in forward:
            signal.signal(number, lambda got, _: _pass_on(server, got, copy.parent))
        threading.Thread(target=_pump, args=(source, server.stdin, shown, real), daemon=True).start()
        _pump(server.stdout, sink, real, shown)
        try:
            return server.wait(_PATIENCE)
        except subprocess.TimeoutExpired:
            server.kill()
            return server.wait()


def _pass_on(server: subprocess.Popen[bytes], number: int, place: Path) -> None:
    """Give the server a signal, and see that it and the copy are gone before this process is killed too."""

    def end() -> None:
        server.kill()
        server.wait()
        shutil.rmtree(place, ignore_errors=True)
        # What the server started may hold its output open, and this process would read on.
        os._exit(128 + number)

    server.send_signal(number)
    last = threading.Timer(_HASTE, end)
    last.daemon = True
    last.start()


def _pump(source: IO[bytes] | None, sink: IO[bytes] | None, old: bytes, new: bytes) -> None:
    """Pass lines on until there are no more; who reads them may have left."""
    if source is None or sink is None:
        return
    try:
        while line := source.readline(_LONGEST + 1):
            if len(line) > _LONGEST:
                print(
                    f"mcp_fresh: a message of more than {_LONGEST >> 20} MiB is not passed on",
                    file=sys.stderr,
                )
                break
            sink.write(line.replace(old, new))
            sink.flush()
        sink.close()
    except (BrokenPipeError, ValueError):
        return


def main(arguments: list[str] | None = None) -> int:
    """Run the command of a command line; 2 where it is none."""
    given = sys.argv[1:] if arguments is None else arguments
    if len(given) < 2 or not Path(given[0]).is_dir():
        print("usage: mcp_fresh FOLDER COMMAND ...", file=sys.stderr)
        return 2
    try:
        signals = (signal.SIGTERM, signal.SIGINT)
        return run(Path(given[0]), given[1:], sys.stdin.buffer, sys.stdout.buffer, signals)
    except OSError as error:
        print(f"mcp_fresh: {error}", file=sys.stderr)
        return 2


if __name__ == "__main__":
    # The thread that reads standard input still waits there when the server ended first, and holds its lock.
    os._exit(main())
