"""What a command says when it fails or is stopped."""

from __future__ import annotations

import errno
import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

import typer

from refork.cli.screen import secho
from refork.errors import CannotDo, UserError
from refork.visible import json_text


class _Answered:
    """Whether this run of the command line has printed its JSON document."""

    yes = False


def answer_json(data: Any) -> None:
    """One JSON document on standard output: a command's answer."""
    _Answered.yes = True
    typer.echo(json_text(data, indent=2))


def begin() -> None:
    """A command starts: nothing is answered yet."""
    _Answered.yes = False


def _answer_error(kind: str, what: str, where: str | None = None, hint: str | None = None) -> None:
    """Where ``--json`` was asked for and nothing was answered, the answer is why: ``{"error": {...}}``.

    So a program that reads the output finds the reason where it looks, beside the exit status.
    """
    if "--json" in sys.argv[1:] and not _Answered.yes:
        answer_json({"error": {"kind": kind, "what": what, "where": where, "hint": hint}})


def show_error(error: UserError) -> None:
    """What the user can mend."""
    _answer_error(type(error).__name__, error.what, error.where, error.hint)
    secho("error: ", fg="red", bold=True, nl=False, err=True)
    typer.echo(str(error), err=True)


#: What a system refuses wherever it is, and the next thing to try.
_ANYWHERE: Final = {
    errno.ENOSPC: "make room, or name another folder",
    errno.EDQUOT: "make room, or name another folder",
    errno.EROFS: "name a folder that can be written",
    errno.EACCES: "name another one, or let this user read and write it",
    errno.EPERM: "name another one, or let this user read and write it",
}
#: What it refuses of an open file, standard output among them, whose name it does not say.
_FULL: Final = frozenset({errno.ENOSPC, errno.EDQUOT})
#: What it refuses of a name, which is the user's where it was typed.
_OF_A_NAME: Final = {
    errno.ENOENT: "is it spelt right?",
    errno.ENOTDIR: "a part of this name is a file",
    errno.EISDIR: "name a file: this is a folder",
    errno.EEXIST: "name another one: this is there already",
    errno.ENAMETOOLONG: "name a shorter one",
    errno.ELOOP: "its links go round in a circle",
}


def mendable(error: OSError, typed: Sequence[str]) -> UserError | None:
    """What the system refused as the user's error; None where it is none: a file nobody named is ours."""
    if error.errno in _FULL and error.filename is None:
        return CannotDo(
            f"the system refuses: {error.strerror}", where="what is written", hint="make room for it"
        )
    if error.errno is None or not isinstance(error.filename, str):
        return None
    hint = _ANYWHERE.get(error.errno)
    if hint is None and _named(error.filename, typed):
        hint = _OF_A_NAME.get(error.errno)
    if hint is None:
        return None
    return CannotDo(f"the system refuses: {error.strerror}", where=error.filename, hint=hint)


def _named(file: str, typed: Sequence[str]) -> bool:
    """Whether a file is one that was typed, alone or as an option's value, or lies at, above or beside it.

    Beside: what is to appear whole is written under another name first.
    """
    where, here = Path(file).absolute(), Path.cwd()
    named = [Path(part).absolute() for one in typed for part in (one, one.partition("=")[2]) if part]
    near = {where, *where.parents}
    return any(
        one in near or one.parent == where.parent or (here in where.parents and where in one.parents)
        for one in named
    )


def give_out() -> UserError | None:
    """Write what standard output still holds; why it could not be written, if it could not."""
    try:
        sys.stdout.flush()
    except BrokenPipeError:
        return None
    except OSError as error:
        # Python would try again at its end, and fail without a message.
        sys.stdout = Path(os.devnull).open("w", encoding="utf-8")  # noqa: SIM115 - it lasts to the end
        return mendable(error, ())
    return None


def show_stopped() -> None:
    """It was interrupted."""
    _answer_error("Interrupted", "it was stopped", hint="what is recorded stays; the same command goes on")
    typer.echo("\nstopped; what is recorded stays, and a command that records goes on from there.", err=True)


def show_crash(error: Exception) -> None:
    """Our own fault, which Python says with its traceback."""
    _answer_error(type(error).__name__, str(error), hint="this is a bug of ours: please report the traceback")
