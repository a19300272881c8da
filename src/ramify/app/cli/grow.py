"""``ramify grow``: rollouts of a policy in a world, recorded and resumable."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from ramify.app.cli.common import print_json


def grow_command(
    out: Annotated[Path, typer.Option("--out", help="Folder of the run: tree, recipe, summary.")],
    recipe: Annotated[Path | None, typer.Argument(help="A recipe file (TOML).")] = None,
    world: Annotated[str | None, typer.Option("--world", help="e.g. household:2")] = None,
    policy: Annotated[str | None, typer.Option("--policy", help="hf:DIR, openai:URL#MODEL, ...")] = None,
    draws: Annotated[int | None, typer.Option("--draws", help="Rollouts per task.")] = None,
    settings: Annotated[
        list[str], typer.Option("--set", help="Override a recipe key, e.g. tasks.count=32.")
    ] = [],  # noqa: B006
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Check and say what it would do.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Grow independent rollouts; run the same command again to resume.

    Example: ramify grow --world household:2 --policy hf:DIR --draws 8 --set tasks.count=32 --out runs/a
    """
    from ramify.app.cli.cards import LiveProgress
    from ramify.core.run.grow import plan_grow, run_grow
    from ramify.core.run.recipe import GrowRecipe, resolve

    chosen = resolve(GrowRecipe, recipe, settings, world=world, policy=policy, draws=draws)
    if dry_run:
        plan = plan_grow(chosen)
        if as_json:
            print_json(plan)
        else:
            for name, value in plan.items():
                typer.echo(f"{name:12s} {value}")
        return
    with LiveProgress() as live:
        summary = run_grow(chosen, out, live)
    if as_json:
        print_json(summary)
        return
    typer.echo(
        f"{summary['rollouts']} rollouts of {summary['tasks']} tasks in {out / 'tree.db'}: "
        f"success {summary['rate']:.3f} [{summary['low']:.3f}, {summary['high']:.3f}], "
        f"{summary['errors']} failed, {summary['tokens']} tokens sampled now"
    )


def register(app: typer.Typer) -> None:
    """Mount the command."""
    app.command("grow")(grow_command)
