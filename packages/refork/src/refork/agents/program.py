"""A program run with its models' traffic through an endpoint: recorded, or answered from the tape."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import threading
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import IO, Final

from refork.agents.endpoint import Answering, Upstream, listening, variables
from refork.agents.replay import FromTape, Replayed
from refork.agents.tape import ProgramRun, Tape, as_kept, events_of, sources_of
from refork.errors import BadInput, CannotDo
from refork.tree.tree import Tree

#: Exit status of a program that took too long, as of ``timeout``.
TIMED_OUT: Final = 124
#: Exit status of shells for a program that a signal ended, less the signal.
_SIGNALLED: Final = 128


def record(
    tree: Tree,
    command: Sequence[str],
    *,
    folder: str | os.PathLike[str] | None = None,
    to: str | None = None,
    quiet: bool = False,
    then: Callable[[int], None] | None = None,
) -> ProgramRun:
    """Run a program, and put all that it asks of models on a tape: the run as it was recorded.

    The program finds our address in the variables in which the packages of providers look for one. Requests
    go on to the provider that the environment names, or all to ``to``, the address of an OpenAI-compatible
    server. What the program prints is passed on unless ``quiet``. ``then`` is told the number of exchanges
    after each.

    Raises:
        BadInput: no such program, or no address.
        CannotDo: the program ended without asking any model.
        MissingExtra: the extra ``serve`` is not installed.
        TreeError: the tree cannot be written.
    """
    place = folder_of(folder)
    whole = command_of(command, place)
    if to is not None and not to.startswith(("http://", "https://")):
        raise BadInput(f"{to!r} is no address", where="--to", hint="for example http://127.0.0.1:8000/v1")
    tape = Tape(tree, command, place)
    status, output, seen = run_program(Upstream(tape, to=to, then=then), whole, place, quiet=quiet)
    ended = tape.end(status, output)
    if not seen:
        raise CannotDo(
            f"the program ended with exit status {status} and asked no model that we could see",
            where=" ".join(command),
            hint="it must take its model's address from a variable ("
            + ", ".join(variables("", {}).keys() - {"NO_PROXY", "no_proxy"})
            + "); where it sets one itself, let it read the variable",
        )
    return ended


def replay(
    tree: Tree,
    run: ProgramRun,
    *,
    command: Sequence[str] | None = None,
    folder: str | os.PathLike[str] | None = None,
    quiet: bool = False,
) -> Replayed:
    """Run a recorded program again, with every answer from the tape and no model asked.

    Its own tools run again: what they do outside the program they do once more. Without ``command`` it is the
    recorded one, in its folder.

    Raises:
        BadInput: no such program or folder; the run cannot be read.
        MissingExtra: the extra ``serve`` is not installed.
    """
    place = folder_of(folder or run.folder)
    told = list(command or run.command)
    events = events_of(tree, run)
    answering = FromTape(events)
    status, output, _ = run_program(answering, command_of(told, place), place, quiet=quiet)
    known = sources_of(told, place) if command is None else {}
    changed = tuple(name for name, digest in run.sources.items() if known.get(name, digest) != digest)
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
    )


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
) -> tuple[int, str, int]:
    """Exit status and output of a program whose requests are answered so, and how many it made.

    After ``limit_s`` seconds it is ended with all that it started; the status is then :data:`TIMED_OUT`.
    """
    with listening(answering) as (address, endpoint):
        environment = {**os.environ, **variables(address, os.environ)}
        try:
            status, output = _watched(command, folder, environment, quiet, limit_s)
        except OSError as error:
            raise BadInput(f"{command[0]} cannot be run: {error}", where=str(folder)) from error
    if endpoint.broken is not None:
        raise endpoint.broken
    return status, output, endpoint.requests


def _watched(
    command: Sequence[str],
    folder: Path,
    environment: Mapping[str, str],
    quiet: bool,
    limit_s: float | None,
) -> tuple[int, str]:
    """Run a program to its end; what it prints is kept, and passed on as it comes.

    Without a limit Ctrl-C reaches the program as it would in a shell, for both are of one group, and we wait
    for what it does. With a limit it is of a group of its own, which is ended as a whole.
    """
    with subprocess.Popen(
        command,
        cwd=folder,
        env=environment,
        stdin=None if limit_s is None else subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        start_new_session=limit_s is not None,
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
                status = process.wait(limit_s)
                break
            except subprocess.TimeoutExpired:
                os.killpg(process.pid, signal.SIGKILL)
                process.wait()
                status = TIMED_OUT
                break
            except KeyboardInterrupt:
                if limit_s is not None:
                    os.killpg(process.pid, signal.SIGKILL)
                    raise
        for reader in readers:
            reader.join()
    output = b"".join(kept).decode("utf-8", "replace")
    return (status if status >= 0 else _SIGNALLED - status), output


def _copy(pipe: IO[bytes] | None, to: int | None, kept: list[bytes], lock: threading.Lock) -> None:
    """Keep the lines of a pipe; ``to``: descriptor to which they also go, as they are."""
    for line in pipe or ():
        with lock:
            kept.append(line)
        if to is not None:
            os.write(to, line)
