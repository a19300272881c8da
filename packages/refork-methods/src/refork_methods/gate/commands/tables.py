"""How ``refork gate`` prints fits, replays and scores."""

from __future__ import annotations

from typing import Any

import typer


def print_grid(columns: list[str], rows: list[list[str]], *, ruled: bool = False) -> None:
    """A table that goes on beyond a narrow window rather than lose figures."""
    from rich import box
    from rich.table import Table

    from refork.cli.screen import open_console

    apart = 1 if ruled else 2
    grid = Table(
        box=box.SIMPLE_HEAD if ruled else None, header_style="dim", show_edge=False, padding=(0, apart, 0, 0)
    )
    for name in columns:
        grid.add_column(name, no_wrap=True)
    for row in rows:
        grid.add_row(*row)
    needed = sum(2 + max(map(len, column)) for column in zip(columns, *rows, strict=True))
    open_console(width=max(open_console().width, needed)).print(grid)


def _figure(value: float | None, form: str = ".3f") -> str:
    return "-" if value is None else format(value, form)


def print_fit(told: dict[str, Any]) -> None:
    """A fit as sentences and a table."""
    prior, kernel = told["prior"], told["kernel"]
    typer.echo(
        f"{told['right']} right and {told['wrong']} wrong candidates of {told['instances']} instances; prior "
        f"{prior['mean']:.3f} ({prior['wilson']['low']:.3f} to {prior['wilson']['high']:.3f})"
    )
    rows = [
        [
            one["name"], *(_side(one[side]) for side in ("alpha", "beta")), f"{one['gap']:+.3f}",
            f"{one['price']:g}", str(one["unknown"]),
        ]
        for one in told["critics"]
    ]  # fmt: skip
    print_grid(["critic", "P(pass | right)", "P(pass | wrong)", "gap", "price", "unknown"], rows)
    typer.echo(
        f"refining: P(fix) {kernel['fix']['mean']:.3f}, P(break) {kernel['breaks']['mean']:.3f}, "
        f"from {kernel['from']}"
    )
    for warning in told["warnings"]:
        typer.echo(f"warning: {warning}")


def _side(side: dict[str, Any]) -> str:
    return f"{side['mean']:.3f} ({side['low']:.3f} to {side['high']:.3f})"


def print_replay(told: dict[str, Any]) -> None:
    """A replay as a table, and each controller beside the best rule."""
    rows = [
        [
            one["policy"], f"{one['utility']['estimate']:.2f}",
            f"{one['utility']['low']:.2f} to {one['utility']['high']:.2f}", f"{one['predicted']:.2f}",
            _figure(one["z"], "+.1f"), f"{one['solved']:.3f}", f"{one['spent']:.1f}",
        ]
        for one in told["policies"]
    ]  # fmt: skip
    print_grid(["policy", "utility", "95 %", "predicted", "z", "solved", "spent"], rows)
    for name, one in told["comparisons"].items():
        typer.echo(
            f"{name} minus the best simple rule, {one['best_rule']}: {_gap(one['gap'])}, p = {one['p']:.2g}; "
            f"so many instances show {one['detectable']:.1f}"
        )
        typer.echo(f"{name} minus always_verify: {_gap(one['over_always_verify'])}")
    for warning in told["warnings"]:
        typer.echo(f"warning: {warning}")


def _gap(gap: dict[str, Any]) -> str:
    return f"{gap['estimate']:+.2f} ({gap['low']:+.2f} to {gap['high']:+.2f})"


def print_scores(told: dict[str, Any]) -> None:
    """Scores as a table."""
    rows = [
        [
            one["score"], _figure(one["prr"]), _figure(one["auroc"] and one["auroc"]["estimate"]),
            _figure(one["ece"]), _figure(one["brier"]),
        ]
        for one in told["scores"]
    ]  # fmt: skip
    print_grid(["score", "PRR", "AUROC", "ECE", "Brier"], rows)
    lost = "".join(f", {n} dropped: {why}" for why, n in told["dropped"].items())
    typer.echo(f"{told['candidates']} candidates{lost}")


def print_live(told: dict[str, Any]) -> None:
    """Episodes as a table, then what was earned beside what was promised."""
    rows = [
        [
            one["task"], str(one["draw"]), " > ".join(one["actions"]), one["outcome"],
            _figure(one["belief"]), _figure(one["utility"], "+.2f"), one["why"] or "",
        ]
        for one in told["rows"]
    ]  # fmt: skip
    print_grid(["task", "draw", "actions", "outcome", "belief", "utility", ""], rows)
    outcomes = ", ".join(f"{n} {name}" for name, n in told["outcomes"].items())
    typer.echo(f"{len(told['rows'])} episodes: {outcomes}; {told['found']} were on the tree already")
    utility, promised = told["utility"], told["promised"]
    if utility is not None:
        typer.echo(
            f"{told['policy']} earned {utility['estimate']:.2f} a task ({utility['low']:.2f} to "
            f"{utility['high']:.2f}); predicted {told['predicted']:.2f}, z {_figure(told['z'], '+.1f')}"
        )
    best = promised["best_rule"]
    typer.echo(
        f"promised: the plan {promised['value']:.2f}, the best simple rule, {best}, "
        f"{promised['rules'][best]:.2f}, always verifying {promised['rules']['always_verify']:.2f}"
    )
