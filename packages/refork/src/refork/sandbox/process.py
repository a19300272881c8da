"""The parent's side of the processes that tools, shells and commands are forked from."""

from __future__ import annotations

import json
import os
import shutil
import socket
import subprocess
import sys
import tempfile
import threading
import weakref
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, final

from refork.errors import CannotDo
from refork.sandbox import inside

#: Makes this folder importable under its own name, and nothing else of Refork: packages above it are empty.
BOOT = f"""
import importlib, sys, types
parts = {inside.__name__!r}.split(".")
for count in range(1, len(parts) + 1):
    package = types.ModuleType(".".join(parts[:count]))
    package.__path__ = [sys.argv[1]] if count == len(parts) else []
    sys.modules[package.__name__] = package
importlib.import_module({inside.__name__!r} + "." + sys.argv[2]).serve(int(sys.argv[3]), sys.argv[4:])
"""


def start(
    module: str, arguments: Sequence[str] = (), *, folder: str = "/", as_input: bool = False
) -> tuple[subprocess.Popen[bytes], socket.socket]:
    """A fresh interpreter that serves a module of :mod:`refork.sandbox.inside`, and our end of its socket.

    It is isolated, without site packages, in an empty environment and a session of its own. ``as_input``: its
    end is its standard input, so that no number which differs is among its arguments.
    """
    ours, theirs = socket.socketpair()
    with theirs:
        number = theirs.fileno()
        code = ["-I", "-S", "-B", "-X", "utf8", "-c", BOOT, str(Path(inside.__file__).parent), module]
        # A session of its own: a Ctrl-C at the terminal is for us, who end it in our own time.
        process = subprocess.Popen(
            [sys.executable, *code, "0" if as_input else str(number), *arguments],
            env={}, cwd=folder, start_new_session=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
            stdin=number if as_input else subprocess.DEVNULL, pass_fds=() if as_input else (number,),
        )  # fmt: skip
    return process, ours


def stop(process: subprocess.Popen[bytes], sock: socket.socket, folder: str, owner: int) -> None:
    """End a process that :func:`start` gave, and remove its folder; nothing in a fork of who started it."""
    if os.getpid() != owner:
        return
    sock.close()
    for end in (None, process.terminate, process.kill):  # a shell's ends what it guards when asked to
        if end is not None:
            end()
        try:
            process.wait(2)
            break
        except subprocess.TimeoutExpired:
            continue
    shutil.rmtree(folder, ignore_errors=True)


def receive(sock: socket.socket, count: int) -> bytes:
    """So many bytes of a socket.

    Raises:
        EOFError: the other side ended. OSError: its timeout passed.
    """
    parts = bytearray()
    while len(parts) < count:
        part = sock.recv(min(count - len(parts), 1 << 20))
        if not part:
            raise EOFError
        parts += part
    return bytes(parts)


class EndedError(Exception):
    """The process is gone."""


@final
class Zygote:
    """The process that runs of tools are forked from, in an empty folder.

    ``preload``: modules of the standard library that it loads beside those of every tool.
    """

    def __init__(self, preload: Sequence[str] = ()) -> None:
        if os.name != "posix" or not hasattr(os, "fork"):
            raise CannotDo(
                "the sandbox needs fork, sockets that pass descriptors and resource limits",
                where=sys.platform,
                hint="run it on Linux (best), macOS, or in the Windows subsystem for Linux",
            )
        self.owner = os.getpid()
        self._lock = threading.Lock()
        self._folder = tempfile.mkdtemp(prefix="refork-sandbox-")
        self._process, self._socket = start("zygote", preload, folder=self._folder)
        self._stop = weakref.finalize(self, stop, self._process, self._socket, self._folder, self.owner)

    def ask(self, request: dict[str, Any], fds: tuple[int, ...] = ()) -> dict[str, Any]:
        """Send a request, with descriptors, and wait for its answer.

        Raises:
            EndedError: the process is gone.
        """
        with self._lock:
            try:
                socket.send_fds(self._socket, [json.dumps(request).encode()], fds)
                data = b""
                while not data.endswith(b"\n"):
                    part = self._socket.recv(1 << 16)
                    if not part:
                        raise EndedError
                    data += part
            except OSError as error:
                raise EndedError from error
            except BaseException:
                self.close()  # an answer that nobody waited for would be taken for the next one's
                raise
        answer: dict[str, Any] = json.loads(data)
        if request["do"] == "end":
            self._tidy()
        return answer

    def _tidy(self) -> None:
        """Empty the folder again, should a layer have let something through."""
        with suppress(OSError):
            for left in Path(self._folder).iterdir():
                shutil.rmtree(left) if left.is_dir() and not left.is_symlink() else left.unlink()

    @property
    def pid(self) -> int:
        """Its number."""
        return self._process.pid

    @property
    def ended(self) -> bool:
        """Whether it was closed, or ended by itself."""
        return not self._stop.alive or self._process.poll() is not None

    def close(self) -> None:
        """End the process and all its runs."""
        self._stop()
