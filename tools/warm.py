"""Processes that start with the heavy libraries read.

Reading torch and transformers takes seconds, and running the documentation starts a hundred processes that
want them. So one process reads them, never Refork itself, and forks for every script it is asked to run: in
the folder, with the environment, the arguments and the standard streams of the one who asks. It answers with
the exit status. When the one who asks is killed, so is what it asked for.

    python -IS warm.py SOCKET SCRIPT ARGUMENT...   run a script of Python by the server at SOCKET
    python warm.py --serve SOCKET                  be that server until standard input ends
"""

from __future__ import annotations

import json
import os
import signal
import socket
import sys

TYPE_CHECKING = False  # the asking side imports as little as it can: it is started for every command
if TYPE_CHECKING:
    from pathlib import Path
    from types import TracebackType
    from typing import Any, Self

#: What takes long to read; all of it is third party.
LIBRARIES = (
    "datasets",
    "fastapi",
    "networkx",
    "openai",
    "peft",
    "rich.markdown",
    "scipy.stats",
    "sklearn.linear_model",
    "torch",
    "transformers.models.llama.modeling_llama",
    "typer",
    "uvicorn",
)
LARGEST = 1 << 20  # bytes of a request: arguments and environment


def _listener() -> socket.socket:
    return socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)


def ask(address: str, arguments: list[str]) -> int:
    """Run a script with its arguments as the server at ``address`` does; its exit status."""
    request = {"arguments": arguments, "folder": os.getcwd(), "environment": dict(os.environ)}  # noqa: PTH109
    with _listener() as line:
        line.connect(address)
        socket.send_fds(line, [json.dumps(request).encode()], [0, 1, 2])
        answer = line.recv(64)
    return int(answer) if answer else 1


def serve(address: str) -> dict[str, Any]:
    """Fork for every request; returns in the fork, with what is asked of it. Ends with standard input."""
    import gc
    import importlib
    import select

    for name in LIBRARIES:
        importlib.import_module(name)
    if any(name.partition(".")[0].startswith("refork") for name in sys.modules):
        raise RuntimeError("the libraries read Refork, which every process must read itself")
    gc.collect()
    gc.freeze()  # nothing of it is ever freed: the collector need not touch, so copy, its pages
    with _listener() as door:
        door.bind(f"{address}.new")
        door.listen(64)
        os.rename(f"{address}.new", address)  # noqa: PTH104
        watched: list[Any] = [0, door]
        while 0 not in select.select(watched, [], [])[0]:
            line, _ = door.accept()
            if os.fork() == 0:
                door.close()
                return _attend(line)
            line.close()
            _bury()
    _bury()
    os._exit(0)


def _bury() -> None:
    """Take leave of the forks that have ended."""
    try:
        while os.waitpid(-1, os.WNOHANG)[0]:
            pass
    except ChildProcessError:
        pass


def _attend(line: socket.socket) -> dict[str, Any]:
    """Stand between who asks and the fork that does it; returns in that fork alone."""
    import select

    message, streams, _, _ = socket.recv_fds(line, LARGEST, 3)
    worker = os.fork() if message else os._exit(1)
    if worker == 0:
        line.close()
        os.setsid()
        for number, stream in enumerate(streams):
            os.dup2(stream, number)
            os.close(stream)
        request: dict[str, Any] = json.loads(message)
        return request
    for stream in (*streams, 0, 1, 2):
        os.close(stream)
    ended = os.pidfd_open(worker)
    watched: list[Any] = [line, ended]
    if ended not in select.select(watched, [], [])[0]:
        os.killpg(worker, signal.SIGKILL)
    status = os.waitstatus_to_exitcode(os.waitpid(worker, 0)[1])
    try:
        line.send(str(status if status >= 0 else 128 - status).encode())
    finally:
        os._exit(0)


def become(request: dict[str, Any]) -> None:
    """Be the process that the request describes: run its script as ``__main__``, and end."""
    import atexit
    import runpy
    import threading
    import traceback

    os.chdir(request["folder"])
    os.environ.clear()
    os.environ.update(request["environment"])
    sys.argv = request["arguments"]
    sys.path[0] = os.path.dirname(sys.argv[0])  # noqa: PTH120
    status: object = None
    try:
        runpy.run_path(sys.argv[0], run_name="__main__")
    except SystemExit as stop:
        status = stop.code
    except BaseException:
        traceback.print_exc()
        status = 1
    if not isinstance(status, int | None):
        print(status, file=sys.stderr)
        status = 1
    # As the interpreter ends, but without taking all modules apart: that would copy the pages they share.
    threading._shutdown()  # type: ignore[attr-defined]
    atexit._run_exitfuncs()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(status or 0)


class Warm:
    """A server for the time of a ``with`` block; its socket and a command for it lie in ``folder``."""

    def __init__(self, folder: Path, environment: dict[str, str]) -> None:
        self.address = str(folder / "socket")
        self.environment = environment

    def __enter__(self) -> Self:
        import subprocess

        self._process = subprocess.Popen(
            [sys.executable, __file__, "--serve", self.address],
            env=self.environment,
            stdin=subprocess.PIPE,
            start_new_session=True,
        )
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        assert self._process.stdin is not None
        self._process.stdin.close()
        self._process.wait()

    def launch(self) -> list[str]:
        """What stands before a script and its arguments, in place of ``python``; waits until it is served."""
        import time

        while not os.path.exists(self.address):  # noqa: PTH110
            if self._process.poll() is not None:
                raise RuntimeError(
                    f"the server of warm processes ended with status {self._process.returncode}"
                )
            time.sleep(0.05)
        return [sys.executable, "-IS", __file__, self.address]

    def command(self, script: Path, file: Path) -> None:
        """Write a command ``file`` that runs an installed ``script`` of Python."""
        import shlex

        file.write_text(f'#!/bin/sh\nexec {shlex.join([*self.launch(), str(script)])} "$@"\n')
        file.chmod(0o755)


if __name__ == "__main__":
    if sys.argv[1] != "--serve":
        sys.exit(ask(sys.argv[1], sys.argv[2:]))
    become(serve(sys.argv[2]))
