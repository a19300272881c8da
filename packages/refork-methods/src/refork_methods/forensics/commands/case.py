"""``refork forensics``: why did the model do it? The case file."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from refork.cli.common import AsJson, existing, print_json
from refork.cli.screen import print_table

app = typer.Typer(
    help="Ask why a model did something: one edit at a time, predictions first, negatives bounded.",
    no_args_is_help=True,
)

Folder = Annotated[Path, typer.Argument(metavar="CASE", help="The case's folder.")]
Likelihood = Annotated[
    bool, typer.Option("--likelihood", help="Also add up log-likelihood ratios, where rates were predicted.")
]


@app.command("open")
def open_case(
    case: Folder,
    plan: Annotated[
        Path | None,
        typer.Option("--from", help="Incident, designs and predictions to register, TOML or JSON."),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Begin a case, register more of its plan, or say where it stands.

    Example: refork forensics open cases/hook --from hook.toml
    """
    from refork_methods.forensics import Case
    from refork_methods.forensics.plan import open_plan, read_plan

    new = False
    if plan is None:
        opened = Case.open(case)
    else:
        opened, new = open_plan(case, read_plan(existing(plan)))
    told = {
        "case": str(case), "new": new, "name": opened.incident.name, "designs": len(opened.designs),
        "hypotheses": len(opened.hypotheses),
        "predictions": sum(len(h.predictions) for h in opened.hypotheses),
        "evidence": len(opened.evidence), "entries": len(opened.journal), "head": opened.journal.head,
    }  # fmt: skip
    if as_json:
        print_json(told)
        return
    typer.echo(
        f"{'opened' if new else 'case'} {told['name']!r}: {told['designs']} designs, "
        f"{told['hypotheses']} hypotheses with {told['predictions']} predictions, "
        f"{told['evidence']} rows of evidence"
    )


@app.command()
def table(case: Folder, likelihood: Likelihood = False, as_json: AsJson = False) -> None:
    """Print the competing hypotheses against the evidence; exit status 1 where a malign one leads alone.

    Example: refork forensics table cases/hook
    """
    from refork_methods.forensics import Case, case_json

    told = case_json(Case.open(case), likelihood=likelihood)["table"]
    if as_json:
        print_json(told)
    else:
        _print(told)
    if told["malign"]:
        raise typer.Exit(1)


@app.command()
def report(case: Folder, likelihood: Likelihood = False, as_json: AsJson = False) -> None:
    """Write the case as one JSON document and as a page with its pictures.

    Example: refork forensics report cases/hook
    """
    from refork_methods.forensics import Case
    from refork_methods.forensics.page import write_report

    told = write_report(Case.open(case), case, likelihood=likelihood)
    files = {"json": str(case / "case.json"), "page": str(case / "report.html")}
    if as_json:
        print_json(files)
        return
    typer.echo(told["table"]["verdict"])
    for file in files.values():
        typer.echo(file)


def _print(told: dict[str, Any]) -> None:
    from refork_methods.forensics.wording import figure, locations

    if told["rows"]:
        _print_rows(told)
    for one in told["standings"]:
        typer.echo(
            f"{one['rank'] or '-'}  {one['hypothesis']}: {one['consistent']} consistent, "
            f"{one['inconsistent']} inconsistent, {one['weak']} weak"
        )
    for pair in told["likelihoods"] or ():
        ratio = figure(pair["ratio"], "value")
        typer.echo(f"log ratio {pair['first']} : {pair['second']} {ratio} over {pair['groups']} groups")
    for concern in told["concerns"]:
        typer.echo(f"{concern['kind']}: {concern['words']} ({locations(concern)})")
    typer.echo(told["verdict"])


def _print_rows(told: dict[str, Any]) -> None:
    from refork_methods.forensics.wording import NAMES, span

    names = [one["hypothesis"] for one in told["standings"]]
    rows = []
    for row in told["rows"]:
        marks = [row["marks"][name] for name in names]
        cells = [(m["mark"] or "-") + (" (post hoc)" if m["post_hoc"] else "") for m in marks]
        negative = row["negative"]["words"] if row["negative"] else "-"
        result = f"{NAMES.get(row['quantity'], row['quantity'])} {span(row)}"
        rows.append((row["name"], result, *cells, negative, str(row["group"] + 1)))
    print_table(("evidence", "result", *names, "as a negative", "group"), rows, wrap=True)
