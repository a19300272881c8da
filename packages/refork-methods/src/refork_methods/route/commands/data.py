"""Verbs of ``refork route`` about outcomes: collect them, explain choices, compare with baselines."""

from __future__ import annotations

from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from refork.cli.common import AsJson, SamplingSettings, existing, print_json, settings_for
from refork_methods.route.commands.frontier import frontier_command

if TYPE_CHECKING:
    from refork.growing import Group
    from refork.tree.node import Trajectory
    from refork_methods.route.collect import Swaps
    from refork_methods.route.decision import Decision
    from refork_methods.route.runs import Labels

Low = Annotated[float, typer.Option("--low", help="Least possible reward in tables.")]
High = Annotated[float, typer.Option("--high", help="Largest possible reward in tables.")]
Runs = Annotated[int, typer.Option("--runs", help="Recorded runs per task, a random worker each turn.")]
Turns = Annotated[list[int], typer.Option("--turn", help="Only this turn, from 0; may be repeated.")]
Rest = Annotated[str, typer.Option("--rest", help="Who says later turns: recorded or swapped.")]
Pool = Annotated[Path, typer.Option("--pool", help="The pool file (TOML): workers, prices, opt-outs.")]


def collect_command(
    pool: Pool,
    out: Annotated[Path, typer.Option("--out", "-o", help="Folder for the tree and the table.")],
    world: Annotated[str, typer.Option("--world", help="Where the workers act.")] = "specialists",
    tasks: Annotated[int, typer.Option("--tasks", help="Tasks of the training split.")] = 20,
    runs: Runs = 1,
    draws: Annotated[int, typer.Option("--draws", help="Repeats of every worker at every turn.")] = 8,
    turns: Turns = [],  # noqa: B006
    rest: Rest = "recorded",
    alone: Annotated[bool, typer.Option("--alone", help="Standalone: each worker does whole tasks.")] = False,
    table: Annotated[str, typer.Option("--table", help="outcomes.csv, .jsonl or .parquet.")] = "outcomes.csv",
    settings: SamplingSettings = [],  # noqa: B006
    seed: Annotated[int, typer.Option("--seed", help="Address of tasks and noise.")] = 0,
    as_json: AsJson = False,
) -> None:
    """Collect outcomes: record runs, then swap only the worker at each turn and let the run go on.

    What is on the tree is not done again: after Ctrl-C the same command goes on.

    Example: refork route collect --pool pool.toml --world specialists --tasks 20 --draws 8 -o runs/labels
    """
    from refork.cli.live import LiveProgress
    from refork.errors import BadInput
    from refork.policies.base import Sampling
    from refork.policies.open import open_policy
    from refork.progress import waits
    from refork.tree import Tree
    from refork.worlds.open import open_world
    from refork_methods.route.collect import label_by_fork
    from refork_methods.route.pool_io import read_pool
    from refork_methods.route.runs import label_alone, record_runs
    from refork_methods.route.table_io import write_table

    if rest not in ("recorded", "swapped"):
        raise BadInput(f"--rest is {rest!r}", hint="recorded or swapped")
    place = open_world(world)
    law = settings_for(Sampling(), settings) or Sampling()
    wanted = place.tasks("train", tasks, seed)
    found: Swaps | Labels
    with LiveProgress() as live, ExitStack() as stack:
        workers = read_pool(existing(pool), partial(open_policy, on_wait=waits(live)))
        out.mkdir(parents=True, exist_ok=True)
        tree = stack.enter_context(Tree.open(out / "tree.db"))
        if alone:
            found = label_alone(
                tree, workers, place, wanted, draws=draws, settings=law, seed=seed, progress=live
            )
        else:
            groups = record_runs(
                tree, workers, place, wanted, draws=runs, settings=law, seed=seed, progress=live
            )
            found = label_by_fork(
                tree, workers, runs=_whole_walks(groups), world=place, turns=turns or None, draws=draws,
                rest=rest, seed=seed, progress=live,  # type: ignore[arg-type]
            )  # fmt: skip
    write_table(found.table, out / table)
    told = _collected(found, out, table)
    if as_json:
        print_json(told)
        return
    _print_collected(told)


def _whole_walks(groups: list[Group]) -> list[Trajectory]:
    return [
        walk
        for group in groups
        for arm in group.forks
        for draw, walk in zip(arm.draws, arm.leaves(), strict=True)
        if draw.end != "error"
    ]


