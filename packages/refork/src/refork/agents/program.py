"""A program run with its models' traffic through an endpoint: recorded, or answered from the tape."""

from __future__ import annotations

import math
import os
import shutil
import signal
import subprocess
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any, Final, TypeAlias, final
from urllib.parse import urlsplit

from refork.agents.endpoint import PROVIDERS, Answering, AnsweringTools, Upstream, listening, variables
from refork.agents.folders import ContainedFolder, ContainedView, LayerKeeper, refused
from refork.agents.hook import RepeatableRun, hooked
from refork.agents.program_side import VARIABLE
from refork.agents.repeatable import VARIABLE as REPEATABLE
from refork.agents.replay import FromTape, Replayed
from refork.agents.snapshots import FolderCheck, FolderWatch, lay_start, start_of
from refork.agents.tape import ProgramRun, Tape, as_kept, changed_since, drifted, events_of
from refork.agents.tool_calls import ToolCalls, check_replayable, of_tools, tool_events
from refork.errors import BadInput, CannotDo
from refork.tree.tree import Tree

#: Exit status of a program that took too long, as of ``timeout``.
TIMED_OUT: Final = 124
#: Exit status of shells for a program that a signal ended, less the signal.
_SIGNALLED: Final = 128
#: Exit statuses of a shell that found no such command, or none that it could run.
_NO_COMMAND: Final = (126, 127)
#: Seconds between two looks at whether a program is to be stopped.
_LOOKS_S: Final = 0.1
Inside: TypeAlias = tuple[ContainedView | None, FolderCheck | None]


@final
@dataclass(frozen=True, slots=True)
class RecordSettings:
    """How a program is recorded. ``snapshots``: its folder as it is at first is kept, and which files change.

    ``patch``: a Python program shows calls of the tools that :func:`refork.agents.patch` knows.
    ``repeatable``: clock and chance of a Python program are kept, and are the same when it is run again.
    ``limit_s``: seconds until the program is ended; with a limit it has no input. ``stop`` ends it once it is
    set.
    """

    snapshots: bool = False
    patch: bool = False
    repeatable: bool = False
    limit_s: float | None = None
    stop: threading.Event | None = None


def record(
    tree: Tree,
    command: Sequence[str],
    *,
    folder: str | os.PathLike[str] | None = None,
    to: str | None = None,
    quiet: bool = False,
    then: Callable[[int], None] | None = None,
    settings: RecordSettings | None = None,
) -> ProgramRun:
    """Run a program, and put all that it asks of models on a tape: the run as it was recorded.

    The program finds our address in the variables in which the packages of providers look for one. Requests
    go on to the provider that the environment names, or all to ``to``, the address of an OpenAI-compatible
    server. What the program prints is passed on unless ``quiet``. ``then`` is told the number of exchanges
    after each. Calls of tools that are shown to us are put on the tape, too.

    Raises:
        BadInput: no such program, or no address.
        CannotDo: the program ended without asking any model, its folder is too large to keep, or it was
            stopped.
        MissingExtra: the extra ``serve`` is not installed.
        TreeError: the tree cannot be written.
    """
    place = folder_of(folder)
    whole = command_of(command, place)
    if to is not None and not to.startswith(("http://", "https://")):
        raise BadInput(f"{to!r} is no address", where="--to", hint="for example http://127.0.0.1:8000/v1")
    how = settings or RecordSettings()
    watch = FolderWatch(tree, place, files_of(tree)) if how.snapshots else None
    repeatable = RepeatableRun.new(os.environ) if how.repeatable else None
    tape = Tape(
        tree,
        command,
        place,
        start=watch and watch.blob,
        changes=None if watch is None else watch.changes,
        patched=how.patch,
        repeatable=repeatable and repeatable.facts,
    )
    status, output, seen = run_program(
        Upstream(tape, to=to, then=then), whole, place, quiet=quiet, tools=ToolCalls(tape), patch=how.patch,
        repeatable=repeatable, limit_s=how.limit_s, stop=how.stop,
    )  # fmt: skip
    ended = tape.end(status, output, readings=repeatable and repeatable.readings)
    if not seen:
        said = [line.strip() for line in (ended.output or "").splitlines() if line.strip()]
        last = f"; it last said {said[-1][:200]!r}" if status and said else ""
        raise CannotDo(
            f"the program ended with exit status {status} and asked no model that we could see{last}",
            where=" ".join(command),
            hint="it must take its model's address from one of "
            + ", ".join(name for provider in PROVIDERS for name in provider.variables)
            + "; where it has a setting for it, give it that: sh -c 'agent --base-url \"$OPENAI_BASE_URL\"'",
        )
    return ended


