"""``refork theory serve``: an experiment for real people, as a web page that loses no answer."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from refork.cli.common import AllowHost, Port
from refork_methods.theory.commands.people import (
    Back,
    Code,
    Design,
    Name,
    Seed,
    TextsFile,
    TrialCount,
    study_of,
)

if TYPE_CHECKING:
    from refork_methods.theory.people import Conduct, Study

Out = Annotated[Path, typer.Option("--out", help="Results: a file of JSON lines that only grows.")]
Most = Annotated[
    int | None, typer.Option("--people", min=1, help="How many may begin; all who come without it.")
]
Rehearsal = Annotated[
    int | None,
    typer.Option("--rehearse", min=1, help="Serve nothing: write results of so many simulated people."),
]
Host = Annotated[str, typer.Option("--host", help="Address to listen on; 0.0.0.0 for other machines.")]


def serve(
    design: Design,
    out: Out,
    texts: TextsFile = None,
    name: Name = None,
    trials: TrialCount = 96,
    seed: Seed = 0,
    code: Code = None,
    back: Back = None,
    most: Most = None,
    rehearsal: Rehearsal = None,
    host: Host = "127.0.0.1",
    port: Port = 8000,
    names: AllowHost = [],  # noqa: B006
) -> None:
    """Serve an experiment to people: consent, instructions, choices, completion code. Ctrl-C stops it.

    Every answer is on the disk before the page goes on; reloads and restarts lose nothing. The same command
    goes on. Links of Prolific, Connect, Mechanical Turk, SONA or ?participant=... are understood.
    Put a web server with https in front, and give its name: --allow-host study.example.

    Example: refork theory serve pairs.json --out results.jsonl
    """
    from refork_methods.theory.people import Conduct
    from refork_methods.theory.serve.people_serve import serve_people

    study = study_of(design, texts, name, trials, seed, code, back)
    if rehearsal is not None:
        _rehearse(study, rehearsal, out)
        return
    with Conduct.open(study, out, most=most) as conduct:

        def ready(address: str) -> None:
            for line in _announcement(address, conduct, out, texts, host):
                typer.echo(line, err=True)

        serve_people(conduct, host=host, port=port, names=names, ready=ready)
        counts = conduct.counts
    typer.echo(
        f"{sum(counts.values())} began, {counts['ended']} ended, {counts['withdrawn']} withdrew; "
        f"see: refork theory people {out}",
        err=True,
    )


def _rehearse(study: Study, people: int, out: Path) -> None:
    from refork_methods.theory.domains import domain_named
    from refork_methods.theory.people import rehearse

    theory = domain_named(study.experiment.domain).ranked()[0]
    rehearse(study, theory, people, out)
    typer.echo(f"{people} people simulated by {theory.name}, in {out}; nobody was asked", err=True)


def _announcement(address: str, conduct: Conduct, out: Path, texts: Path | None, host: str) -> list[str]:
    from refork.serve.keys import is_loopback

    study, began = conduct.study, sum(conduct.counts.values())
    lines = [f"{study.name} at {address}: {study.total} choices of {study.experiment.stimuli} pairs"]
    lines.append(f"results in {out}" + (f", {began} people so far" if began else ""))
    if not is_loopback(host):
        lines.append(
            "other machines can reach it, and nothing is encrypted: put a web server with https in front"
        )
    if texts is None:
        lines.append(
            "people read our own texts, which name nobody to ask: see refork theory export --write-texts"
        )
    return lines


def register(app: typer.Typer) -> None:
    """Add the verb."""
    app.command()(serve)
