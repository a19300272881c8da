"""``refork simulate eval``."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from refork.cli.common import AsJson, print_json

if TYPE_CHECKING:
    from refork_methods.simulate.compare import Comparison
    from refork_methods.simulate.fidelity import Fidelity, Figure
    from refork_methods.simulate.simulating import EvalResult


Model = Annotated[
    str, typer.Argument(help="Folder of a run or model, organism:NAME or any policy.", show_default=False)
]
Trajectories = Annotated[
    Path, typer.Argument(help="Trajectories, a tree or a log that it did not learn from.", show_default=False)
]
Judge = Annotated[str | None, typer.Option("--judge", help="rule, or the policy that grades; not MODEL.")]
Against = Annotated[
    list[str] | None, typer.Option("--against", help="Another simulator on the same turns; may be repeated.")
]
Baseline = Annotated[
    list[str] | None, typer.Option("--baseline", help="copy, common or nearest; may be repeated.")
]
Train = Annotated[Path | None, typer.Option("--train", help="Trajectories that common and nearest look up.")]
Turns = Annotated[
    str, typer.Option("--turns", help="all, one of each trajectory, or so many drawn ones of each.")
]
Batch = Annotated[int, typer.Option("--batch", min=1, help="Turns predicted at the same time.")]
Out = Annotated[
    Path | None, typer.Option("--out", help="Folder for predictions and report; the same command goes on.")
]


def register(app: typer.Typer) -> None:
    """Mount the command."""
    app.command("eval")(evaluate_command)


def evaluate_command(
    model: Model,
    trajectories: Trajectories,
    judge: Judge = None,
    against: Against = None,
    baseline: Baseline = None,
    train: Train = None,
    turns: Turns = "all",
    think: Annotated[bool, typer.Option("--think", help="Let the model reason first.")] = False,
    seed: Annotated[int, typer.Option("--seed", help="Draws the turns and the model's answers.")] = 0,
    batch: Batch = 32,
    out: Out = None,
    json: AsJson = False,
) -> None:
    """How near a simulator's answers come to what the world said, each with the real history before it.

    Turns without a valid prediction count as wrong. With a tree the figures become scores of its
    observations.

    Example: refork simulate eval runs/cpt test.jsonl --judge rule --baseline nearest --train train.jsonl
    """
    from refork.cli.live import LiveProgress
    from refork_methods.simulate.fidelity_report import report, write_report
    from refork_methods.simulate.simulating import EvalPlan, chosen_turns, run_eval

    plan = EvalPlan(
        model=model, trajectories=trajectories, judge=judge, against=tuple(against or ()),
        baselines=tuple(baseline or ()), train=train, turns=chosen_turns(turns), seed=seed, batch=batch,
        think=think, out=out,
    )  # fmt: skip
    with LiveProgress() as live:
        found = run_eval(plan, live)
    told = report(found.first, found.others, found.comparisons)
    if out is not None:
        from refork_methods.simulate.fidelity_picture import fidelity_figure

        write_report(out, told, found.first)
        shown = [found.first.fidelity, *(other.fidelity for other in found.others)]
        (out / "fidelity.svg").write_text(fidelity_figure(shown).svg(), encoding="utf-8")
    if json:
        print_json(told)
    else:
        _print(found)
    if found.stopped:
        raise typer.Exit(130)


def _print(found: EvalResult) -> None:
    from refork_methods.gate.commands import print_grid

    fidelity = found.first.fidelity
    names = [name for name in _NAMES if name in fidelity.micro]
    rows = [_row("all turns", fidelity.micro, names), _row("mean of domains", fidelity.macro, names)]
    for kind, groups in (("", fidelity.domains), ("class ", fidelity.classes), ("turn ", fidelity.depths)):
        rows += [_row(f"{kind}{name}", figures, names) for name, figures in groups.items()]
    typer.echo(f"{fidelity.name}: {fidelity.turns} turns of {fidelity.trajectories} trajectories")
    print_grid(["", "turns", *(_NAMES[name] for name in names)], rows)
    for line in _remarks(fidelity):
        typer.echo(line)
    for one in found.comparisons:
        _difference(one)
    for why in found.unread[:5]:
        typer.echo(f"not read: {why}")
    if found.scores:
        typer.echo(f"{found.scores} scores written to the tree")


_NAMES = {
    "coverage": "coverage", "exact": "exact", "exact_deterministic": "exact where determined",
    "rule": "rules kept", "rubric": "rubric",
}  # fmt: skip


def _row(label: str, figures: dict[str, Figure], names: list[str]) -> list[str]:
    cells = [
        "-" if (one := figures.get(name)) is None else f"{one.estimate:.3f} ({one.low:.2f} to {one.high:.2f})"
        for name in names
    ]
    return [label, str(figures["coverage"].n), *cells]


def _remarks(fidelity: Fidelity) -> list[str]:
    step = fidelity.per_step
    parts = [
        f"{step.tokens_in:.0f} tokens read" if step.tokens_in is not None else "",
        f"{step.tokens_out:.1f} said" if step.tokens_out is not None else "",
        f"{step.seconds:.3f} s" if step.seconds is not None else "",
    ]
    told = ", ".join(part for part in parts if part)
    lines = [f"one step: {told}"] if told else []
    if fidelity.alarms is not None:
        false = sum((fidelity.alarms_of_truth or {}).values())
        lines.append(
            f"contradictions of earlier turns: {sum(fidelity.alarms.values())} (in the real answers: {false})"
        )
    if fidelity.scorers:
        shown = ", ".join(
            f"{name} {'-' if value is None else f'{value:.2f}'}" for name, value in fidelity.scorers.items()
        )
        lines.append(f"judge {fidelity.judge}, 0 to 100: {shown}; {fidelity.ungraded} ungraded")
    if fidelity.retried or fidelity.cut:
        lines.append(f"{fidelity.retried} turns took several tries, {fidelity.cut} had their history cut")
    return lines


def _difference(one: Comparison) -> None:
    typer.echo(f"{one.other} minus {one.base}:")
    for name, gap in one.overall.items():
        if gap.low is None:
            typer.echo(f"  {_NAMES.get(name, name):<24} {gap.difference:+.3f}")
        else:
            typer.echo(
                f"  {_NAMES.get(name, name):<24} {gap.difference:+.3f} "
                f"({gap.low:+.3f} to {gap.high:+.3f}, p = {gap.p:.2g}, {gap.n} turns)"
            )
