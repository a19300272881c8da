"""How ``ramify gate act`` and ``map`` print."""

from __future__ import annotations

from typing import Any

import typer


def print_answer(told: dict[str, Any]) -> None:
    """The action, why, the table behind it, and what a whole episode is worth."""
    typer.echo(f"{told['action']}: {told['reason']}")
    ranked = sorted(told["q"].items(), key=lambda item: -item[1])
    _grid(["action", f"worth ({told['unit']})"], [[name, f"{value:+.2f}"] for name, value in ranked])
    plan = told["plan"]
    always = plan["over_always_verify"]
    typer.echo(
        f"a whole episode is planned at {plan['value']:+.2f}: {plan['gain']:+.2f} over the best simple rule, "
        f"{plan['best_rule']}" + ("" if always is None else f", {always:+.2f} over always verifying")
    )


def print_map(told: dict[str, Any]) -> None:
    """The map as a table, largest y on top, what its marks mean, and the verdict."""
    columns = [f"{told['y']} \\ {told['x']}", *(f"{x:g}" for x in told["xs"])]
    rows = [[f"{y:g}", *marks] for y, marks in zip(told["ys"], told["marks"], strict=True)]
    _grid(columns, rows[::-1])
    for sign, words in told["legend"].items():
        typer.echo(f"{sign:>4}  {words}")
    typer.echo(told["verdict"])
    if told["sensitivity"] is not None:
        _grid(
            ["parameter", "now", "if it were", "replanned", "this plan", "regret", "best rule there"],
            [
                [
                    row["parameter"], f"{row['present']:.3g}", f"{row['other']:.3g}",
                    f"{row['replanned']:+.2f}", f"{row['unchanged']:+.2f}", f"{row['regret']:.2f}",
                    f"{row['rule']} {row['rule_value']:+.2f}",
                ]
                for row in told["sensitivity"]
            ],
        )  # fmt: skip


def _grid(columns: list[str], rows: list[list[str]]) -> None:
    from rich import box
    from rich.console import Console
    from rich.table import Table

    grid = Table(box=box.SIMPLE_HEAD, header_style="dim", show_edge=False, padding=(0, 1, 0, 0))
    for name in columns:
        grid.add_column(name, no_wrap=True)
    for row in rows:
        grid.add_row(*row)
    # A wide map goes on beyond the window rather than lose figures.
    needed = sum(2 + max(map(len, column)) for column in zip(columns, *rows, strict=True))
    Console(width=max(Console().width, needed)).print(grid)
