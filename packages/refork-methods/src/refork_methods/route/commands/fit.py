"""``refork route fit`` and ``evolve``: train the head that picks the worker."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from refork.cli.common import AsJson, SamplingSettings, existing, print_json, settings_for

if TYPE_CHECKING:
    from refork_methods.route.backbone import RouterBackbone

Seed = Annotated[int, typer.Option("--seed", min=0, help="Seed of everything drawn.")]
Reads = Annotated[
    str | None, typer.Option("--backbone", help="A local model (hf:DIR) whose hidden state the head reads.")
]
TokenIndex = Annotated[int, typer.Option("--token-index", help="Which token's state, from the end.")]
Rival = Annotated[bool, typer.Option("--rival", help="Also train by REINFORCE on as many rollouts.")]
Population = Annotated[int | None, typer.Option("--population", help="Candidates; default by size.")]
Window = Annotated[int | None, typer.Option("--window", help="Keep only the last so many tokens.")]


def fit_command(
    table: Annotated[Path, typer.Argument(help="Outcome table: .csv, .jsonl or .parquet.")],
    out: Annotated[Path, typer.Option("--out", "-o", help="Folder for the head and its card.")],
    backbone: Reads = None,
    tau: Annotated[
        str, typer.Option("--tau", help="Temperature of the targets; auto: chosen on held-out queries.")
    ] = "0.2",
    held_out: Annotated[
        float, typer.Option("--held-out", help="Share of queries kept for the report.")
    ] = 0.2,
    ridge: Annotated[float, typer.Option("--ridge", help="On the mean square score.")] = 1e-4,
    svf: Annotated[bool, typer.Option("--svf", help="Move the backbone's singular values too.")] = False,
    epochs: Annotated[int, typer.Option("--epochs", min=1, help="With --svf: over the fitted queries.")] = 20,
    cold: Annotated[
        list[str], typer.Option("--cold", help="NAME=REWARD assumed of a worker without outcomes.")
    ] = [],  # noqa: B006
    uneven: Annotated[
        str, typer.Option("--uneven", help="Missing outcomes, unequal repeats: weigh or refuse.")
    ] = "weigh",
    token_index: TokenIndex = -2,
    window: Window = None,
    seed: Seed = 0,
    as_json: AsJson = False,
) -> None:
    """Stage 1: fit a selection head to what each worker earned on each query.

    The head reads the table's features, or with --backbone the hidden state of its texts.

    Example: refork route fit outcomes.csv --backbone hf:models/qwen3-0.6b --out heads/first
    """
    from refork.cli.live import LiveProgress
    from refork_methods.route.joint import JointSettings
    from refork_methods.route.stage1 import Stage1Settings
    from refork_methods.route.table_io import read_table
    from refork_methods.route.training import fit_head

    plan = Stage1Settings(
        tau=None if tau == "auto" else _number(tau, "--tau"), held_out=held_out, ridge=ridge,
        uneven=uneven, cold=dict(map(_assumed, cold)), seed=seed,  # type: ignore[arg-type]
    )  # fmt: skip
    rows = read_table(existing(table))
    with LiveProgress() as live:
        told = fit_head(
            rows, out, plan, backbone=_backbone(backbone, token_index, window),
            joint=JointSettings(epochs=epochs) if svf else None, progress=live,
        )  # fmt: skip
    if as_json:
        print_json(told)
        return
    _print_fit(told)


def evolve_command(
    world: Annotated[str, typer.Argument(help="Where the pool works; scaffold is a planted one.")],
    out: Annotated[Path, typer.Option("--out", "-o", help="Folder: the run's state, the head, its card.")],
    pool: Annotated[Path | None, typer.Option("--pool", help="The pool file (TOML).")] = None,
    backbone: Reads = None,
    start: Annotated[
        Path | None, typer.Option("--from", help="Folder of a head to begin from; default: zeros.")
    ] = None,
    svf: Annotated[bool, typer.Option("--svf", help="Move the backbone's singular values too.")] = False,
    iters: Annotated[int, typer.Option("--iters", min=1, help="Generations.")] = 60,
    repeats: Annotated[int, typer.Option("--repeats", min=1, help="Rollouts of a candidate.")] = 16,
    population: Population = None,
    sigma: Annotated[float, typer.Option("--sigma", help="First step, in units of the head's RMS.")] = 1.0,
    diversity: Annotated[float, typer.Option("--diversity", help="Weight of the entropy of use.")] = 0.0,
    turns: Annotated[float, typer.Option("--turns", help="Weight of the turns not taken.")] = 0.0,
    cost: Annotated[float, typer.Option("--cost", help="Price of money; unknown prices are refused.")] = 0.0,
    tasks: Annotated[int, typer.Option("--tasks", min=1, help="Tasks to train on.")] = 256,
    test: Annotated[int, typer.Option("--test", min=2, help="Held-out tasks of the trial.")] = 200,
    rival: Rival = False,
    settings: SamplingSettings = [],  # noqa: B006
    svg: Annotated[Path | None, typer.Option("--svg", help="Also draw the run as a picture.")] = None,
    token_index: TokenIndex = -2,
    window: Window = None,
    seed: Seed = 42,
    as_json: AsJson = False,
) -> None:
    """Stage 2: improve a head by what whole rollouts earn, with separable CMA-ES.

    After Ctrl-C the same command goes on where it stopped. Every run is recorded on OUT/tree.db.

    Example: refork route evolve scaffold --out heads/evolved --rival
    """
    from refork.cli.live import LiveProgress
    from refork.policies.base import Sampling
    from refork_methods.route.evolution_picture import evolution_picture
    from refork_methods.route.evolve import EvolveSettings
    from refork_methods.route.opening import open_rollouts, starting_head
    from refork_methods.route.pool_io import read_pool
    from refork_methods.route.training import improve

    plan = EvolveSettings(
        iters, repeats, population, sigma, diversity=diversity, turns=turns, cost=cost, seed=seed
    )
    reader = _backbone(backbone, token_index, window)
    workers = read_pool(existing(pool)) if pool is not None else None
    train, tests, width = open_rollouts(
        world, workers, reader, out, tasks=tasks, test=test, seed=seed,
        settings=settings_for(Sampling(), settings),
    )  # fmt: skip
    head, card = starting_head(existing(start) if start else None, train.workers, width, reader, svf=svf)
    with LiveProgress() as live:
        told = improve(head, train, tests, plan, folder=out, card=card, runs=test, rival=rival, progress=live)
    told["folder"] = str(out)
    if svg is not None:
        svg.write_text(evolution_picture(told), encoding="utf-8")
    if as_json:
        print_json(told)
        return
    _print_evolved(told)


def _number(text: str, name: str) -> float:
    from refork.errors import BadInput

    try:
        return float(text)
    except ValueError:
        raise BadInput(f"{name} is {text!r}; it must be a number") from None


def _assumed(text: str) -> tuple[str, float]:
    from refork.errors import BadInput

    name, equals, value = text.rpartition("=")
    if not equals or not name:
        raise BadInput(f"--cold is {text!r}", hint="write NAME=REWARD, for example large=0.5")
    return name, _number(value, "--cold")


def _backbone(spec: str | None, token_index: int, window: int | None) -> RouterBackbone | None:
    if spec is None:
        return None
    from refork.policies.open import open_policy
    from refork_methods.route.backbone import RouterBackbone

    return RouterBackbone(open_policy(spec), token_index=token_index, window=window)


def _print_fit(told: dict[str, Any]) -> None:
    counts = told["queries"]
    typer.echo(
        f"fitted on {counts['fitted']} queries, {counts['held_out']} held out, {counts['dropped']} dropped"
    )
    for row in told["rows"]:
        mark = "*" if row["tau"] == told["tau"] else " "
        told_held = (
            f", held out {row['held']:.4f} (constant {row['constant']:.4f})" if counts["held_out"] else ""
        )
        typer.echo(f"{mark} tau {row['tau']:g}: divergence {row['fitted']:.4f} nats{told_held}")
    if told["moved"] is not None:
        typer.echo(f"  singular values moved: epoch {told['moved']['best']} kept")
        for epoch, fitted, held in told["moved"]["curve"]:
            typer.echo(
                f"    epoch {epoch}: {fitted:.4f}" + ("" if held is None else f", held out {held:.4f}")
            )
    if (got := told["held_out"]) is not None:
        typer.echo(
            f"held-out reward {got['chosen']:.3f}; best single worker {got['fixed']:.3f}, "
            f"best worker of each query {got['oracle']:.3f} (picked by the same outcomes)"
        )
    typer.echo(f"head: {told['folder']}")


def _print_evolved(told: dict[str, Any]) -> None:
    made, found = told["evolved"], told["trial"]
    typer.echo(
        f"{made['generations']} generations, {made['rollouts']:,} rollouts, {made['failed']} failed, "
        f"{made['flat']} generations without a difference"
    )
    typer.echo(f"on {found['runs']} held-out tasks: evolved {found['mean']:.3f}")
    for name, mean in found["means"].items():
        typer.echo(f"  {name:20} {mean:.3f}")
    for what, gap in (("start", found["reference"]), (found["rule"], found["gap"])):
        typer.echo(f"evolved minus {what}: {gap['estimate']:+.3f} [{gap['low']:+.3f}, {gap['high']:+.3f}]")
    if told["rival"] is not None:
        typer.echo(f"REINFORCE had {told['rival']['rollouts']:,} rollouts")
    typer.echo(f"head: {told['folder']}")


def register(app: typer.Typer) -> None:
    """Add the verbs to ``refork route``."""
    app.command("fit")(fit_command)
    app.command("evolve")(evolve_command)
