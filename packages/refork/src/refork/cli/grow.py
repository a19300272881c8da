"""``refork grow``: rollouts of a policy in a world, recorded and resumable."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from refork.cli.common import (
    AsJson,
    BackendSpec,
    DryRun,
    RecipeFile,
    backend_for,
    print_json,
    spelled,
    tree_name,
)
from refork.cli.recipe import Keys
from refork.types import Json


def grow_command(
    out: Annotated[Path, typer.Option("--out", help="Folder of the run: tree, recipe, summary.")],
    recipe: RecipeFile = None,
    world: Annotated[str | None, typer.Option("--world", help="e.g. household:2")] = None,
    policy: Annotated[
        str | None, typer.Option("--policy", help="hf:DIR, organism:NAME, openai:URL#MODEL or scripted:NAME.")
    ] = None,
    draws: Annotated[int | None, typer.Option("--draws", help="Rollouts per task.")] = None,
    selector: Annotated[
        str | None,
        typer.Option(
            "--selector", help="independent, random, surprisal, uucb, or FILE.py:Class: grow trees."
        ),
    ] = None,
    leaves: Annotated[int | None, typer.Option("--leaves", help="Leaves of each tree.")] = None,
    budget_tokens: Annotated[
        int | None, typer.Option("--budget-tokens", help="Or: sampled tokens of each tree.")
    ] = None,
    settings: Annotated[
        list[str],
        typer.Option("--set", help="Override a recipe key, e.g. tasks.count=32."),
        Keys("refork.runs.recipe:GrowRecipe"),
    ] = [],  # noqa: B006
    tree: Annotated[
        Path | None,
        typer.Option("--tree", help="Record into this tree, e.g. one on a server; else OUT/tree.db."),
    ] = None,
    backend: BackendSpec = None,
    dry_run: DryRun = False,
    as_json: AsJson = False,
) -> None:
    """Grow independent rollouts, or with --selector trees of them; run the same command again to resume.

    Settings of a selector: --set selector.c=0.5, selector.entropy_coef, selector.roots, and so on.

    Example: refork grow --world household:2 --policy hf:DIR --draws 8 --set tasks.count=32 --out runs/a

    Example: refork grow --world household:2 --policy hf:DIR --backend ray://HOST:10001 --out runs/a

    Example: refork grow --world lock --policy NAME --selector uucb --budget-tokens 512 --out runs/b
    """
    from refork.cli.live import LiveProgress
    from refork.growing.run import plan_grow, run_grow
    from refork.runs.recipe import GrowRecipe, resolve

    if selector is not None:
        settings = [f"selector.kind={selector}", *settings]
    chosen = resolve(
        GrowRecipe, recipe, settings, world=world, policy=policy, draws=draws, leaves=leaves,
        budget_tokens=budget_tokens,
    )  # fmt: skip
    if dry_run:
        plan = plan_grow(chosen)
        if as_json:
            print_json(plan)
        else:
            for name, value in plan.items():
                typer.echo(f"{name:12s} {value}")
        return
    with LiveProgress() as live, backend_for(backend) as crew:
        summary = run_grow(spelled(chosen, live), out, live, crew, tree_path=tree)
    if as_json:
        print_json(summary)
        return
    _print_summary(summary, out, tree_name(tree or out / "tree.db"))


def _print_summary(summary: Json, out: Path, tree: str) -> None:
    typer.echo(
        f"{summary['rollouts']} rollouts of {summary['tasks']} tasks in {tree}: "
        f"success {summary['rate']:.3f} [{summary['low']:.3f}, {summary['high']:.3f}], "
        f"{summary['errors']} failed, {summary['tokens']} tokens sampled now"
    )
    if summary.get("selector"):
        typer.echo(
            f"{summary['selector']}\n{summary['mixed']} of {summary['tasks']} groups are mixed; "
            f"{summary['leaves_per_task']:.1f} leaves and {summary['tokens_per_task']:.0f} tokens per task; "
            f"choices and their terms in {out / 'choices.jsonl'}"
        )
        if told := summary.get("allocator"):
            by = (
                f"by what {told['groups']} groups before came to"
                if told["learned"]
                else "by the posterior alone"
            )
            typer.echo(f"the leaves of {told['moved']} groups were moved, {by}")
        if summary["biased"]:
            typer.echo(f"success is over rollouts from the task alone, because {summary['biased']}")
