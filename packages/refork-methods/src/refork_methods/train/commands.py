"""``refork train``: make a policy better, check the trainer, hand the data to another one."""

from __future__ import annotations

from collections.abc import Callable
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any

import typer

from refork.cli.common import AsJson, DryRun, RecipeFile, Settings, existing, print_json, spelled
from refork.cli.recipe import Keys
from refork.cli.screen import secho

app = typer.Typer(
    help="Train policies on what was recorded, check the trainer, export to other trainers.",
    no_args_is_help=True,
    rich_markup_mode="markdown",
)

Out = Annotated[Path, typer.Option("--out", help="Folder of the run: policy, curve, checkpoints, recipe.")]
PolicySpec = Annotated[str | None, typer.Option("--policy", help="hf:DIR or organism:NAME; a local model.")]
TreeFile = Annotated[Path | None, typer.Option("--tree", help="Take the data from this tree.")]
DataFile = Annotated[Path | None, typer.Option("--data", help="Take the data from this JSON-lines file.")]


class Format(StrEnum):
    """What ``export`` writes."""

    trl_grpo = "trl-grpo"
    trl_dpo = "trl-dpo"
    verl_tasks = "verl-tasks"
    verl_rollouts = "verl-rollouts"


def _text(path: Path | None) -> str | None:
    return None if path is None else str(existing(path))


def _print(summary: dict[str, Any], as_json: bool) -> None:
    if as_json:
        print_json(summary)
        return
    for name, value in summary.items():
        shown = f"{value:.4g}" if isinstance(value, float) else value
        typer.echo(f"{name.replace('_', ' '):<20} {shown}")


def _fine_tune(
    run: Callable[..., dict[str, Any]],
    chosen: Any,
    out: Path,
    dry_run: bool,
    as_json: bool,
) -> None:
    """Show the recipe, or run it and show the summary."""
    from refork.cli.cards import LiveProgress

    if dry_run:
        _print(chosen.model_dump(mode="json"), as_json)
        return
    with LiveProgress() as live:
        summary = run(spelled(chosen, live), out, live)
    _print(summary, as_json)


@app.command()
def sft(
    out: Out,
    recipe: RecipeFile = None,
    policy: PolicySpec = None,
    tree: TreeFile = None,
    data: DataFile = None,
    settings: Annotated[Settings, Keys("refork_methods.train.finetune:SftRecipe")] = [],  # noqa: B006
    dry_run: DryRun = False,
    as_json: AsJson = False,
) -> None:
    """Fine-tune on a tree's successes, or on conversations; the same command again resumes.

    Example: `refork train sft --policy hf:DIR --tree runs/a/tree.db --set steps=200 --out runs/sft`
    """
    from refork.runs.recipe import resolve
    from refork_methods.train.finetune import SftRecipe, run_sft

    chosen = resolve(SftRecipe, recipe, settings, policy=policy, tree=_text(tree), data=_text(data))
    _fine_tune(run_sft, chosen, out, dry_run, as_json)


@app.command()
def dpo(
    out: Out,
    recipe: RecipeFile = None,
    policy: PolicySpec = None,
    tree: TreeFile = None,
    data: DataFile = None,
    settings: Annotated[Settings, Keys("refork_methods.train.finetune:DpoRecipe")] = [],  # noqa: B006
    dry_run: DryRun = False,
    as_json: AsJson = False,
) -> None:
    """Train on preferences: the branches of a tree's forks, or pairs of token ids in a file.

    Example: `refork train dpo --policy hf:DIR --tree runs/a/tree.db --set least=0.5 --out runs/dpo`
    """
    from refork.runs.recipe import resolve
    from refork_methods.train.finetune import DpoRecipe, run_dpo

    chosen = resolve(DpoRecipe, recipe, settings, policy=policy, tree=_text(tree), data=_text(data))
    _fine_tune(run_dpo, chosen, out, dry_run, as_json)


