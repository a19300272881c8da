"""``Sandbox``: a generated tool in a process of its own, which can reach nothing but its caller."""

from __future__ import annotations

import math
import os
import re
import select
import signal
import time
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from typing import Any, TypeAlias, final

from refork.errors import BadInput, CannotDo, InternalError, UserError
from refork.sandbox import screen
from refork.sandbox.inside import wire
from refork.sandbox.process import EndedError, Zygote
from refork.sandbox.result import Kind, Layer, Limits, SandboxResult, warn_open
from refork.types import Json

# The parent's side of a run's two pipes: frames with a deadline and a cap, from a process that may lie.


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


#: Answers a tool's calls: the name ("app.function" or "tools.name") and the keyword arguments.
Call: TypeAlias = Callable[[str, Json], Any]
LAYERS = ("screen", "builtins", "rlimits", "landlock", "seccomp")
#: Layers without which nothing runs -> what is open where they do not hold. Landlock is within seccomp.
NEEDED = {
    "rlimits": "the machine's memory and processors",
    "seccomp": "files, network, processes and environment of whoever runs this",
}
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*\.[A-Za-z_][A-Za-z0-9_]*\Z")
#: Seconds in which a new process must have restricted itself.
START = 30.0


@final
class Sandbox:
    """Runs generated tools. Use as a context, or call :meth:`close`.

    Layers (see ``layers`` for what holds on this system): ``screen`` reads the source before anything runs;
    ``builtins`` leaves it the listed modules and functions; ``rlimits`` bounds memory, CPU and files;
    ``landlock`` and ``seccomp`` (Linux) have the kernel refuse files, network, processes and signals.
    Nothing runs without ``rlimits`` and ``seccomp``, each of which bounds what no other layer does; with
    ``unconfined`` it does, and a warning says what is open. ``off`` leaves layers out. ``preload`` names
    modules of the standard library that are loaded before the kernel shuts the files: without the layers
    ``screen`` and ``builtins``, they are what a run can import.

    Raises:
        BadInput: ``off`` names what is no layer, or one that is needed, without ``unconfined``.
    """

    def __init__(
        self,
        limits: Limits | None = None,
        *,
        off: Iterable[str] = (),
        unconfined: bool = False,
        preload: Iterable[str] = (),
    ) -> None:
        self.limits = limits or Limits()
        self._preload = tuple(preload)
        self._off, self._unconfined = frozenset(off), unconfined
        if unknown := sorted(self._off - set(LAYERS)):
            raise BadInput(f"there is no layer {unknown[0]!r}", hint=f"one of {', '.join(LAYERS)}")
        if not unconfined and (needed := self._off & NEEDED.keys()):
            raise BadInput(f"nothing runs without {sorted(needed)[0]!r}", hint="unless with unconfined=True")
        self._zygote: Zygote | None = None
        self._layers: tuple[Layer, ...] | None = None

    def __enter__(self) -> Sandbox:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def close(self) -> None:
        """End the sandbox's process; a later run starts another."""
        if self._zygote is not None:
            self._zygote.close()
            self._zygote = None

    @property
    def process(self) -> int | None:
        """Number of the process that runs are forked from; None where none is running."""
        return None if self._zygote is None else self._zygote.pid

    @property
    def layers(self) -> tuple[Layer, ...]:
        """What holds on this system, tried out when the sandbox starts.

        Raises:
            CannotDo: a required layer does not hold, or the system has no processes of the needed kind.
        """
        if self._layers is None:
            self._process()
        return self._layers or ()

    def run(
        self, source: str, name: str, arguments: Mapping[str, Any], call: Call | None = None
    ) -> SandboxResult:
        """Run ``name(apis, tools, **arguments)`` of ``source``; ``call`` answers what the tool asks for.

        What ``call`` raises is told to the tool, which may handle it. Without ``call`` every call fails.

        Raises:
            BadInput: arguments that are not JSON. CannotDo: as for :attr:`layers`.
        """
        return self._run(source, name, dict(arguments), call)

    def load(self, source: str, name: str) -> SandboxResult:
        """Compile and load a source without calling ``name``; ``ok`` where it defines that function."""
        return self._run(source, name, None, None)

    def _run(self, source: str, name: str, arguments: Json | None, call: Call | None) -> SandboxResult:
        try:
            job = wire.pack({"source": source, "name": name, "arguments": arguments})
        except (TypeError, ValueError, RecursionError) as error:
            raise BadInput(f"a tool's arguments must be JSON: {error}", where=name) from error
        if "screen" not in self._off and (reason := screen.refusal(source)):
            return SandboxResult("refused", error=reason)
        zygote = self._process()
        ours, theirs = _pipes()
        try:
            try:
                pid = zygote.ask({"do": "run", "plan": self._plan()}, theirs)["pid"]
            finally:
                # While a copy of them is open here, the end of the run is never seen.
                for fd in theirs:
                    os.close(fd)
        except EndedError:
            for fd in ours:
                os.close(fd)
            self.close()
            return SandboxResult("killed", error="the sandbox's process ended")
        # From here on the other side is whatever the source is: every frame has a deadline and a cap.
        conversation = _Conversation(self.limits, call)
        ended: dict[str, Any] | None = None
        try:
            with Channel(*ours, cap=self.limits.output) as channel:
                result = conversation.hold(channel, job)
        finally:
            try:
                ended = zygote.ask({"do": "end", "pid": pid})
            except EndedError:
                self.close()
        return result or conversation.result(*_ending(ended, self._plan()["cpu"]))

    def _plan(self) -> Json:
        """What a run's process is to apply."""
        on = {layer.name: layer.on for layer in self._layers or ()}
        wanted = {name: on.get(name, name not in self._off) for name in LAYERS}
        # Above the limit of the clock, so that this one is met first and names what was set.
        return {**wanted, "cpu": math.ceil(self.limits.seconds) + 1, "memory": self.limits.memory}

    def _process(self) -> Zygote:
        zygote = self._zygote
        if zygote is not None and zygote.owner == os.getpid() and not zygote.ended:
            return zygote
        zygote = Zygote(self._preload)
        try:
            # Each process anew: what held for one that ended need not hold for this one.
            self._layers = self._probed(zygote)
            missing = [layer for layer in self._layers if layer.name in NEEDED and not layer.on]
            if missing and not self._unconfined:
                raise CannotDo(
                    "generated code cannot be confined here: "
                    + "; ".join(f"{one.name} does not hold ({one.note})" for one in missing),
                    where="sandbox",
                    hint="run it on Linux with seccomp; unconfined where all else is walled off",
                )
            if missing:
                warn_open("generated code", ", ".join(NEEDED[one.name] for one in missing))
        except EndedError as error:
            zygote.close()
            raise CannotDo(
                "the sandbox's process did not start", hint="it runs sys.executable -I -S"
            ) from error
        except BaseException:
            zygote.close()
            raise
        self._zygote = zygote
        return zygote

    def _probed(self, zygote: Zygote) -> tuple[Layer, ...]:
        found = zygote.ask({"do": "probe", "plan": self._plan()})
        if found["missing"]:
            raise BadInput(f"no module {found['missing'][0]!r} can be loaded before the sandbox's runs")
        notes = {
            "rlimits": f"not on this system: {', '.join(found['unlimited'])}" if found["unlimited"] else "",
            "landlock": f"version {found['landlock']}",
        }
        layers = []
        for name in LAYERS:
            if name in self._off:
                layers.append(Layer(name, on=False, note="left out as asked"))
            elif name in found["failed"]:
                layers.append(Layer(name, on=False, note=found["failed"][name]))
            else:
                layers.append(Layer(name, on=True, note=notes.get(name, "")))
        return tuple(layers)


