"""A PostgreSQL server of our own, for tests and benchmarks: in a temporary folder, on a Unix socket."""

from __future__ import annotations

import ctypes
import os
import pwd
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

USER = "refork"
#: A user who must give a password.
GUARDED = "guarded"
MISSING = (
    "the shared store was not tested: no PostgreSQL server binaries on PATH or in /usr/lib/postgresql "
    "(Debian: apt install postgresql)"
)
_SET_DEATH_SIGNAL = 1


def binaries() -> Path | None:
    """The folder of initdb and postgres, the newest where there are several; None where there is none."""
    found = shutil.which("initdb")
    if found and (Path(found).resolve().parent / "postgres").exists():
        return Path(found).resolve().parent
    installed = Path("/usr/lib/postgresql").glob("*/bin/initdb")
    numbered = [path.parent for path in installed if path.parent.parent.name.isdigit()]
    return max(numbered, key=lambda path: int(path.parent.name), default=None)


def _unprivileged() -> dict[str, object]:
    """How to run as nobody where we are root, which the server refuses to be."""
    if os.geteuid():
        return {}
    who = pwd.getpwnam("nobody")
    return {"user": who.pw_uid, "group": who.pw_gid, "extra_groups": []}


def _die_with_parent() -> None:
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_SET_DEATH_SIGNAL, signal.SIGQUIT)


class PostgresServer:
    """A cluster in a folder of its own; ``durable`` as in real use, else nothing is flushed."""

    def __init__(self, durable: bool = False, settings: tuple[str, ...] = ()) -> None:
        found = binaries()
        if found is None:
            raise FileNotFoundError(MISSING)
        self._bin = found
        self.folder = Path(tempfile.mkdtemp(prefix="refork-pg-"))
        self._as = _unprivileged()
        if self._as:
            os.chown(self.folder, self._as["user"], self._as["group"])
        self._data = self.folder / "data"
        options = ["-D", self._data, "-U", USER, "-A", "trust", "-E", "UTF8", "--locale=C", "--no-sync"]
        subprocess.run([found / "initdb", *options], check=True, capture_output=True, cwd="/", **self._as)
        rules = self._data / "pg_hba.conf"
        rules.write_text(f"local all {GUARDED} scram-sha-256\n" + rules.read_text())
        flush = "on" if durable else "off"
        self._settings = (
            "listen_addresses=", f"unix_socket_directories={self.folder}", "max_connections=200",
            "shared_buffers=32MB", f"fsync={flush}", f"full_page_writes={flush}", "autovacuum_naptime=10",
            *settings,
        )  # fmt: skip
        self._process: subprocess.Popen[bytes] | None = None
        self.start()

    def start(self) -> None:
        """Run it, and return once it answers."""
        command = [self._bin / "postgres", "-D", self._data, *(f"--{s}" for s in self._settings)]
        with (self.folder / "log").open("ab") as log:
            self._process = subprocess.Popen(
                command, stdout=log, stderr=log, cwd="/",
                preexec_fn=_die_with_parent,  # noqa: PLW1509 - it calls nothing of Python's
                **self._as,
            )  # fmt: skip
        ready = [self._bin / "pg_isready", "-h", self.folder, "-U", USER, "-d", "postgres", "-q"]
        for _ in range(500):
            if subprocess.run(ready, check=False).returncode == 0:
                return
            if self._process.poll() is not None:
                break
            time.sleep(0.02)
        raise RuntimeError((self.folder / "log").read_text()[-2000:])

    def stop(self, how: signal.Signals = signal.SIGINT) -> None:
        """End it: SIGINT breaks connections off and shuts down, SIGQUIT is a crash."""
        if self._process is not None:
            self._process.send_signal(how)
            self._process.wait(900)
            self._process = None

    def close(self) -> None:
        """End it and delete what it stored."""
        self.stop(signal.SIGQUIT)
        shutil.rmtree(self.folder, ignore_errors=True)

    def conninfo(self, database: str = "postgres", user: str = USER) -> str:
        """What psycopg.connect takes."""
        return f"host={self.folder} user={user} dbname={database}"

    def address(self, tree: str, database: str = "postgres", user: str = USER) -> str:
        """The address of a tree."""
        return f"postgresql://{user}@/{database}?host={self.folder}&tree={tree}"
