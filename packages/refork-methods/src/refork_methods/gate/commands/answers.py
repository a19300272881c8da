"""How ``refork gate act`` and ``map`` print."""

from __future__ import annotations

from typing import Any

import typer

from refork_methods.gate.commands.tables import print_grid


def print_answer(told: dict[str, Any]) -> None:
    """The action, why, the table behind it, and what a whole episode is worth."""
    typer.echo(f"{told['action']}: {told['reason']}")
    ranked = sorted(told["q"].items(), key=lambda item: -item[1])
    values = [[name, f"{value:+.2f}"] for name, value in ranked]
    print_grid(["action", f"worth ({told['unit']})"], values, ruled=True)
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
    print_grid(columns, rows[::-1], ruled=True)
    for sign, words in told["legend"].items():
        typer.echo(f"{sign:>4}  {words}")
    typer.echo(told["verdict"])
    if told["sensitivity"] is not None:
        print_grid(
            ["parameter", "now", "if it were", "replanned", "this plan", "regret", "best rule there"],
            [
                [
                    row["parameter"], f"{row['present']:.3g}", f"{row['other']:.3g}",
                    f"{row['replanned']:+.2f}", f"{row['unchanged']:+.2f}", f"{row['regret']:.2f}",
                    f"{row['rule']} {row['rule_value']:+.2f}",
                ]
                for row in told["sensitivity"]
            ],
            ruled=True,
        )  # fmt: skip
