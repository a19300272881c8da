"""The command line: one thin file per noun."""

from __future__ import annotations

import os
import sys
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


def _mount() -> None:
    from ramify.app.cli import (
        cliff,
        collapse,
        credit,
        crosscoder_run,
        demo,
        evolve,
        forensics_run,
        fork,
        gate,
        grow,
        implicit,
        judge,
        kernel,
        learn,
        localize,
        maze,
        memory_run,
        organism,
        pin,
        policy,
        probe_stance,
        recovery,
        rot,
        route,
        serve,
        simulate,
        speculate,
        theory,
        train,
        tree,
        world,
    )

    for name, module in (("tree", tree), ("organism", organism), ("policy", policy), ("world", world)):
        app.add_typer(module.app, name=name)
    app.add_typer(implicit.app, name="implicit")
    app.add_typer(credit.app, name="credit")
    app.add_typer(maze.app, name="maze")
    app.add_typer(recovery.app, name="recovery")
    app.add_typer(train.app, name="train")
    app.add_typer(learn.app, name="learn")
    app.add_typer(cliff.app, name="cliff")
    app.add_typer(collapse.app, name="collapse")
    app.add_typer(probe_stance.app, name="probe")
    app.add_typer(forensics_run.app, name="forensics")
    app.add_typer(crosscoder_run.app, name="crosscoder")
    app.add_typer(memory_run.app, name="memory")
    app.add_typer(rot.app, name="rot")
    app.add_typer(pin.app, name="pin")
    app.add_typer(gate.app, name="gate")
    app.add_typer(route.app, name="route")
    app.add_typer(localize.app, name="localize")
    app.add_typer(kernel.app, name="kernel")
    app.add_typer(evolve.app, name="evolve")
    app.add_typer(judge.app, name="judge")
    app.add_typer(speculate.app, name="speculate")
    app.add_typer(simulate.app, name="simulate")
    app.add_typer(theory.app, name="theory")
    fork.register(app)
    grow.register(app)
    demo.register(app)
    serve.register(app)


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
