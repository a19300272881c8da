"""Peers that live in an environment of their own, since they do not fit beside our pinned packages."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
import venv
from pathlib import Path
from typing import Any, Self

#: Where these environments are kept.
PLACE = Path.home() / ".cache" / "refork" / "peers"


def peer_python(packages: tuple[str, ...], named: str, *, make: bool, **settings: str) -> str | None:
    """A Python with the packages (pinned, the first one names the folder); None where there is none.

    ``named``: the environment variable that may name another Python. ``make``: whether to install them now.
    ``settings``: environment variables of the installation; with any, nothing is taken from pip's cache.
    """
    if os.environ.get(named):
        return os.environ[named]
    folder = PLACE / packages[0].replace("==", "-")
    python = folder / "bin" / "python"
    if (folder / "ready").exists():
        return str(python)
    if not make:
        print(f"without {packages[0]}: it is not installed (run without --quick, or set {named})")
        return None
    print(f"installing {packages[0]} in {folder}", flush=True)
    venv.create(folder, with_pip=True, clear=True)
    fresh = ["--no-cache-dir", "--no-binary", packages[0].split("==")[0]] if settings else []
    done = subprocess.run(
        [python, "-m", "pip", "install", "--quiet", *fresh, *packages],
        capture_output=True, check=False, env=os.environ | settings,
    )  # fmt: skip
    if done.returncode:
        print(f"{packages[0]} cannot be installed: {done.stderr.decode()[-300:]}", file=sys.stderr)
        return None
    (folder / "ready").touch()
    return str(python)


def peer_commands(packages: tuple[str, ...], named: str, *, make: bool) -> Path | None:
    """A folder whose ``node_modules`` holds packages of npm, named with their versions; None: there is none.

    ``named`` and ``make`` as in :func:`peer_python`.
    """
    if os.environ.get(named):
        return Path(os.environ[named])
    folder = PLACE / "npm"
    wanted = json.dumps(packages)
    ready = folder / "ready"
    if ready.exists() and ready.read_text() == wanted:
        return folder
    if not make or shutil.which("npm") is None:
        print(f"without {packages[0]}: run without --quick where npm is, or set {named}")
        return None
    print(f"installing {packages[0]} and {len(packages) - 1} more in {folder}", flush=True)
    folder.mkdir(parents=True, exist_ok=True)
    done = subprocess.run(
        ["npm", "install", "--no-audit", "--no-fund", "--prefix", folder, *packages],
        capture_output=True, check=False,
    )  # fmt: skip
    if done.returncode:
        print(f"{packages[0]} cannot be installed: {done.stderr.decode()[-300:]}", file=sys.stderr)
        return None
    ready.write_text(wanted)
    return folder


class Worker:
    """A script that keeps running under another Python: a line of JSON in, a line of JSON out."""

    def __init__(self, python: str, script: Path, *arguments: str) -> None:
        # A file, not a pipe: llama.cpp says much, and nobody reads it while it works.
        self._said = tempfile.TemporaryFile("w+")  # noqa: SIM115
        self._child = subprocess.Popen(
            [python, str(script), *arguments], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
            stderr=self._said, text=True, bufsize=1,
        )  # fmt: skip

    def ask(self, **what: Any) -> Any:
        """The answer to one request; raises RuntimeError with what the script said where it ended."""
        assert self._child.stdin is not None
        assert self._child.stdout is not None
        try:
            print(json.dumps(what), file=self._child.stdin, flush=True)
            line = self._child.stdout.readline()
        except BrokenPipeError:
            line = ""
        if not line:
            self._child.wait()
            self._said.seek(0)
            raise RuntimeError(f"the peer ended: {self._said.read()[-800:]}")
        return json.loads(line)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._child.kill()
        self._child.communicate()
        self._said.close()
