"""``refork learn``: selectors and credits side by side at equal token budgets."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from refork.cli.common import AsJson, DryRun, RecipeFile, print_json
from refork.cli.recipe import Keys

if TYPE_CHECKING:
    from rich.table import Table

app = typer.Typer(
    help="Experiments that run through growing, credit and training.",
    no_args_is_help=True,
    rich_markup_mode="markdown",
)


@app.callback()
def _root() -> None:
    """Experiments that run through growing, credit and training."""


@app.command()
def compare(
    out: Annotated[Path, typer.Option("--out", help="Folder of the runs, the table and the curves.")],
    recipe: RecipeFile = None,
    world: Annotated[
        list[str], typer.Option("--world", help="Only this world, with its organism; may be repeated.")
    ] = [],  # noqa: B006
    arm: Annotated[
        list[str], typer.Option("--arm", help="SELECTOR+CREDIT[+implicit]; may be repeated.")
    ] = [],  # noqa: B006
    seeds: Annotated[int | None, typer.Option("--seeds", help="Training runs per arm.")] = None,
    settings: Annotated[
        list[str],
        typer.Option("--set", help="Override a recipe key, e.g. updates=20."),
        Keys("refork_methods.compare.recipe:CompareRecipe"),
    ] = [],  # noqa: B006
    workers: Annotated[
        int | None, typer.Option("--workers", min=1, help="Processes; all cores if not given.")
    ] = None,
    dry_run: DryRun = False,
    as_json: AsJson = False,
) -> None:
    """Train every arm with every seed at one token budget; the same command again resumes.

    Example: `refork learn compare --world household:2 --seeds 3 --out runs/compare`
    """
    from refork.cli.cards import LiveProgress
    from refork.runs.recipe import resolve
    from refork_methods.compare import CompareRecipe, places_named, run_compare
    from refork_methods.compare.picture import learning_figure

    given: dict[str, Any] = {"seeds": seeds, "arms": arm or None}
    if world:
        given["worlds"] = places_named(world)
    chosen = resolve(CompareRecipe, recipe, settings, **given).checked()
    if dry_run:
        print_json(chosen.model_dump(mode="json"))
        return
    with LiveProgress() as live:
        summary = run_compare(chosen, out, live, workers=workers)
    (out / "curves.svg").write_text(learning_figure(summary["worlds"]).svg(), encoding="utf-8")
    if as_json:
        print_json(summary)
        return
    from refork.cli.screen import open_console

    console = open_console()
    for name, data in summary["worlds"].items():
        console.print(_table(name, data["rows"], summary["baseline"]))
    console.print(f"curves: {out / 'curves.svg'}", highlight=False)


def _table(world: str, rows: list[dict[str, Any]], baseline: str) -> Table:
    """One world's arms; differences are paired with the baseline, 95 % intervals."""
    from rich.table import Table

    units = {row["unit"] for row in rows} - {""}
    paired = f", paired over {' and '.join(sorted(units))}" if units else ""
    table = Table(
        "arm", "final", f"less {baseline}", "area", "less its area", "tokens to its final", "mixed groups",
        title=f"{world} ({rows[0]['runs']} runs an arm{paired})", title_justify="left",
    )  # fmt: skip
    for row in rows:
        share = "never" if row["share"] is None else f"{row['share']:.0%}"
        table.add_row(
            row["arm"], f"{row['final']:.3f}", _interval(row["gain"]), f"{row['area']:.3f}",
            _interval(row["area_gain"]), share, f"{row['mixed']:.0%}",
        )  # fmt: skip
    return table


def _interval(found: list[float] | None) -> str:
    return "" if found is None else f"{found[0]:+.3f} [{found[1]:+.3f}, {found[2]:+.3f}]"
