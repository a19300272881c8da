"""``refork theory``: theories of choice, scored on people, told apart, revised; and pages for people."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from refork.cli.common import AsJson, Unconfined, existing, print_json
from refork.cli.screen import secho

if TYPE_CHECKING:
    from refork.stats.results import Interval
    from refork_methods.theory.experiment import Experiment
    from refork_methods.theory.order import OrderScore
    from refork_methods.theory.power import PowerTable
    from refork_methods.theory.predictive import Scoreboard
    from refork_methods.theory.search import Outcome, TheorySearch

app = typer.Typer(
    help="Theories of choice: scored on people by their priors, told apart, revised.", no_args_is_help=True
)
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


@app.command()
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


@app.command()
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


Data = Annotated[Path, typer.Argument(metavar="CHOICES", help="A CSV of trials, or published JSON lines.")]
Named = Annotated[
    list[str] | None,
    typer.Option("--theory", help="A YAML file, seed:NAME, or a rule's name. May be repeated."),
]
Validities = Annotated[str | None, typer.Option(help="Of the cues, where a CSV has none: .9,.8,.7")]
Draws = Annotated[int, typer.Option(min=1, help="Draws from each theory's priors.")]
Redraws = Annotated[int, typer.Option(min=100, help="Samples of people for the intervals.")]
Pictures = Annotated[Path | None, typer.Option(help="Folder for dial.svg, of choices from cues.")]


@app.command()
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
    (0 a coin, 1 as near as noise lets one see), relative compares the theories with one another. A winner is
    named only where its error is within the people's noise and every other theory is told apart from it.
    Exit status 1: none is better than a coin. Example: refork theory score choices.csv --theory mine.yaml
    """
    from refork.sandbox import Sandbox
    from refork_methods.theory.open import open_theories
    from refork_methods.theory.order import score_order
    from refork_methods.theory.predictive import score_theories
    from refork_methods.theory.read import read_choices
    from refork_methods.theory.report import draw_dial
    from refork_methods.theory.sandboxed import LIMITS

    read = read_choices(existing(data), foreign=foreign, validities=numbers(validities))
    with Sandbox(LIMITS, unconfined=unconfined) as sandbox:
        theories = open_theories(theory or (), sandbox, read.observations[0].experiment.domain)
        board = score_theories(theories, read.observations, seed=seed, draws=draws, redraws=redraws)
        order = score_order(theories, read.observations, seed=seed)
    drawn = None if pictures is None else draw_dial(read.observations, pictures, seed=seed)
    if as_json:
        print_json(_board_json(board, order, read.foreign))
    else:
        _print_board(board, order, read.foreign)
        if drawn is not None:
            typer.echo(str(drawn))
    if not board.decide(order).better:
        raise typer.Exit(1)


Folder = Annotated[Path, typer.Argument(metavar="DIR", help="A search's folder.")]


