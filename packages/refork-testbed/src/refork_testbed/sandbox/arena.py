"""A place with things that must stay out of a tool's reach, and a look at what happened to them."""

from __future__ import annotations

import json
import os
import secrets
import shutil
import socket
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import final

from refork.sandbox.result import SandboxResult
from refork.types import Json

#: The variable of the environment that holds the secret.
VARIABLE = "REFORK_ARENA_SECRET"


@final
class Arena:
    """A secret in a file, an environment and another process; listeners; a place to write to. A context.

    Enter it before the sandbox starts: then the secret is in the environment that it could inherit.
    """

    def __init__(self) -> None:
        self.token = secrets.token_hex(12)
        self.folder = Path(tempfile.mkdtemp(prefix="refork-arena-"))
        self.secret = self.folder / "secret.txt"
        self.forged = f"forged {secrets.token_hex(6)}"
        self.shared = f"refork-{secrets.token_hex(6)}"
        self._stack = ExitStack()
        self._victim: subprocess.Popen[bytes] | None = None
        self._before: Json = {}

    def __enter__(self) -> Arena:
        self._stack.callback(shutil.rmtree, self.folder, True)
        os.environ[VARIABLE] = self.token
        self._stack.callback(os.environ.pop, VARIABLE, None)
        self._stack.callback(self._end_victim)
        self._tcp = self._listener(socket.AF_INET, socket.SOCK_STREAM, ("127.0.0.1", 0))
        self._udp = self._listener(socket.AF_INET, socket.SOCK_DGRAM, ("127.0.0.1", 0))
        # A path of a socket may be about 100 characters long, so not in the folder of the rest.
        home = Path(tempfile.mkdtemp(prefix="rs-"))
        self._stack.callback(shutil.rmtree, home, True)
        self._unix_path = str(home / "s")
        self._unix = self._listener(socket.AF_UNIX, socket.SOCK_STREAM, self._unix_path)
        self.prepare()
        self._inheritable()
        return self

    def __exit__(self, *error: object) -> None:
        self._stack.close()

    def prepare(self) -> Json:
        """Everything as at the start; what a tool is told about it."""
        for path in self.folder.iterdir():
            if path != self.secret:
                # A link to a folder goes as a link: rmtree refuses it.
                shutil.rmtree(path) if path.is_dir() and not path.is_symlink() else path.unlink()
        if not self.secret.exists() or self.secret.read_text() != self.token:
            self.secret.write_text(self.token)
        (self.folder / f"{self.token}.name").touch()
        if self._victim is None or self._victim.poll() is not None:
            self._end_victim()
            code = ["-I", "-S", "-c", "import time; time.sleep(3600)", self.token]
            self._victim = subprocess.Popen(
                [sys.executable, *code],
                env={VARIABLE: self.token},
                stdin=subprocess.DEVNULL,
                start_new_session=True,
            )
        # Taken when everything is in place: what differs from here on is a tool's doing.
        self._before = self._files()
        return {
            "folder": str(self.folder), "secret": str(self.secret), "target": str(self.folder / "target"),
            "victim": self._victim.pid, "variable": VARIABLE, "tcp": self._tcp.getsockname()[1],
            "udp": self._udp.getsockname()[1], "unix": self._unix_path, "shared": self.shared,
            "forged": self.forged,
        }  # fmt: skip

    def effects(self, result: SandboxResult, calls: Sequence[object]) -> list[str]:
        """What got out, by its effect; nothing where all was contained."""
        found = []
        told = json.dumps([result.value, result.error, [str(one)[:10000] for one in calls]])
        if self.token in told:
            found.append("the secret was told")
        if self._files() != self._before:
            found.append("a file was made, changed or deleted")
        if (Path("/dev/shm") / self.shared).exists():
            (Path("/dev/shm") / self.shared).unlink()
            found.append("shared memory was made")
        for name, listener in (("tcp", self._tcp), ("udp", self._udp), ("unix", self._unix)):
            if _reached(listener):
                found.append(f"a {name} packet arrived")
        if self._victim is not None and self._victim.poll() is not None:
            found.append("another process was ended")
        if result.kind == "refused" and self.forged in result.error:
            found.append("a refusal was forged")
        if len(calls) != result.calls:
            found.append("calls were not counted")
        return found

    def _files(self) -> Json:
        """Name -> what is there, of everything in the folder."""
        found = {}
        for path in sorted(self.folder.iterdir()):
            seen = path.lstat()
            text = path.read_text() if path == self.secret and path.is_file() else ""
            found[path.name] = [seen.st_mode, seen.st_size, seen.st_mtime_ns, seen.st_nlink, text]
        return found

    def _listener(self, family: int, kind: int, address: object) -> socket.socket:
        listener = self._stack.enter_context(socket.socket(family, kind))
        listener.bind(address)  # type: ignore[arg-type]
        if kind == socket.SOCK_STREAM:
            listener.listen()
        listener.setblocking(False)
        return listener

    def _inheritable(self) -> None:
        """A descriptor of the secret that a careless start of a process would hand on."""
        fd = os.open(self.secret, os.O_RDONLY)
        self._stack.callback(os.close, fd)
        os.set_inheritable(fd, True)

    def _end_victim(self) -> None:
        if self._victim is not None:
            self._victim.kill()
            self._victim.wait()
            self._victim = None


def _reached(listener: socket.socket) -> bool:
    """Whether something arrived; it is taken from the queue."""
    reached = False
    with suppress(BlockingIOError):
        while True:
            if listener.type == socket.SOCK_DGRAM:
                listener.recv(100)
            else:
                listener.accept()[0].close()
            reached = True
    return reached