def replay(
    tree: Tree,
    run: ProgramRun,
    *,
    command: Sequence[str] | None = None,
    folder: str | os.PathLike[str] | None = None,
    quiet: bool = False,
    contained: ContainedRun | None = None,
) -> Replayed:
    """Run a recorded program again, with every answer from the tape and no model asked.

    Calls of tools that were intercepted do not run: the tape has what they returned or raised. All else that
    the program does outside itself it does once more, unless it is ``contained``. Without ``command`` it is
    the recorded one, in its folder.

    Raises:
        BadInput: no such program or folder; the run cannot be read.
        CannotDo: what an intercepted tool returned could not be kept.
        MissingExtra: the extra ``serve`` is not installed.
    """
    place = folder_of(folder or run.folder)
    told = list(command or run.command)
    events = events_of(tree, run)
    called = tool_events(tree, run)
    check_replayable(run, called)
    with unless_none(contained, tree) as (view, check):
        answering = FromTape(events, check)
        tools = ToolCalls(None, called, source=answering)
        status, output, _ = run_program(
            answering, command_of(told, place), place, quiet=quiet, view=view, tools=tools, patch=run.patched,
            repeatable=RepeatableRun.of(tree, run),
        )  # fmt: skip
    changed = changed_since(run, place) if command is None else ()
    return Replayed(
        run.id,
        len(events),
        len(answering.answered),
        answering.byte_equal,
        answering.divergence,
        status,
        run.exit,
        None if run.output is None else as_kept(output) == run.output,
        changed,
        None if check is None else check.difference,
        len(of_tools(called)),
        tools.given,
        drifted(run, os.environ),
        run.repeatable is not None,
    )


@final
class ContainedRun:
    """Where a recorded run is run again without a change to its folder; use as a context.

    The program sees the folder as it was when the run began, where that was kept, else as it is now.
    ``restored``: how many paths differ from how they are now; None: it was not kept.

    Raises:
        BadInput: there is no such folder, or what was kept cannot be read.
        CannotDo: the system does not grant it.
    """

    def __init__(
        self,
        tree: Tree,
        run: ProgramRun,
        *,
        folder: str | os.PathLike[str] | None = None,
        network: bool = False,
    ) -> None:
        place = folder_of(folder or run.folder)
        self.start = None if run.files is None else start_of(tree, run.files)
        self.restored: int | None = None
        self.folder = ContainedFolder(place, network=network)
        self._layers = LayerKeeper(self.folder.base)
        try:
            if self.start is not None:
                layer = Path(self._layers.folder, "start")
                layer.mkdir()
                self.restored = lay_start(tree, self.start, place, layer, files_of(tree))
                self.folder.layers = (layer,)
        except BaseException:
            self.close()
            raise

    def __enter__(self) -> ContainedRun:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Remove what was laid out."""
        self._layers.close()

    @contextmanager
    def view(self, tree: Tree, lock: AbstractContextManager[Any] | None = None) -> Iterator[Inside]:
        """A view for one program, and what compares its files with the recorded ones."""
        with self.folder.view() as view:
            check = None
            if self.start is not None:
                check = FolderCheck(tree, self.start, self.folder.folder, view.upper, lock)
            yield view, check


def unless_none(
    contained: ContainedRun | None, tree: Tree, lock: AbstractContextManager[Any] | None = None
) -> AbstractContextManager[Inside]:
    """A view of a contained run; without one, none."""
    return nullcontext((None, None)) if contained is None else contained.view(tree, lock)


def files_of(tree: Tree) -> list[Path]:
    """The files of a tree, should it lie in a program's folder."""
    return [Path(f"{tree.uri}{end}") for end in ("", "-wal", "-shm", "-journal")] if tree.uri else []


def folder_of(given: str | os.PathLike[str] | None) -> Path:
    """A folder that is there, as a whole path; None: this one.

    Raises:
        BadInput: there is none.
    """
    place = Path.cwd() if given is None else Path(given)
    if not place.is_dir():
        raise BadInput(f"there is no folder {str(place)!r}", where="--folder")
    return place.absolute()


def command_of(command: Sequence[str], folder: Path) -> list[str]:
    """A command whose program is there.

    Raises:
        BadInput: there is none.
    """
    if not command:
        raise BadInput("no command was given", hint="refork agent record -- python my_agent.py")
    if any("[redacted:" in part for part in command):
        raise BadInput(
            "the recorded command held a secret, which is not on the tape",
            where=" ".join(command),
            hint="give the whole command after --, or record it with the secret in a variable",
        )
    found = shutil.which(command[0]) or shutil.which(str(folder / command[0]))
    if found is None:
        raise BadInput(f"there is no program {command[0]!r}", hint="give a command as in a shell, after --")
    return [command[0] if os.sep not in command[0] else found, *command[1:]]