@app.command("policy")
def train_policy(
    out: Out,
    recipe: RecipeFile = None,
    world: Annotated[str | None, typer.Option("--world", help="e.g. household:2")] = None,
    policy: PolicySpec = None,
    selector: Annotated[
        str | None, typer.Option("--selector", help="independent, random, surprisal, uucb, or FILE.py:Class.")
    ] = None,
    credit: Annotated[
        str | None,
        typer.Option(
            "--credit", help="grpo, siblings, gigpo, hgpo, graphgpo, g2po, implicit, or FILE.py:function."
        ),
    ] = None,
    objective: Annotated[
        str | None, typer.Option("--objective", help="plain, grpo, gspo, dapo or dr-grpo.")
    ] = None,
    updates: Annotated[int | None, typer.Option("--updates", help="How many.")] = None,
    settings: Annotated[Settings, Keys("refork_methods.train.run:PolicyRecipe")] = [],  # noqa: B006
    dry_run: DryRun = False,
    as_json: AsJson = False,
) -> None:
    """Train by policy gradient on rollout trees; the same command again resumes at the last checkpoint.

    Example: `refork train policy --world household:2 --policy hf:DIR --credit g2po --out runs/p`
    """
    from refork.cli.cards import LiveProgress
    from refork.runs.recipe import resolve
    from refork_methods.train.run import PolicyRecipe, plan_policy, run_policy

    chosen = resolve(
        PolicyRecipe, recipe, settings, world=world, policy=policy, selector=selector, credit=credit,
        objective=objective, updates=updates,
    )  # fmt: skip
    if dry_run:
        _print(plan_policy(chosen), as_json)
        return
    with LiveProgress() as live:
        summary = run_policy(spelled(chosen, live), out, live)
    _print(summary, as_json)


@app.command()
def check(
    tree: Annotated[Path, typer.Option("--tree", help="Rollouts, for instance those of a training run.")],
    policy: Annotated[str, typer.Option("--policy", help="hf:DIR; the weights whose rollouts are checked.")],
    tolerance: Annotated[float, typer.Option(min=0, help="How far log-probs may lie apart, nats.")] = 1e-3,
    as_json: AsJson = False,
) -> None:
    """Compare the sampler's log-probs with the trainer's.

    Exits with status 1 where they differ; the rollouts that show it are named.

    Example: `refork train check --tree runs/p/tree.db --policy hf:runs/p/policy`
    """
    from refork.cli.cards import LiveProgress
    from refork.tree import Tree
    from refork_methods.train.check import check_tree
    from refork_methods.train.run import local_policy

    actor = local_policy(policy)
    with Tree.open(existing(tree), "r") as store, LiveProgress() as live:
        found = check_tree(store, actor.model, str(actor.card.weights), tolerance=tolerance, progress=live)
    if as_json:
        print_json(found.to_json())
    else:
        typer.echo(f"{found.rollouts} rollouts, largest difference {found.largest:.2g} nats")
        for item in found.problems:
            secho(f"leaf {item.leaf[:12]}", fg="red", nl=False)
            place = f"node {item.node[:12]} token {item.token}"
            typer.echo(f"  {place}: {item.value:.4f}, expected {item.expected:.4f}")
    if found.problems:
        raise typer.Exit(1)


@app.command()
def export(
    tree: Annotated[Path, typer.Option("--tree", help="The tree with graded rollouts.")],
    out: Annotated[Path, typer.Option("--out", help="The Parquet file.")],
    format_: Annotated[Format, typer.Option("--format", help="Whose layout.")] = Format.trl_grpo,
    policy: Annotated[
        str | None, typer.Option("--policy", help="Turns token ids to text, for trl-dpo and bare prompts.")
    ] = None,
    credit: Annotated[str, typer.Option("--credit", help="The advantages to write.")] = "siblings",
    least: Annotated[float, typer.Option("--least", help="Least difference of a preference pair.")] = 0.25,
    as_json: AsJson = False,
) -> None:
    """Write groups, advantages or preference pairs for TRL or verl.

    Example: `refork train export --tree runs/p/tree.db --format verl-rollouts --out rollouts.parquet`
    """
    from refork.tree import Tree
    from refork_methods.train.export import export_tree

    with Tree.open(existing(tree), "r") as store:
        count = export_tree(store, out, format_.value, policy=policy, credit=credit, least=least)
    if as_json:
        print_json({"rows": count, "file": str(out), "format": format_.value})
        return
    typer.echo(f"{count:,} rows in {out}")
