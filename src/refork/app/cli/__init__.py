"""The command line: one thin file per noun."""

from __future__ import annotations

import os
import sys
from importlib import import_module
from typing import Annotated

import typer

from refork import __version__
from refork.app.cli.failing import begin, give_out, mendable, show_crash, show_error, show_stopped
from refork.app.cli.screen import draw_help
from refork.app.cli.watching import watch_verbs
from refork.core.errors import UserError
from refork.core.visible import show_only

INTERRUPTED = 130

app = typer.Typer(
    name="refork",
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
    version: Annotated[
        bool, typer.Option("--version", help="Print the version.", callback=_version, is_eager=True)
    ] = False,
    log: Annotated[
        str | None,
        typer.Option(
            "--log",
            help="json or json:FILE: one JSON object a line; default: REFORK_LOG.",
            show_default=False,
        ),
    ] = None,
) -> None:
    """Options that come before every noun."""
    from refork.core.run.logs import start_log

    start_log(log)


#: The nouns in the order of the help, each with the file of its verbs.
_NOUNS = {
    "tree": "tree", "organism": "organism", "policy": "policy", "world": "world", "implicit": "implicit",
    "credit": "credit", "maze": "maze", "recovery": "recovery", "train": "train", "learn": "learn",
    "cliff": "cliff", "collapse": "collapse", "probe": "probe_stance", "forensics": "forensics_run",
    "crosscoder": "crosscoder_run", "memory": "memory_run", "rot": "rot", "pin": "pin", "gate": "gate",
    "route": "route", "localize": "localize", "kernel": "kernel", "evolve": "evolve", "judge": "judge",
    "speculate": "speculate", "simulate": "simulate", "theory": "theory", "run": "run",
}  # fmt: skip
#: Verbs that stand without a noun, each with its file.
_ALONE = {
    "fork": "fork", "compare": "fork", "sweep": "fork", "grow": "grow", "demo": "demo", "serve": "serve",
    "view": "view",
}  # fmt: skip


def _mount(asked: str = "") -> None:
    """Add the one noun or verb asked for, so that no other file is read; where there is none such, all."""
    known = asked in _NOUNS or asked in _ALONE
    for noun, file in _NOUNS.items():
        if not known or noun == asked:
            app.add_typer(import_module(f"{__name__}.{file}").app, name=noun)
    for file in dict.fromkeys(file for verb, file in _ALONE.items() if not known or verb == asked):
        import_module(f"{__name__}.{file}").register(app)
    watch_verbs(app)
    draw_help(app)


def main() -> None:
    """Run the command line: exit status 0 done, 1 found something, 2 usage, 130 interrupted."""
    show_only()
    _mount(*sys.argv[1:2])
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
        if show_crash(error):
            sys.exit(1)
        raise
