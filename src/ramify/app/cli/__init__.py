"""The command line: one thin file per noun."""

from __future__ import annotations

import os
import sys
from importlib import import_module
from typing import Annotated

import typer

from ramify import __version__
from ramify.core.errors import UserError

INTERRUPTED = 130

app = typer.Typer(
    name="ramify",
    help="Go back to any token of a recorded rollout, change one thing, run on many times, and compare.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode="markdown",
)


def _version(asked: bool) -> None:
    if asked:
        typer.echo(f"ramify {__version__}")
        raise typer.Exit


@app.callback()
def _root(
    version: Annotated[
        bool, typer.Option("--version", help="Print the version.", callback=_version, is_eager=True)
    ] = False,
) -> None:
    """Options that come before every noun."""


#: The nouns in the order of the help, each with the file of its verbs.
_NOUNS = {
    "tree": "tree", "organism": "organism", "policy": "policy", "world": "world", "implicit": "implicit",
    "credit": "credit", "maze": "maze", "recovery": "recovery", "train": "train", "learn": "learn",
    "cliff": "cliff", "collapse": "collapse", "probe": "probe_stance", "forensics": "forensics_run",
    "crosscoder": "crosscoder_run", "memory": "memory_run", "rot": "rot", "pin": "pin", "gate": "gate",
    "route": "route", "localize": "localize", "kernel": "kernel", "evolve": "evolve", "judge": "judge",
    "speculate": "speculate", "simulate": "simulate", "theory": "theory",
}  # fmt: skip
#: Files whose verbs stand without a noun.
_ALONE = ("fork", "grow", "demo", "serve", "view")


def _mount() -> None:
    for noun, file in _NOUNS.items():
        app.add_typer(import_module(f"{__name__}.{file}").app, name=noun)
    for file in _ALONE:
        import_module(f"{__name__}.{file}").register(app)


def main() -> None:
    """Run the command line: exit status 0 done, 1 found something, 2 usage, 130 interrupted."""
    _mount()
    os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
    try:
        app()
    except UserError as error:
        typer.secho("error: ", fg="red", bold=True, nl=False, err=True)
        typer.echo(str(error), err=True)
        sys.exit(error.exit_code)
    except SystemExit as stop:
        if stop.code == INTERRUPTED:
            typer.echo(
                "\nstopped; what is recorded stays, and a command that records goes on from there.", err=True
            )
        raise
