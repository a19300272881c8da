"""``refork credit``: which steps of recorded rollouts earned the outcome."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from refork.cli.common import AsJson, print_json
from refork.cli.screen import secho

if TYPE_CHECKING:
    from refork_methods.credit.graph.advantages import CreditSettings
    from refork_methods.credit.graph.collisions import CollisionReport
    from refork_methods.credit.graph.source import Source

app = typer.Typer(
    help="Credit the steps of recorded rollouts.", no_args_is_help=True, rich_markup_mode="markdown"
)

File = Annotated[Path, typer.Argument(help="A tree file, or trajectories as JSON lines.", show_default=False)]
AnchorName = Annotated[
    str | None,
    typer.Option(
        "--anchor",
        help="exact, normalised or state; on a tree also tree. Default: state if any has a key, else exact.",
    ),
]
History = Annotated[int, typer.Option("--history", min=1, help="How many last states must be equal.")]
Fuzzy = Annotated[
    float | None, typer.Option("--fuzzy", help="Merge observations that share this part of their words.")
]
ScopeName = Annotated[str, typer.Option("--scope", help="Whose states merge: group or task.")]
ScoreName = Annotated[str, typer.Option("--score", help="The leaf score of a tree.")]
TaskNode = Annotated[str | None, typer.Option("--task", help="One task of a tree; default: all.")]
Method = Annotated[str, typer.Option("--method", help="grpo, gigpo, hgpo, graphgpo or g2po.")]
NormName = Annotated[str, typer.Option("--norm", help="std or mean.")]
Weight = Annotated[float, typer.Option("--step-weight", help="Weight of the step parts.")]
Gamma = Annotated[float, typer.Option("--gamma", help="Discount per turn.")]
Visit = Annotated[str, typer.Option("--visit", help="every or first visit of a trajectory counts.")]
Win = Annotated[
    float | None,
    typer.Option("--win", help="Outcomes from here on are wins, others worth 0; default: as is."),
]
Over = Annotated[
    str | None,
    typer.Option(
        "--over", help="Mean outcome over steps or trajectories. Default: steps, on a tree trajectories."
    ),
]


def _read(
    file: Path,
    anchor: str | None,
    history: int,
    fuzzy: float | None,
    scope: str,
    score: str,
    task: str | None,
) -> tuple[Source, CollisionReport]:
    """The graph of a file, with every reason not to use it on standard error."""
    from refork.errors import BadInput
    from refork_methods.credit.graph.collisions import collision_report
    from refork_methods.credit.graph.source import Reading, read_source

    if scope not in ("group", "task"):
        raise BadInput(f"unknown scope {scope!r}", hint="known: group, task")
    how = Reading(
        anchor=anchor, history=history, fuzzy=fuzzy, scope="task" if scope == "task" else "group",
        score=score, task=task,
    )  # fmt: skip
    source = read_source(file, how)
    report = collision_report(source.graph)
    notes = list(report.warnings)
    if not source.keyed and source.anchor == "exact":
        notes.insert(
            0, "no state of this tree has a key, as in every imported log: equal texts are one state"
        )
    elif not source.keyed and source.anchor == "state":
        notes.insert(0, "no state of this tree has a key, so none merge; --anchor exact compares their texts")
    for text in notes:
        secho("note: ", fg="yellow", nl=False, err=True)
        typer.echo(text, err=True)
    return source, report


def _settings(source: Source, **given: Any) -> CreditSettings:
    from refork_methods.credit.graph.advantages import CreditSettings

    if given.get("over") is None:
        given["over"] = "trajectories" if source.records is None else "steps"
    return CreditSettings(**given)


@app.command()
def report(
    file: File,
    anchor: AnchorName = None,
    history: History = 1,
    fuzzy: Fuzzy = None,
    scope: ScopeName = "group",
    score: ScoreName = "success",
    task: TaskNode = None,
    as_json: AsJson = False,
) -> None:
    """Say how often states merge, and whether that is enough; exit status 1 where it is not.

    Example: `refork credit report runs/demo/tree.db`
    """
    from dataclasses import asdict

    _, found = _read(file, anchor, history, fuzzy, scope, score, task)
    if as_json:
        print_json(asdict(found))
    else:
        later = (
            "none" if found.merged_later is None else f"{found.merged_later:.1%} of those behind the start"
        )
        rows = {
            f"{scope}s": f"{found.graphs:,} with {found.trajectories:,} trajectories; {found.mixed:,} mixed"
            + (" groups" if scope == "task" else ""),
            "states": f"{found.states:,} of {found.steps:,} steps, {found.visits_per_state:.1f} visits each",
            "merged": f"{found.merged:.1%} of the steps leave a state that another trajectory saw; {later}",
            "compared": f"{found.compared:.1%} leave a state that was left in at least two ways",
            "crowded": f"{found.crowded:.1%} of a graph's steps at most in one state",
            "by place": " ".join(f"{share:.2f}" for share in found.by_place),
        }
        for name, text in rows.items():
            typer.echo(f"{name:<10} {text}")
    if not found.enough:
        raise typer.Exit(1)


@app.command()
def graph(
    file: File,
    out: Annotated[Path | None, typer.Option("--out", help="Write the graph: .graphml or .json.")] = None,
    top: Annotated[int, typer.Option("--top", min=1, help="How many critical edges to show.")] = 10,
    least: Annotated[
        int, typer.Option("--least", min=1, help="Leave out edges whose source was visited less often.")
    ] = 2,
    anchor: AnchorName = None,
    history: History = 1,
    fuzzy: Fuzzy = None,
    scope: ScopeName = "group",
    score: ScoreName = "success",
    task: TaskNode = None,
    gamma: Gamma = 0.95,
    win: Win = None,
    as_json: AsJson = False,
) -> None:
    """Merge rollouts into a state graph and list the edges that gained or lost most.

    Example: `refork credit graph runs/demo/tree.db --out graph.graphml`
    """
    from dataclasses import asdict

    from refork_methods.credit.graph.edges import critical_edges
    from refork_methods.credit.graph.export import write_graph

    source, found = _read(file, anchor, history, fuzzy, scope, score, task)
    _settings(source, gamma=gamma, win=win)
    edges = critical_edges(source.graph, top, least=least, gamma=gamma, win=win)
    if out is not None:
        write_graph(source.graph, out, gamma, win)
    if as_json:
        print_json({"states": found.states, "steps": found.steps, "edges": [asdict(edge) for edge in edges]})
        return
    from rich.table import Table

    from refork.cli.screen import open_console

    typer.echo(f"{found.states:,} states of {found.steps:,} steps in {found.graphs:,} graphs")
    table = Table("gain", "+-", "visits", "from", "to", box=None)
    for edge in edges:
        error = "" if edge.error is None else f"{1.96 * edge.error:.2f}"
        table.add_row(
            f"{edge.gain:+.3f}", error, str(edge.visits), _short(edge.source_name), _short(edge.target_name)
        )
    open_console().print(table)


def _short(text: str) -> str:
    line = " ".join(text.split())
    return line if len(line) <= 34 else f"{line[:33]}…"


@app.command()
def advantages(
    file: File,
    method: Method = "g2po",
    norm: NormName = "std",
    step_weight: Weight = 1.0,
    gamma: Gamma = 0.95,
    visit: Visit = "every",
    win: Win = None,
    over: Over = None,
    write: Annotated[bool, typer.Option("--write", help="Store them as scores on the tree.")] = False,
    out: Annotated[
        Path | None, typer.Option("--out", help="Write a row per step: .jsonl, .npz or .parquet.")
    ] = None,
    trajectory: Annotated[
        str | None,
        typer.Option("--trajectory", help="Show this one; default: the one whose steps differ most."),
    ] = None,
    anchor: AnchorName = None,
    history: History = 1,
    fuzzy: Fuzzy = None,
    scope: ScopeName = "group",
    score: ScoreName = "success",
    task: TaskNode = None,
    as_json: AsJson = False,
) -> None:
    """Compute the advantage of every step, show one trajectory's, and store or write all.

    Example: `refork credit advantages runs/demo/tree.db --method g2po --write`
    """
    from refork_methods.credit.graph.advantages import step_advantages
    from refork_methods.credit.graph.source import shown_rows, step_rows, write_on_tree, write_rows

    source, _ = _read(file, anchor, history, fuzzy, scope, score, task)
    settings = _settings(
        source, norm=norm, step_weight=step_weight, gamma=gamma, visit=visit, win=win, over=over
    )
    rows = step_rows(source, step_advantages(source.graph, method, settings), settings)
    stored = None
    if write:
        stored = write_on_tree(
            file, method=method, settings=settings, score=score, task=task,
            anchor=source.anchor, history=history, fuzzy=fuzzy,
        )  # fmt: skip
    if out is not None:
        write_rows(rows, out)
    if as_json:
        print_json(rows)
        return
    _chart(shown_rows(rows, trajectory))
    typer.echo(
        f"{len(rows):,} steps of {len(source.names):,} trajectories by {method}"
        + ("" if stored is None else f"; {stored:,} new scores on the tree")
    )


def _chart(rows: list[dict[str, Any]]) -> None:
    """One trajectory: a bar per step, left of the middle where it lost."""
    from rich.table import Table
    from rich.text import Text

    from refork.cli.screen import open_console

    most = max((abs(row["advantage"]) for row in rows), default=0.0) or 1.0
    table = Table("step", "advantage", "", "value", "state", box=None, title_justify="left")
    for row in rows:
        size = round(10 * abs(row["advantage"]) / most)
        bar = Text(" " * (10 - size) + "█" * size + "│" + " " * 10, style="red")
        if row["advantage"] >= 0:
            bar = Text(" " * 10 + "│" + "█" * size + " " * (10 - size), style="green")
        table.add_row(
            str(row["step"]), f"{row['advantage']:+.3f}", bar, f"{row['value']:.3f}", _short(row["state"])
        )
    console = open_console()
    console.print(f"trajectory {rows[0]['trajectory'][:32]}, outcome {rows[0]['outcome']:g}", highlight=False)
    console.print(table)


@app.command()
def compare(
    file: File,
    norm: NormName = "std",
    step_weight: Weight = 1.0,
    gamma: Gamma = 0.95,
    visit: Visit = "every",
    win: Win = None,
    over: Over = None,
    anchor: AnchorName = None,
    history: History = 1,
    fuzzy: Fuzzy = None,
    scope: ScopeName = "group",
    score: ScoreName = "success",
    task: TaskNode = None,
    as_json: AsJson = False,
) -> None:
    """Put all estimators side by side on the same rollouts.

    Example: `refork credit compare rollouts.jsonl --norm mean`
    """
    from dataclasses import asdict

    from refork_methods.credit.graph.compare import compare_methods

    source, _ = _read(file, anchor, history, fuzzy, scope, score, task)
    settings = _settings(
        source, norm=norm, step_weight=step_weight, gamma=gamma, visit=visit, win=win, over=over
    )
    rows = compare_methods(source.graph, settings)
    if as_json:
        print_json([asdict(row) for row in rows])
        return
    from rich.table import Table

    from refork.cli.screen import open_console

    table = Table("method", "deviation", "zero", "inside runs", "rescued", "agrees with grpo", box=None)
    for row in rows:
        shares = (row.zero, row.within, row.rescued)
        table.add_row(
            row.method,
            f"{row.deviation:.3f}",
            *("-" if share is None else f"{share:.1%}" for share in shares),
            "-" if row.agreement is None else f"{row.agreement:+.2f}",
        )
    open_console().print(table)
