"""Model servers that are not ours, as processes of their own on loopback."""

from __future__ import annotations

import os
import socket
import subprocess
import time
import urllib.request
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Self

import pytest

from refork.errors import ServerError
from refork.growing.rollouts import grow
from refork.policies.base import Continuation, Request, Sampling
from refork.policies.remote import RemotePolicy
from refork.tree import Tree
from refork.worlds.open import open_world
from support.exported import exported, unordered


def free_port() -> int:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        return int(taken.getsockname()[1])


@dataclass
class Server:
    """The server's process, and how to start it again at the same address."""

    command: list[str]
    port: int
    log: Path
    process: subprocess.Popen[bytes] | None = None

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}/v1"

    def start(self) -> None:
        env = os.environ | {"OMP_NUM_THREADS": "1"}
        with self.log.open("ab") as log:
            self.process = subprocess.Popen(self.command, stdout=log, stderr=log, env=env)
        for _ in range(600):
            if self.process.poll() is not None:
                raise RuntimeError(self.log.read_text())
            with suppress(OSError), urllib.request.urlopen(f"{self.url}/models", timeout=2):
                return
            time.sleep(0.1)

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.kill()

    def kill(self) -> None:
        if self.process is not None:
            self.process.kill()
            self.process.wait(900)


class KilledUnderWay:
    """A policy whose server is killed when it has given so many answers, and before it gives another."""

    def __init__(self, inner: RemotePolicy, server: Server, after: int) -> None:
        self._inner, self._server, self._left = inner, server, after

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)

    def sample(self, requests: Sequence[Request], settings: Sampling) -> Iterator[Continuation]:
        count = min(self._left, len(requests))
        self._left -= count
        yield from self._inner.sample(requests[:count], settings)
        if count < len(requests):
            self._server.kill()
            for one in self._inner.sample(requests[count:], settings):
                yield replace(one, index=one.index + count)


def killed_and_resumed(server: Server, policy: RemotePolicy, settings: Sampling) -> None:
    """No draw is lost to a server's death, none is doubled, and all are what they would have been."""
    world = open_world("lock")
    tasks = world.tasks("train", 2)
    with Tree.memory() as whole, Tree.memory() as tree:
        grow(whole, policy, world, tasks, draws=4, settings=settings)
        fragile: Any = KilledUnderWay(policy, server, after=5)
        with pytest.raises(ServerError, match="no connection at each of 2 tries"):
            grow(tree, fragile, world, tasks, draws=4, settings=settings)
        server.start()
        grow(tree, policy, world, tasks, draws=4, settings=settings)
        assert unordered(exported(tree)) == unordered(exported(whole))
