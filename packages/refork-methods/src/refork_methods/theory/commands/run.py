"""Verbs of ``refork theory``: a closed loop of designs, people, verdicts and new theories, and going on."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from refork.cli.common import AsJson, Unconfined, print_json

if TYPE_CHECKING:
    from refork_methods.theory.search import Outcome, TheorySearch

Out = Annotated[Path, typer.Option(help="The search's folder; the same command goes on with it.")]
Theories = Annotated[
    list[str] | None,
    typer.Option("--theory", help="The two seeds: YAML files, seed:NAME, form:A,B,... or names of rules."),
]
People = Annotated[
    str, typer.Option("--participants", help="simulated:THEORY, or csv:FILE of trials (also JSON lines).")
]
DomainOption = Annotated[str, typer.Option("--domain", help="cues or gambles.")]
Noise = Annotated[float, typer.Option(min=0, max=1, help="Share of simulated choices that are a coin's.")]
Rounds = Annotated[int, typer.Option(min=1, help="Rounds of two observations.")]
KeptPeople = Annotated[
    int, typer.Option("--people", min=2, help="People of each observation, after exclusions.")
]
HoldOut = Annotated[int, typer.Option(min=0, help="Observations that no round may open.")]
Who = Annotated[str, typer.Option("--scientist", help="scripted, or chat:SPEC, as chat:openai:URL#MODEL.")]
JudgeBy = Annotated[
    Literal["choices", "statistics"],
    typer.Option(
        "--judge", help="What a successor must come near to: people's choices, or the sides' statistics."
    ),
]
Tries = Annotated[int, typer.Option(min=1, help="Candidates of each revision.")]
Strangers = Annotated[
    Literal["drop", "move", "refuse"],
    typer.Option(help="People whose trials are of another design: left out, moved to it, or an error."),
]
MaxTokens = Annotated[int, typer.Option(min=1, help="With a model: tokens of one answer.")]
Seed = Annotated[int, typer.Option(min=0, help="Of all that is drawn.")]
#: Seeds of a domain, unless others are asked for.
_SEEDS = {"cues": ("take-the-best", "wadd"), "gambles": ("expected-value", "maximin")}


def run(
    out: Out,
    participants: People,
    theory: Theories = None,
    domain: DomainOption = "cues",
    noise: Noise = 0.0,
    rounds: Rounds = 5,
    people: KeptPeople = 25,
    hold_out: HoldOut = 2,
    scientist: Who = "scripted",
    judge: JudgeBy = "choices",
    tries: Tries = 20,
    foreign: Strangers = "drop",
    max_tokens: MaxTokens = 8192,
    seed: Seed = 1,
    unconfined: Unconfined = False,
    as_json: AsJson = False,
) -> None:
    """Search for a theory of people's choices: design, ask, score, judge, revise, and again.

    A design is used only if the people kept could tell the two theories apart. Ctrl-C stops; the same command
    goes on. Exit status 1: no theory is better than a coin.

    Example: refork theory run --participants csv:choices.csv --out runs/mine
    """
    from refork.cli.live import LiveProgress
    from refork.errors import BadInput
    from refork.sandbox import Sandbox
    from refork_methods.theory.domains import domain_named
    from refork_methods.theory.sandboxed import LIMITS
    from refork_methods.theory.search.folder import Recipe, run_theories
    from refork_methods.theory.search.settings import TheorySettings
    from refork_methods.theory.search.spec import spec_of

    found = domain_named(domain)
    named = tuple(theory or _SEEDS[domain])
    if len(named) != 2:
        raise BadInput(f"{len(named)} seeds", where="--theory", hint="two theories stand at the beginning")
    specs = [spec_of(one, found).to_json() for one in named]
    settings = TheorySettings(
        rounds=rounds, people=people, held_out=hold_out, judge=judge, tries=tries, seed=seed
    )
    recipe = Recipe(
        domain=domain, seeds=(specs[0], specs[1]), participants=participants, noise=noise, foreign=foreign,
        scientist=scientist, max_tokens=max_tokens, settings=settings,
    )  # fmt: skip
    with Sandbox(LIMITS, unconfined=unconfined) as sandbox, LiveProgress() as live:
        search, outcome = run_theories(recipe, out, sandbox, progress=live)
    _show(search, outcome, out, as_json=as_json)


def resume(
    out: Annotated[Path, typer.Argument(metavar="DIR", help="The search's folder.")],
    rounds: Annotated[int | None, typer.Option(min=1, help="Go on to this many rounds.")] = None,
    unconfined: Unconfined = False,
    as_json: AsJson = False,
) -> None:
    """Go on with a search where it stopped, in the midst of a round too; the end is the same bit for bit.

    Example: refork theory resume runs/mine --rounds 8
    """
    from refork.cli.live import LiveProgress
    from refork.sandbox import Sandbox
    from refork_methods.theory.sandboxed import LIMITS
    from refork_methods.theory.search.folder import resume_theories

    with Sandbox(LIMITS, unconfined=unconfined) as sandbox, LiveProgress() as live:
        search, outcome = resume_theories(out, sandbox, rounds=rounds, progress=live)
    _show(search, outcome, out, as_json=as_json)


def register(app: typer.Typer) -> None:
    """Add the verbs."""
    app.command()(run)
    app.command()(resume)


def _show(search: TheorySearch, outcome: Outcome, out: Path, *, as_json: bool) -> None:
    from refork_methods.theory.search.figures import told_search

    told = told_search(search, outcome) | {"folder": str(out)}
    if as_json:
        print_json(told)
    else:
        _print(told)
    if told["winner"] is None:
        raise typer.Exit(1)


def _print(told: dict[str, Any]) -> None:
    for one in told["observations"]:
        typer.echo(f"{one['name']}: {one['people']} people, {one['statistic']} {one['real']:.3f}")
    for one in told["refused"]:
        typer.echo(f"refused: {one['name']}: {one['why']}")
    for one in told["verdicts"]:
        typer.echo(f"round {one['round']}: {one['ruling']} for {one['loser']} ({one['why']})")
    typer.echo(f"{'label':<8} {'loss':>8} {'mse_pB':>8} {'relative':>9}  theory")
    for one in told["theories"]:
        shown = ["-" if one[key] is None else f"{one[key]:.4f}" for key in ("loss", "mse_pb", "relative")]
        numbers = f"{shown[0]:>8} {shown[1]:>8} {shown[2]:>9}"
        typer.echo(f"{one['label']:<8} {numbers}  {one['title']}" + (", stands" if one["slot"] else ""))
    if told["state"] != "done":
        typer.echo(f"ended: {told['state']}. {told['why']}")
    if told["order"] is not None:
        order, people = told["order"], told["order"]["people"]
        typer.echo(
            f"lag-1 of people {people['estimate']:.3f} [{people['low']:.3f}, {people['high']:.3f}], "
            f"of {order['name']} {order['theory']:.3f}"
        )
    if not told["observations"]:
        typer.echo("nothing was observed: no design was admitted")
    elif told["winner"]:
        typer.echo(f"winner: {told['winner']}")
    else:
        typer.echo("by rates of choice, no theory is better than a coin")
    typer.echo(f"{told['folder']}: theories/, trials/, leaderboard.csv, leaderboard.svg, tree.db")
