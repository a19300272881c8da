"""The parent's side of a run's two pipes: frames with a deadline and a cap, from a process that may lie."""

from __future__ import annotations

import os
import select
import time
from contextlib import suppress
from typing import Any, final

from refork.sandbox.inside import wire


class TooLongError(Exception):
    """The other side sent more than it may."""


class MalformedError(Exception):
    """The other side sent what is not a frame."""


@final
class Channel:
    """Two pipe ends, non-blocking; use as a context."""

    def __init__(self, reads: int, writes: int, cap: int) -> None:
        self._reads, self._writes, self._cap = reads, writes, cap
        os.set_blocking(reads, False)
        os.set_blocking(writes, False)

    def __enter__(self) -> Channel:
        return self

    def __exit__(self, *error: object) -> None:
        os.close(self._reads)
        os.close(self._writes)

    def send(self, frame: bytes, deadline: float) -> None:
        """Write all of a frame.

        Raises:
            TimeoutError: the other side did not read it before ``deadline`` (monotonic seconds).
        """
        view = memoryview(frame)
        while view:
            self._wait(self._writes, select.POLLOUT, deadline)
            with suppress(BlockingIOError):
                try:
                    view = view[os.write(self._writes, view[: 1 << 16]) :]
                except BrokenPipeError:
                    return  # it ended: the next receive says so

    def receive(self, deadline: float) -> dict[str, Any]:
        """The next frame.

        Raises:
            TimeoutError: it was not complete at ``deadline`` (monotonic seconds).
            EOFError: the other side ended. TooLongError, MalformedError: what it sent is not a frame.
        """
        (length,) = wire.HEAD.unpack(self._exactly(wire.HEAD.size, deadline))
        if length > self._cap:
            raise TooLongError
        try:
            body = wire.unpack(self._exactly(length, deadline))
        except ValueError as error:
            raise MalformedError(str(error)) from error
        if not isinstance(body, dict):
            raise MalformedError("not an object")
        return body

    def _exactly(self, count: int, deadline: float) -> bytes:
        parts = []
        while count:
            self._wait(self._reads, select.POLLIN, deadline)
            with suppress(BlockingIOError):
                part = os.read(self._reads, min(count, 1 << 16))
                if not part:
                    raise EOFError
                parts.append(part)
                count -= len(part)
        return b"".join(parts)

    @staticmethod
    def _wait(fd: int, event: int, deadline: float) -> None:
        left = deadline - time.monotonic()
        poll = select.poll()
        poll.register(fd, event)
        if left <= 0 or not poll.poll(left * 1000):
            raise TimeoutError