@final
class _Conversation:
    """What is said with one run's process, which may say anything."""

    def __init__(self, limits: Limits, call: Call | None) -> None:
        self._limits, self._call = limits, call
        self._spent, self._calls, self._turned = 0.0, 0, 0.0

    def result(self, kind: Kind, error: str = "", value: Any = None) -> SandboxResult:
        """A result with what was spent so far."""
        return SandboxResult(kind, value, error, self._spent, self._calls)

    def hold(self, channel: Channel, job: bytes) -> SandboxResult | None:
        """Send the job, answer calls, and return the result; None where the process ended without one."""
        limits = self._limits
        try:
            if "ready" not in channel.receive(time.monotonic() + START):
                return self.result("killed", "it sent what is no answer")
            said = self._turn(channel, job)
            while "call" in said:
                if self._calls >= limits.calls:
                    return self.result("killed", f"it made more than {limits.calls} calls")
                said = self._turn(channel, self._answer(said))
        except TimeoutError:
            return self.result("timeout", f"not done after {self._allowed():g} s")
        except TooLongError:
            return self.result("killed", f"it sent more than {limits.output} bytes at once")
        except MalformedError as error:
            return self.result("killed", f"it sent what is no answer: {error}")
        except EOFError:
            return None
        if said.keys() == {"ok"}:
            return self.result("ok", value=said["ok"])
        if said.get("kind") in ("error", "memory") and isinstance(said.get("error"), str):
            return self.result(said["kind"], said["error"][:4000])
        return self.result("killed", "it sent what is no answer")

    def _allowed(self) -> float:
        """The limit that the last turn ran into."""
        turn = self._limits.turn
        return turn if turn is not None and self._turned >= turn else self._limits.seconds

    def _turn(self, channel: Channel, frame: bytes) -> Json:
        """Give the tool its turn, on its own clock."""
        started = time.monotonic()
        left = self._limits.seconds - self._spent
        deadline = started + (left if self._limits.turn is None else min(left, self._limits.turn))
        try:
            channel.send(frame, deadline)
            return channel.receive(deadline)
        finally:
            self._turned = time.monotonic() - started
            self._spent += self._turned

    def _answer(self, said: Json) -> bytes:
        name, arguments = said["call"], said.get("arguments")
        if not isinstance(name, str) or not _NAME.match(name) or not isinstance(arguments, dict):
            raise MalformedError("a call has a name and keyword arguments")
        self._calls += 1
        if self._call is None:
            return wire.pack({"error": f"there is no environment to answer {name}"})
        try:
            return wire.pack({"ok": self._call(name, arguments)})
        except UserError as error:
            told = str(error)
        except InternalError:
            raise
        except Exception as error:  # whatever an environment raises is the tool's to handle
            told = f"{type(error).__name__}: {error}"
        return wire.pack({"error": told[:4000]})


def _pipes() -> tuple[tuple[int, int], tuple[int, int]]:
    """Two pipes: our (read, write) ends and theirs."""
    from_tool, tool_writes = os.pipe()
    tool_reads, to_tool = os.pipe()
    return (from_tool, to_tool), (tool_reads, tool_writes)


def _ending(ended: dict[str, Any] | None, cpu: int) -> tuple[Kind, str]:
    """Kind and reason of a run that ended without an answer."""
    if ended is None:
        return "killed", "the sandbox's process ended"
    status = ended["status"]
    if status == -signal.SIGXCPU:
        return "timeout", f"more than {cpu} s of processor time"
    if status < 0:
        # Real-time signals have numbers only.
        named = {one.value: one.name for one in signal.Signals}
        return "killed", f"it was ended by {named.get(-status, f'signal {-status}')}"
    return "killed", f"it ended without a result (exit status {status})"
