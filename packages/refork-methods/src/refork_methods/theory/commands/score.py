"""``refork theory score``: theories ranked on people's choices."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from refork.cli.common import AsJson, Unconfined, existing, print_json

if TYPE_CHECKING:
    from refork.stats.results import Interval
    from refork_methods.theory.order import OrderScore
    from refork_methods.theory.predictive import Scoreboard

Data = Annotated[Path, typer.Argument(metavar="CHOICES", help="A CSV of trials, or published JSON lines.")]
Named = Annotated[
    list[str] | None,
    typer.Option("--theory", help="A YAML file, seed:NAME, or a rule's name. May be repeated."),
]
Strangers = Annotated[
    Literal["drop", "move", "refuse"],
    typer.Option(help="People whose trials are of another design: left out, moved to it, or an error."),
]
Validities = Annotated[str | None, typer.Option(help="Of the cues, where a CSV has none: .9,.8,.7")]
Draws = Annotated[int, typer.Option(min=1, help="Draws from each theory's priors.")]
Redraws = Annotated[int, typer.Option(min=100, help="Samples of people for the intervals.")]
Seed = Annotated[int, typer.Option(min=0, help="Of all that is drawn.")]
Pictures = Annotated[
    Path | None, typer.Option(help="Folder for dial.svg and, with graded ratings, utility.svg.")
]


def score(
    data: Data,
    theory: Named = None,
    foreign: Strangers = "drop",
    validities: Validities = None,
    draws: Draws = 2000,
    redraws: Redraws = 2000,
    seed: Seed = 1,
    pictures: Pictures = None,
    unconfined: Unconfined = False,
    as_json: AsJson = False,
) -> None:
    """Rank theories on people's choices by their priors alone: nothing is fitted.

    mse_pB and r compare rates of choosing B for each stimulus; intervals are over people. skill is absolute
    (0 a coin, 1 as near as noise lets one see), relative compares the theories with one another.
    Exit status 1: none is better than a coin. Example: refork theory score choices.csv --theory mine.yaml
    """
    from refork.sandbox import Sandbox
    from refork_methods.theory.open import open_theories, read_choices
    from refork_methods.theory.order import score_order
    from refork_methods.theory.predictive import score_theories
    from refork_methods.theory.report import draw_pictures
    from refork_methods.theory.sandboxed import LIMITS

    read = read_choices(existing(data), foreign=foreign, validities=numbers(validities))
    with Sandbox(LIMITS, unconfined=unconfined) as sandbox:
        theories = open_theories(theory or (), sandbox, read.observations[0].experiment.domain)
        board = score_theories(theories, read.observations, seed=seed, draws=draws, redraws=redraws)
        order = score_order(theories, read.observations, seed=seed)
    drawn = [] if pictures is None else draw_pictures(read.observations, pictures, seed=seed)
    if as_json:
        print_json(_json(board, order, read.foreign))
    else:
        _print(board, order, read.foreign)
        for one in drawn:
            typer.echo(str(one))
    if board.winner() is None:
        raise typer.Exit(1)


def register(app: typer.Typer) -> None:
    """Add the verb."""
    app.command()(score)


def numbers(text: str | None) -> tuple[float, ...] | None:
    """Numbers with commas between them. Raises BadInput for anything else."""
    from refork.errors import BadInput

    try:
        return None if text is None else tuple(float(part) for part in text.split(","))
    except ValueError as error:
        raise BadInput(f"{text!r} is no list of numbers", hint="as in .9,.8,.7") from error


def span(result: Interval | None, digits: int = 4) -> str:
    """An interval as text; a dash where there is none."""
    if result is None:
        return "-"
    return f"{result.estimate:.{digits}f} [{result.low:.{digits}f}, {result.high:.{digits}f}]"


def _json(board: Scoreboard, order: tuple[OrderScore, ...], foreign: dict[str, int]) -> dict[str, Any]:
    lags = {one.name: one.theory for one in order}
    people = order[0].people
    return {
        "theories": [asdict(one) | {"lag_1": lags[one.name]} for one in board.theories],
        "differences": {
            one.name: asdict(board.difference(board.theories[0].name, one.name)) for one in board.theories[1:]
        },
        "winner": board.winner(),
        "people": board.people,
        "choices": board.choices,
        "stimuli": board.stimuli,
        "observations": list(board.observations),
        "floor": board.floor,
        "coin": board.coin,
        "lag_1": None if people is None else asdict(people),
        "left_out": foreign,
    }


def _print(board: Scoreboard, order: tuple[OrderScore, ...], foreign: dict[str, int]) -> None:
    lags = {one.name: one.theory for one in order}
    typer.echo(
        f"{board.people} people, {board.choices} choices of {board.stimuli} stimuli, "
        f"{len(board.observations)} observations"
    )
    for name, count in foreign.items():
        typer.echo(f"{name}: {count} people saw another design")
    wide = max(len(one.name) for one in board.theories)
    typer.echo(f"{'theory':<{wide}}  {'mse_pB':<24}  {'r':<20}  {'skill':<23}  {'relative':<20}  lag-1")
    for one in board.theories:
        lag = lags[one.name]
        typer.echo(
            f"{one.name:<{wide}}  {span(one.mse_pb):<24}  {span(one.r, 3):<20}  {span(one.skill, 3):<23}  "
            f"{span(one.relative, 2):<20}  {'-' if lag is None else f'{lag:.3f}'}"
        )
    typer.echo(f"a coin {board.coin:.4f}, the people's own noise {board.floor:.4f}, "
               f"lag-1 of people {span(order[0].people, 3)}")  # fmt: skip
    best = board.theories[0].name
    for one in board.theories[1:]:
        typer.echo(f"{one.name} less {best}: {span(board.difference(best, one.name))}")
    found = board.winner()
    typer.echo(f"winner: {found}" if found else "no theory is better than a coin by more than chance")
