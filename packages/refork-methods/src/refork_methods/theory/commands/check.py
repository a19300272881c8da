"""Verbs of ``refork theory``: held-out scores, power of designs, and an audit of a search."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from refork.cli.common import AsJson, Unconfined, existing, print_json
from refork.cli.screen import secho
from refork_methods.theory.commands.score import span

if TYPE_CHECKING:
    from refork_methods.theory.experiment import Experiment
    from refork_methods.theory.power import PowerTable

Folder = Annotated[Path, typer.Argument(metavar="DIR", help="A search's folder.")]


def heldout(
    out: Folder,
    choices: Annotated[
        Path | None, typer.Option(help="Other people's choices, in place of what the search held out.")
    ] = None,
    unconfined: Unconfined = False,
    as_json: AsJson = False,
) -> None:
    """Score a search's theories on observations that no round of it opened.

    Exit status 1: none is better than a coin. Example: refork theory heldout runs/mine
    """
    from refork.sandbox import Sandbox
    from refork_methods.theory.open import read_choices
    from refork_methods.theory.sandboxed import LIMITS
    from refork_methods.theory.search.heldout import score_held_out

    seen = None if choices is None else read_choices(existing(choices)).observations
    with Sandbox(LIMITS, unconfined=unconfined) as sandbox:
        found = score_held_out(out, sandbox, observations=seen)
    lags = {one.name: one.theory for one in found.order}
    board = found.board
    if as_json:
        rows = [
            asdict(one) | {"title": found.titles[one.name], "lag_1": lags[one.name]} for one in board.theories
        ]
        people = found.order[0].people
        print_json({
            "theories": rows, "chosen": found.chosen, "winner": board.winner(), "floor": board.floor,
            "coin": board.coin, "people": board.people, "observations": list(board.observations),
            "lag_1": None if people is None else asdict(people),
        })  # fmt: skip
    else:
        typer.echo(f"{board.people} people in {', '.join(board.observations)}")
        typer.echo(f"{'label':<8}  {'mse_pB':<24}  {'r':<23}  {'skill':<24}  theory")
        for one in board.theories:
            mark = ", chosen by the search" if one.name == found.chosen else ""
            numbers = f"{span(one.mse_pb):<24}  {span(one.r, 3):<23}  {span(one.skill, 3):<24}"
            typer.echo(f"{one.name:<8}  {numbers}  {found.titles[one.name]}{mark}")
        typer.echo(f"a coin {board.coin:.4f}, the people's own noise {board.floor:.4f}")
    if board.winner() is None:
        raise typer.Exit(1)


def power(
    theory: Annotated[str, typer.Argument(metavar="THEORY", help="A YAML file, seed:NAME, or a rule.")],
    other: Annotated[str, typer.Argument(metavar="OTHER", help="The theory to tell it from.")],
    domain: Annotated[str, typer.Option("--domain", help="cues or gambles.")] = "cues",
    design: Annotated[
        list[Path] | None, typer.Option(help="An experiment as JSON. May be repeated; else random ones.")
    ] = None,
    designs: Annotated[int, typer.Option(min=1, help="How many random designs.")] = 10,
    people: Annotated[int, typer.Option(min=2, help="People planned, after exclusions.")] = 25,
    alpha: Annotated[float, typer.Option(help="Level of the test.")] = 0.01,
    seed: Annotated[int, typer.Option(min=0, help="Of all that is drawn.")] = 1,
    unconfined: Unconfined = False,
    as_json: AsJson = False,
) -> None:
    """Say which designs can tell two theories apart, and by how many people.

    Exit status 1: no design does, at the people planned. Example: refork theory power wadd take-the-best
    """
    import numpy as np

    from refork.sandbox import Sandbox
    from refork_methods.theory.domains import domain_named
    from refork_methods.theory.open import open_theory
    from refork_methods.theory.power import NUMBERS, power_table
    from refork_methods.theory.sandboxed import LIMITS

    found = domain_named(domain)
    named: list[tuple[str, Experiment]] = [
        (one.name, found.read(_json(existing(one)), str(one))) for one in design or ()
    ]
    if not named:
        rng = np.random.default_rng(seed)
        named = [(f"random {number + 1}", found.design(rng)) for number in range(designs)]
    numbers = sorted({*NUMBERS, people})
    with Sandbox(LIMITS, unconfined=unconfined) as sandbox:
        pair = [open_theory(one, sandbox, domain) for one in (theory, other)]
        table = power_table(pair[0], pair[1], named, seed=seed, planned=people, numbers=numbers, alpha=alpha)
    if as_json:
        print_json(asdict(table))
    else:
        _print_power(table)
    if not any(one.needed is not None and one.needed <= people for one in table.designs):
        raise typer.Exit(1)


def audit(out: Folder, unconfined: Unconfined = False, as_json: AsJson = False) -> None:
    """Do a search again from its record, and say what differs: gates, predictions, answers, prompts.

    Exit status 1: something does. Example: refork theory audit runs/mine
    """
    from refork.sandbox import Sandbox
    from refork_methods.theory.sandboxed import LIMITS
    from refork_methods.theory.search.audit import audit_theories

    with Sandbox(LIMITS, unconfined=unconfined) as sandbox:
        found = audit_theories(out, sandbox)
    if as_json:
        print_json(found.to_json())
    else:
        typer.echo(", ".join(f"{count} {name}" for name, count in found.checked.items()) + " looked at")
        for one in found.findings:
            secho(one, fg="red")
        told, total = found.discriminating
        typer.echo(f"{told} of {total} designs tell their theories apart again, in fresh simulations")
        typer.echo(f"digest {found.digest}" if found.digest else "no digest: the record cannot be read")
        if not found.findings:
            typer.echo("everything comes out the same")
    if found.findings:
        raise typer.Exit(1)


def register(app: typer.Typer) -> None:
    """Add the verbs."""
    app.command()(heldout)
    app.command()(power)
    app.command()(audit)


def _json(path: Path) -> dict[str, Any]:
    from refork.errors import BadInput

    try:
        found = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise BadInput(f"no experiment can be read: {error}", where=str(path)) from error
    if not isinstance(found, dict):
        raise BadInput("the experiment is no JSON object", where=str(path))
    return found


def _print_power(table: PowerTable) -> None:
    wide = max(len(one.design) for one in table.designs)
    heads = "".join(f"{f'at {n}':>8}" for n in table.numbers)
    typer.echo(f"{'design':<{wide}} {heads}  people for .8  nats    statistic")
    for one in table.designs:
        values = (
            "".join(f"{value:8.2f}" for value in one.power) if one.power else "       -" * len(table.numbers)
        )
        needed = "none" if one.needed is None else str(one.needed)
        told = f"{one.statistic} {one.mine:.3f} against {one.other:.3f}"
        typer.echo(f"{one.design:<{wide}} {values}  {needed:>13}  {one.jsd:.4f}  {told}")
    share = table.passing
    typer.echo(
        f"{share.estimate:.0%} of the designs [{share.low:.0%}, {share.high:.0%}] have a power of .8 at "
        f"{table.planned} people on each side, level {table.alpha:g}"
    )
