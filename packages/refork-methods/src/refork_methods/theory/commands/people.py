"""What the verbs for real people share, and ``refork theory people``: who took part, and who counts."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from refork.cli.common import AsJson, existing, print_json

if TYPE_CHECKING:
    from refork_methods.theory.people import Results, Study

Design = Annotated[
    Path, typer.Argument(metavar="EXPERIMENT", help="A design as JSON or YAML, with its domain.")
]
TextsFile = Annotated[Path | None, typer.Option("--texts", help="YAML of texts in place of our own.")]
Name = Annotated[str | None, typer.Option(help="Name of the study in its results; the file's without one.")]
TrialCount = Annotated[
    int, typer.Option("--trials", min=1, help="Choices of one person, in whole repetitions.")
]
Seed = Annotated[int, typer.Option(min=0, help="Of the orders of the pairs.")]
Code = Annotated[
    str | None,
    typer.Option("--completion-code", help="One code for all, from the recruiter; else each their own."),
]
Back = Annotated[
    str | None,
    typer.Option("--return-to", help="https address at the end; {code} is filled in. Prolific's is known."),
]


def study_of(
    design: Path, texts: Path | None, name: str | None, trials: int, seed: int,
    code: str | None, back: str | None, post: str | None = None,
) -> Study:  # fmt: skip
    """The study that a command names."""
    from refork_methods.theory.people import Completion, Study, read_experiment, read_texts

    experiment = read_experiment(existing(design))
    words = None if texts is None else read_texts(existing(texts), experiment.domain)
    end = Completion(code, back)
    called = name or design.stem
    return Study.of(experiment, texts=words, name=called, trials=trials, seed=seed, completion=end, post=post)


def people(
    results: Annotated[Path, typer.Argument(help="Results of serve, a saved file, or a folder of those.")],
    kept: Annotated[Path | None, typer.Option(help="CSV to write: the choices of those who count.")] = None,
    excluded: Annotated[
        Path | None, typer.Option(help="CSV to write: the others' choices, with the reason.")
    ] = None,
    whose: Annotated[
        str | None, typer.Option(help="RECRUITER:NUMBER: show this person only, found by the study's key.")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Who took part in a study, whose choices count, and why the others' do not.

    Left out are those who withdrew, stopped or came twice, used one key or strictly the other one in over
    95 % of the choices, took under 1.2 s on average, were away for over 60 s, or show signs of a program.
    Exit status 1: nobody is left.

    Example: refork theory people results.jsonl --kept kept.csv --excluded out.csv
    """
    from refork_methods.theory.people import read_results
    from refork_methods.theory.people.results import find_person

    found = read_results(existing(results))
    for path, side in ((kept, True), (excluded, False)):
        if path is not None:
            path.write_text(found.table(counted_only=side), encoding="utf-8")
    if whose is not None:
        found = find_person(found, results, whose)
    if as_json:
        print_json(found.to_json())
    else:
        _print(found)
    if not found.counted:
        raise typer.Exit(1)


def _print(found: Results) -> None:
    rows = found.to_json()["people"]
    said = "" if found.rehearsal is None else f" (a rehearsal, simulated by {found.rehearsal})"
    typer.echo(f"{found.name}: {len(rows)} began, {len(found.counted)} count{said}")
    if rows:
        typer.echo(
            f"{'participant':<14}  {'choices':>9}  {'mean s':>6}  {'away s':>6}  {'code':<12}  left out"
        )
    for row in rows:
        mean = "-" if row["mean_rt_ms"] is None else f"{row['mean_rt_ms'] / 1000:.2f}"
        choices = f"{row['choices']} of {row['of']}"
        typer.echo(
            f"{row['participant']:<14}  {choices:>9}  {mean:>6}  {row['away_s']:>6.0f}  "
            f"{row['code'] or '-':<12}  {row['reason'] or ''}".rstrip()
        )


def register(app: typer.Typer) -> None:
    """Add the verb."""
    app.command()(people)
