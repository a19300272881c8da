"""``refork simulate train``."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any

import typer

from refork.cli.common import AsJson, DryRun, RecipeFile, print_json
from refork.cli.recipe import Keys


class StageName(StrEnum):
    """The three stages."""

    cpt = "cpt"
    sft = "sft"
    rl = "rl"


def register(app: typer.Typer) -> None:
    """Mount the command."""
    app.command("train")(train)


def train(
    stage: Annotated[StageName, typer.Option("--stage", help="cpt, then sft, then rl.")],
    out: Annotated[Path, typer.Option("--out", help="Folder of the run.", show_default=False)],
    recipe: RecipeFile = None,
    data: Annotated[
        Path | None, typer.Option("--data", help="Folder of `simulate data`, or a file of trajectories.")
    ] = None,
    policy: Annotated[str | None, typer.Option("--policy", help="hf:DIR or organism:NAME.")] = None,
    lora: Annotated[bool, typer.Option("--lora", help="Train an adapter, not all weights.")] = False,
    judge: Annotated[
        str | None, typer.Option("--judge", help="rule, or the model that grades (sft with a teacher, rl).")
    ] = None,
    settings: Annotated[
        list[str] | None,
        typer.Option("--set", help="Override a recipe key, e.g. rate.peak=1e-4."),
        Keys(
            "refork_methods.simulate.recipes:CptRecipe",
            "refork_methods.simulate.recipes:SftRecipe",
            "refork_methods.simulate.recipes:RlRecipe",
        ),
    ] = None,
    dry_run: DryRun = False,
    json: AsJson = False,
) -> None:
    """Train a model to answer as environments do; the same command again resumes.

    Example: refork simulate train --stage cpt --data data --policy hf:DIR --set steps=500 --out runs/cpt
    """
    from refork.cli.live import LiveProgress
    from refork.policies.open import spell
    from refork.runs.recipe import resolve
    from refork_methods.simulate.recipes import recipe_class
    from refork_methods.simulate.run import plan_stage, run_stage

    changes = [*(settings or []), *(["lora={}"] if lora and not _sets_lora(settings or []) else [])]
    chosen = resolve(
        recipe_class(stage.value), recipe, changes, policy=None if policy is None else spell(policy),
        judge=None if judge is None else spell(judge),
        data=None if data is None else str(data),
    )  # fmt: skip
    if dry_run:
        _print(plan_stage(stage.value, chosen), json)
        return
    with LiveProgress() as live:
        summary = run_stage(stage.value, chosen, out, live)
    _print(summary, json)


def _sets_lora(settings: list[str]) -> bool:
    return any(item.startswith("lora") for item in settings)


def _print(facts: dict[str, Any], as_json: bool) -> None:
    if as_json:
        print_json(facts)
        return
    for name, value in facts.items():
        if isinstance(value, dict):
            shown = ", ".join(f"{key} {_short(inner)}" for key, inner in value.items())
        else:
            shown = _short(value)
        typer.echo(f"{name.replace('_', ' '):<22} {shown}")


def _short(value: object) -> str:
    return f"{value:.4g}" if isinstance(value, float) else "-" if value is None else str(value)