@app.command()
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
    from refork_methods.theory.read import read_choices
    from refork_methods.theory.sandboxed import LIMITS
    from refork_methods.theory.search.heldout import score_held_out

    seen = None if choices is None else read_choices(existing(choices)).observations
    with Sandbox(LIMITS, unconfined=unconfined) as sandbox:
        found = score_held_out(out, sandbox, observations=seen)
    lags = {one.name: one.theory for one in found.order}
    board = found.board
    decision = board.decide(found.order)
    if as_json:
        rows = [
            asdict(one) | {"title": found.titles[one.name], "lag_1": lags[one.name]} for one in board.theories
        ]
        people = found.order[0].people
        print_json({
            "theories": rows, "chosen": found.chosen, "winner": decision.winner,
            "decision": decision.to_json(), "floor": board.floor, "coin": board.coin,
            "people": board.people, "observations": list(board.observations),
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
        typer.echo(decision.words)
    if not decision.better:
        raise typer.Exit(1)


@app.command()
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
        (one.name, found.read(_design(existing(one)), str(one))) for one in design or ()
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


@app.command()
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


@app.command()
def export(
    design: Annotated[
        Path, typer.Argument(metavar="EXPERIMENT", help="A design (JSON or YAML) with its domain.")
    ],
    out: Annotated[Path, typer.Option(help="Folder to write.")],
    texts: Annotated[Path | None, typer.Option(help="YAML of texts in place of our own.")] = None,
    name: Annotated[str | None, typer.Option(help="Of the study, in its choices; else the file's.")] = None,
    trials: Annotated[int, typer.Option(min=1, help="Choices of one person, in whole repetitions.")] = 96,
    code: Annotated[str | None, typer.Option("--completion-code", help="Shown at the end.")] = None,
    back: Annotated[
        str | None,
        typer.Option("--return-to", help="https address at the end; {code} is filled in. Else Prolific's."),
    ] = None,
    post: Annotated[
        str | None, typer.Option(help="https address that takes the choices at the end, as DataPipe's does.")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Write an experiment for real people as a page for any web space: index.html and what it loads.

    Choices stay in the browser until the end and are then sent to --post, or saved as a file that the person
    hands in. Example: refork theory export pairs.json --out study
    """
    from refork_methods.theory.people import export_page, read_experiment, read_texts

    experiment = read_experiment(existing(design))
    words = read_texts(None if texts is None else existing(texts))
    written = export_page(
        experiment,
        out,
        name=name or design.stem,
        texts=words,
        trials=trials,
        code=code,
        return_to=back,
        post=post,
    )
    if as_json:
        print_json({"folder": str(out), "files": written})
    else:
        typer.echo(f"{out}/index.html: {len(written)} files, nothing from elsewhere")


@app.command()
def people(
    choices: Annotated[
        Path, typer.Argument(help="A CSV of trials, or a folder of those that the page made.")
    ],
    counted: Annotated[
        Path | None, typer.Option("--kept", help="CSV to write: the choices of those who count.")
    ] = None,
    excluded: Annotated[
        Path | None, typer.Option(help="CSV to write: the others' choices, with the reason.")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Say who took part in a study, whose choices count, and why the others' do not.

    Left out are those who came twice, used one key or strictly the other one in over 95 % of the choices,
    took under 1.2 s on average, were away for over 60 s, or show signs of a program.
    Exit status 1: nobody is left.

    Example: refork theory people study/data --kept kept.csv --excluded out.csv
    """
    from refork_methods.theory.people import read_participants

    found = read_participants(existing(choices))
    for path, side in ((counted, True), (excluded, False)):
        if path is not None:
            path.write_text(found.table(counted=side), encoding="utf-8")
    told = found.to_json()
    if as_json:
        print_json(told)
    else:
        typer.echo(f"{len(told['people'])} took part, {told['kept']} count")
        for row in told["people"]:
            if row["reason"] is not None:
                typer.echo(f"{row['participant']}, {row['choices']} choices: {row['reason']}")
    if not told["kept"]:
        raise typer.Exit(1)


def _show(search: TheorySearch, outcome: Outcome, out: Path, *, as_json: bool) -> None:
    from refork_methods.theory.search.figures import told_search

    told = told_search(search, outcome) | {"folder": str(out)}
    if as_json:
        print_json(told)
    else:
        _print_search(told)
    if told["decision"] is None or told["decision"]["claim"] == "no better than a coin":
        raise typer.Exit(1)


def _print_search(told: dict[str, Any]) -> None:
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
            f"of {order['name']} {'none' if order['theory'] is None else format(order['theory'], '.3f')}"
        )
    if told["decision"] is None:
        typer.echo("nothing was observed: no design was admitted")
    else:
        typer.echo(told["decision"]["words"])
    typer.echo(f"{told['folder']}: theories/, trials/, leaderboard.csv, leaderboard.svg, tree.db")


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


def _board_json(board: Scoreboard, order: tuple[OrderScore, ...], foreign: dict[str, int]) -> dict[str, Any]:
    lags = {one.name: one.theory for one in order}
    people = order[0].people
    decision = board.decide(order)
    return {
        "theories": [asdict(one) | {"lag_1": lags[one.name]} for one in board.theories],
        "differences": {
            one.name: asdict(board.difference(board.theories[0].name, one.name)) for one in board.theories[1:]
        },
        "differences_at_strength": {
            one.name: asdict(board.difference(board.theories[0].name, one.name, at_strength=True))
            for one in board.theories[1:]
        },
        "winner": decision.winner,
        "decision": decision.to_json(),
        "people": board.people,
        "choices": board.choices,
        "stimuli": board.stimuli,
        "observations": list(board.observations),
        "floor": board.floor,
        "coin": board.coin,
        "lag_1": None if people is None else asdict(people),
        "left_out": foreign,
    }


def _print_board(board: Scoreboard, order: tuple[OrderScore, ...], foreign: dict[str, int]) -> None:
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
        plain, bare = (board.difference(best, one.name, at_strength=at) for at in (False, True))
        typer.echo(f"{one.name} less {best}: {span(plain)}, each at its best strength {span(bare)}")
    typer.echo(board.decide(order).words)


def _design(path: Path) -> dict[str, Any]:
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
        mine, other = ("-" if mean is None else f"{mean:.3f}" for mean in (one.mine, one.other))
        told = f"{one.statistic} {mine} against {other}"
        typer.echo(f"{one.design:<{wide}} {values}  {needed:>13}  {one.jsd:.4f}  {told}")
    share = table.passing
    typer.echo(
        f"{share.estimate:.0%} of the designs [{share.low:.0%}, {share.high:.0%}] have a power of .8 at "
        f"{table.planned} people on each side, level {table.alpha:g}"
    )
