"""A command: ``refork method openings TREE``."""

from collections import defaultdict
from pathlib import Path
from typing import Annotated

import typer

from refork import Tree


def openings(
    file: Annotated[Path, typer.Argument(help="A tree file.")],
    score: Annotated[str, typer.Option("--score", help="Which score is the outcome.")] = "success",
) -> None:
    """Print what agents said first, how often, and how often it went well."""
    outcomes = defaultdict(list)
    with Tree.open(file, "r") as tree:
        for one in tree.scores(name=score):
            said = next((step.text for step in tree.path(one.node) if step.node.kind == "action"), None)
            outcomes[said].append(float(one.value))
    for said, values in sorted(outcomes.items(), key=lambda row: -len(row[1])):
        typer.echo(f"{len(values):6}  {sum(values) / len(values):.2f}  {said}")
