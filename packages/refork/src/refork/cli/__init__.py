"""The command line: one thin file per command, each read when it is asked for."""

from __future__ import annotations

import os
import sys
from typing import Annotated

import typer

from refork import __version__
from refork.cli.commands import Product
from refork.cli.failing import begin, give_out, mendable, show_crash, show_error, show_stopped
from refork.cli.watching import watch
from refork.errors import UserError
from refork.visible import show_only

INTERRUPTED = 130

app = typer.Typer(
    name="refork",
    cls=Product,
    help="Go back to any token of a recorded rollout, change one thing, run on many times, and compare.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode="markdown",
)


def _version(asked: bool) -> None:
    if asked:
        typer.echo(f"refork {__version__}")
        raise typer.Exit


@app.callback()
def _root(
    context: typer.Context,
    version: Annotated[
        bool, typer.Option("--version", help="Print the version.", callback=_version, is_eager=True)
    ] = False,
    profile: Annotated[
        bool,
        typer.Option(
            "--profile", help="Of a long command: say at the end where the time went, and write a trace."
        ),
    ] = False,
    track: Annotated[
        str | None,
        typer.Option(
            "--track",
            help="Of growing and training: curves in tensorboard, trackio, wandb or mlflow, each with "
            ":WHERE; nothing is uploaded.",
            show_default=False,
        ),
    ] = None,
) -> None:
    """Options that come before every command."""
    watch(context, profile=profile, track=track)


def main() -> None:
    """Run the command line: exit status 0 done, 1 found something, 2 usage, 130 interrupted."""
    # Before anything can print: nothing foreign is to reach a terminal as it is.
    show_only()
    # Tokenizers that have run in threads warn in every process that is forked off this one afterwards.
    os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
    begin()
    try:
        app()
    except UserError as error:
        show_error(error)
        sys.exit(error.exit_code)
    except SystemExit as stop:
        if stop.code == INTERRUPTED:
            show_stopped()
        refused = give_out()
        if refused is None:
            raise
        show_error(refused)
        sys.exit(refused.exit_code)
    except Exception as error:
        refused = mendable(error, sys.argv[1:]) if isinstance(error, OSError) else None
        if refused is not None:
            give_out()
            show_error(refused)
            sys.exit(refused.exit_code)
        show_crash(error)
        raise