def run_program(
    answering: Answering,
    command: Sequence[str],
    folder: Path,
    *,
    quiet: bool,
    limit_s: float | None = None,
    view: ContainedView | None = None,
    tools: AnsweringTools | None = None,
    patch: bool = False,
    repeatable: RepeatableRun | None = None,
    stop: threading.Event | None = None,
) -> tuple[int, str, int]:
    """Exit status and output of a program whose requests are answered so, and how many it made.

    ``tools`` answers the calls of tools that it shows; with ``patch`` a Python program shows those of known
    packages, and with ``repeatable`` it has that clock and that chance.
    After ``limit_s`` seconds it is ended with all that it started; the status is then :data:`TIMED_OUT`.
    So it is as soon as ``stop`` is set. With a ``view`` it runs in that.

    Raises:
        BadInput: it cannot be run.
        CannotDo: it cannot be contained, or was stopped.
    """
    with listening(answering, tools) as (address, endpoint), hooked(os.environ, patch, repeatable) as more:
        # Of a run around us they would be another run's.
        rest = {name: value for name, value in os.environ.items() if name not in (VARIABLE, REPEATABLE)}
        # Some programs believe PWD, which is where we were started.
        whole = {**rest, "PWD": str(folder), **variables(address, os.environ), **more}
        environment = {name: value for name, value in whole.items() if value is not None}
        if tools is not None:
            environment[VARIABLE] = f"{address}/tools"
        try:
            before = () if view is None else view.prefix(urlsplit(address).port)
            status, output = _watched([*before, *command], folder, environment, quiet, limit_s, stop)
        except OSError as error:
            raise BadInput(f"{command[0]} cannot be run: {error}", where=str(folder)) from error
    if endpoint.broken is not None:
        raise endpoint.broken
    if view is not None:
        refused(status, output, folder)
    return status, output, endpoint.requests


def run_check(
    command: str,
    folder: Path,
    output: str,
    *,
    limit_s: float,
    view: ContainedView | None = None,
    stop: threading.Event | None = None,
) -> tuple[int, str]:
    """Exit status and output of a shell command in the folder that a program left; it reads its output.

    With a ``view`` it sees what the program changed in that.

    Raises:
        BadInput: there is no such command.
        CannotDo: it cannot be contained, or was stopped.
    """
    rest = {name: value for name, value in os.environ.items() if name not in (VARIABLE, REPEATABLE)}
    environment = {**rest, "PWD": str(folder)}
    with tempfile.TemporaryFile() as given:
        given.write(output.encode())
        given.seek(0)
        before: tuple[str, ...] = ()
        if view is not None:
            view.again()
            before = view.prefix()
        status, said = _watched(
            [*before, "sh", "-c", command], folder, environment, True, limit_s, stop, given=given
        )
    if view is not None:
        refused(status, said, folder)
    if status in _NO_COMMAND:
        raise BadInput(f"{command!r} cannot be run: {said.strip()[-400:]}", where="--check")
    return status, said


def _watched(
    command: Sequence[str],
    folder: Path,
    environment: Mapping[str, str],
    quiet: bool,
    limit_s: float | None,
    stop: threading.Event | None,
    given: IO[bytes] | None = None,
) -> tuple[int, str]:
    """Run a program to its end; what it prints is kept, and passed on as it comes. ``given``: what it reads.

    Without a limit Ctrl-C reaches the program as it would in a shell, for both are of one group, and we wait
    for what it does. With a limit, or where it may be stopped, it is of a group of its own, which is ended as
    a whole.
    """
    apart = limit_s is not None or stop is not None
    with subprocess.Popen(
        command,
        cwd=folder,
        env=environment,
        stdin=given or (subprocess.DEVNULL if apart else None),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        start_new_session=apart,
    ) as process:
        kept: list[bytes] = []
        lock = threading.Lock()
        readers = [
            threading.Thread(target=_copy, args=(pipe, None if quiet else to, kept, lock), daemon=True)
            for pipe, to in ((process.stdout, 1), (process.stderr, 2))
        ]
        for reader in readers:
            reader.start()
        while True:
            try:
                status = _waited(process, limit_s, stop)
                break
            except subprocess.TimeoutExpired:
                os.killpg(process.pid, signal.SIGKILL)
                process.wait()
                status = TIMED_OUT
                break
            except (KeyboardInterrupt, CannotDo):
                if apart:
                    os.killpg(process.pid, signal.SIGKILL)
                    raise
        for reader in readers:
            reader.join()
    output = b"".join(kept).decode("utf-8", "replace")
    return (status if status >= 0 else _SIGNALLED - status), output


def _waited(process: subprocess.Popen[bytes], limit_s: float | None, stop: threading.Event | None) -> int:
    """The exit status of a program, once it has ended; TimeoutExpired after its limit, CannotDo at a stop."""
    if stop is None:
        return process.wait(limit_s)
    end = math.inf if limit_s is None else time.monotonic() + limit_s
    while True:
        try:
            return process.wait(_LOOKS_S)
        except subprocess.TimeoutExpired:
            if stop.is_set():
                raise CannotDo("it was stopped", hint="what was drawn is on the tape") from None
            if time.monotonic() >= end:
                raise


def _copy(pipe: IO[bytes] | None, to: int | None, kept: list[bytes], lock: threading.Lock) -> None:
    """Keep the lines of a pipe; ``to``: descriptor to which they also go, as they are."""
    for line in pipe or ():
        with lock:
            kept.append(line)
        if to is not None:
            os.write(to, line)
