"""What a command says when it fails or is stopped: to a person, and to a log."""

from __future__ import annotations

import traceback
from typing import Any

import typer

from ramify.core.errors import UserError
from ramify.core.run.logs import log


def _told(event: str, level: Any, **facts: Any) -> bool:
    """Whether a log on the screen has said it, so that nothing else must."""
    told = log()
    if told is not None:
        told.tell(event, level, **facts)
    return told is not None and told.on_screen


def show_error(error: UserError) -> None:
    """What the user can mend."""
    if _told("error", "error", message=error.what, where=error.where, hint=error.hint,
             kind=type(error).__name__):  # fmt: skip
        return
    typer.secho("error: ", fg="red", bold=True, nl=False, err=True)
    typer.echo(str(error), err=True)


def show_stopped() -> None:
    """It was interrupted."""
    said = "stopped; what is recorded stays, and a command that records goes on from there."
    if not _told("error", "warning", message=said, kind="Interrupted"):
        typer.echo(f"\n{said}", err=True)


def show_crash(error: Exception) -> bool:
    """Our own fault; whether it has been said, else Python says it."""
    trace = "".join(traceback.format_exception(error))
    return _told("error", "error", message=str(error), kind=type(error).__name__, trace=trace)