def _print_collected(told: dict[str, Any]) -> None:
    typer.echo(f"{told['rows']} outcomes of {told['queries']} queries, {told['failures']} draws without one")
    typer.echo(f"{told['undecided']} of the queries have equal means for all workers: nothing to learn there")
    typer.echo(f"table: {told['table']}, tree: {told['tree']}")
    for name, mean in told["means"].items():
        typer.echo(f"  {name:16} mean reward {'not tried' if mean is None else f'{mean:.3f}'}")
    for one in told["effects"]:
        span = (
            "" if one["effect"] is None else f" [{one['effect']['low']:+.3f}, {one['effect']['high']:+.3f}]"
        )
        typer.echo(f"  {one['recorded']} -> {one['worker']}: {one['mean']:+.3f}{span}, {one['points']} turns")
    _bill(told)


def _collected(found: Swaps | Labels, out: Path, table: str) -> dict[str, Any]:
    import numpy as np

    from refork_methods.route.collect import Swaps
    from refork_methods.route.pool import Bill

    means, _ = found.table.means()
    columns = {name: means[:, w] for w, name in enumerate(found.table.workers)}
    bill = Bill.of(None if np.isnan(cost) else float(cost) for cost in found.table.cost)
    return {
        "table": str(out / table),
        "tree": str(out / "tree.db"),
        "rows": len(found.table),
        "queries": len(found.table.queries),
        "undecided": int((np.nanmax(means, axis=1) == np.nanmin(means, axis=1)).sum()),
        "failures": len(found.failures),
        "first_failure": found.failures[0].reason if found.failures else None,
        "means": {
            name: None if np.isnan(column).all() else float(np.nanmean(column))
            for name, column in columns.items()
        },
        "effects": [one.to_json() for one in found.effects] if isinstance(found, Swaps) else [],
        "money": bill.known,
        "calls_of_unknown_price": bill.unknown,
    }


def _bill(told: dict[str, Any]) -> None:
    unknown = told["calls_of_unknown_price"]
    tail = f", and {unknown} calls of unknown price" if unknown else ""
    typer.echo(f"money of the labelled turns: {told['money']:.4g}{tail}")
    if told["first_failure"]:
        typer.echo(f"first draw without an outcome: {told['first_failure']}")


def explain_command(
    source: Annotated[
        Path, typer.Argument(help="A decision log (.jsonl), a tree (.db), or an outcome table.")
    ],
    query: Annotated[
        str | None, typer.Option("--query", help="Only decisions of this query or node.")
    ] = None,
    last: Annotated[int, typer.Option("--last", help="At most so many, the newest.")] = 10,
    table: Annotated[bool, typer.Option("--table", help="The .jsonl file is an outcome table.")] = False,
    tau: Annotated[float, typer.Option("--tau", help="With --table: temperature of the targets.")] = 0.2,
    value: Annotated[
        float | None, typer.Option("--value", help="With --table: what a reward is worth.")
    ] = None,
    low: Low = 0.0,
    high: High = 1.0,
    as_json: AsJson = False,
) -> None:
    """Why each worker was chosen: probabilities, margin, expected reward, price, runner-up.

    Example: refork route explain outcomes.csv --query q17
    """
    from refork.errors import BadInput

    told = table or source.suffix in (".csv", ".parquet")
    found = _decisions(existing(source), (low, high) if told else None, tau, value)
    if query is not None:
        found = [(where, one, call) for where, one, call in found if query in (one.query, where)]
        if not found:
            raise BadInput(f"there is no decision about {query!r}", where=str(source))
    shown = found[-last:] if last > 0 else found
    if as_json:
        print_json([{"where": where, **one.to_json(), "call": call} for where, one, call in shown])
        return
    if not shown:
        typer.echo("no decision is recorded here", err=True)
    for where, one, call in shown:
        typer.echo(f"{where}: {one.reason}")
        if call.get("error"):
            typer.echo(f"  the call failed: {call['error']}")
        elif call:
            money = "unknown" if call.get("money") is None else f"{call['money']:.4g}"
            typer.echo(f"  the call took {call['seconds']:.3g} s and cost {money}")


def _decisions(
    source: Path, rewards: tuple[float, float] | None, tau: float, value: float | None
) -> list[tuple[str, Decision, dict[str, Any]]]:
    from refork.tree import Tree
    from refork.tree.address import is_address
    from refork_methods.route.decision import DecisionLog, decisions_of_table, decisions_on
    from refork_methods.route.table_io import read_table

    if rewards is not None:
        outcomes = read_table(source, low=rewards[0], high=rewards[1])
        return [(one.query, one, {}) for one in decisions_of_table(outcomes, tau, value=value)]
    if source.suffix == ".db" or is_address(source):
        with Tree.open(source, "r") as tree:
            return [(node[:12], one, {}) for node, one in decisions_on(tree)]
    return [(one.query, one, call) for one, call in DecisionLog(source)]


def register(app: typer.Typer) -> None:
    """Add the verbs to ``refork route``."""
    app.command("collect")(collect_command)
    app.command("explain")(explain_command)
    app.command("frontier")(frontier_command)
