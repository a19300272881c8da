"""``refork theory export``: an experiment for real people, as a folder that any web space can hold."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from refork.cli.common import AsJson, existing, print_json
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

Out = Annotated[Path | None, typer.Option("--out", help="Folder to write.")]
Post = Annotated[
    str | None, typer.Option("--post", help="https address that takes the answers at the end (POST).")
]
Template = Annotated[
    Path | None, typer.Option("--write-texts", help="Write the texts to this YAML, to be edited.")
]


def export(
    design: Design,
    out: Out = None,
    template: Template = None,
    texts: TextsFile = None,
    name: Name = None,
    trials: TrialCount = 96,
    seed: Seed = 0,
    code: Code = None,
    back: Back = None,
    post: Post = None,
    as_json: AsJson = False,
) -> None:
    """Write an experiment as a page without a server: index.html and what it loads, jsPsych included.

    Answers stay in the visitor's browser until the end and are then sent to --post, or saved as a file that
    the person hands in. Example: refork theory export pairs.json --out study --texts texts.yaml
    """
    from refork.errors import BadInput
    from refork_methods.theory.people import read_experiment
    from refork_methods.theory.people import texts as wording
    from refork_methods.theory.people.page_files import export as write

    if out is None and template is None:
        raise BadInput("nothing is to be written", hint="--out FOLDER, or --write-texts FILE")
    if template is not None:
        if template.exists():
            raise BadInput("this file is there already", where=str(template))
        text = wording.template(read_experiment(existing(design)).domain)
        template.write_text(text, encoding="utf-8")
        typer.echo(f"texts in {template}", err=True)
    if out is None:
        return
    told = write(study_of(design, texts, name, trials, seed, code, back, post), out)
    if as_json:
        print_json(told)
    else:
        size = sum(told["files"].values())
        typer.echo(
            f"{out}/index.html: {len(told['files'])} files, {size / 1024:.0f} KiB, nothing from elsewhere"
        )


def register(app: typer.Typer) -> None:
    """Add the verb."""
    app.command()(export)
