"""``refork recovery``: do these traces teach a way back, and would they still after cleaning?"""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from refork.cli.common import AsJson, print_json
from refork.cli.screen import secho

if TYPE_CHECKING:
    from refork_methods.recovery.audit import RecoveryReport

app = typer.Typer(help="Find, keep and mix recoveries in traces.", no_args_is_help=True)

TraceFile = Annotated[Path, typer.Argument(help="A tree, chat JSON lines, or step-list JSON lines.")]
Out = Annotated[Path, typer.Option("--out", help="Where to, in the same format.")]
Key = Annotated[
    str, typer.Option("--key", help="State key: normalised, exact, masked, recorded or regex:PATTERN.")
]
Outcome = Annotated[str | None, typer.Option("--outcome", help="JSON lines: the field of the outcome.")]
ScoreName = Annotated[str, typer.Option("--score", help="Tree: the leaf score that is the outcome.")]
Least = Annotated[float, typer.Option("--threshold", help="Least outcome that is a success.")]


@app.command()
def audit(
    traces: TraceFile,
    key: Key = "normalised",
    rules: Annotated[
        list[str], typer.Option("--rule", help="Also count: tool, phrase, label, tool:RE, phrase:RE.")
    ] = [],  # noqa: B006
    outcome: Outcome = None,
    score: ScoreName = "success",
    threshold: Least = 1.0,
    as_json: AsJson = False,
) -> None:
    """Report recoveries and what cleaning would leave unsupervised; status 1 where that is something.

    Example: refork recovery audit traces.jsonl --key 'regex:^[^;]+'
    """
    from refork_methods.recovery.audit import recovery_audit
    from refork_methods.recovery.events import event_rule
    from refork_methods.recovery.on_tree import read_traces
    from refork_methods.recovery.traces import state_key

    read = read_traces(traces, outcome=outcome, score=score)
    by = state_key(key)
    found = recovery_audit(
        read.traces, key=by, rules={rule: event_rule(rule, by) for rule in rules}, threshold=threshold
    )
    if as_json:
        print_json(asdict(found))
    else:
        _print_audit(found)
    if found.removes_ways_back:
        raise typer.Exit(1)


def _print_audit(found: RecoveryReport) -> None:
    share = found.with_recovery
    typer.echo(f"{found.traces} traces, {found.succeeded} succeeded")
    typer.echo(
        f"with a recovery   {share.estimate:.3f} [{share.low:.3f}, {share.high:.3f}], "
        f"{found.recovered_and_succeeded} of them succeeded"
    )
    for name, spread in (("depth, states", found.depth), ("lost, steps", found.lost)):
        shown = "none" if spread is None else f"median {spread.median:g}, 90 % {spread.high:g}"
        typer.echo(f"{name:17s} {shown}" + (f", most {spread.most:g}" if spread else ""))
    typer.echo(f"steps lost        {found.lost_share:.1%} of all; {found.stalls} steps changed nothing")
    for rule, (held, events) in found.events.items():
        typer.echo(f"rule {rule:12s} {events} events in {held} traces")
    typer.echo(
        f"\n{'supervised by':20s} {'traces':>7s} {'decisions':>10s} {'facing back':>12s} {'states':>7s}"
    )
    for name, row in (
        ("all traces", found.raw), ("successful", found.successful), ("cleaned of detours", found.shortened),
    ):  # fmt: skip
        typer.echo(f"{name:20s} {row.traces:7d} {row.decisions:10d} {row.facing_back:12d} {row.states:7d}")
    typer.echo(f"\n{len(found.unsupervised)} states lose all supervision by cleaning")
    for state, back, visits in found.unsupervised[:10]:
        typer.echo(f"  {visits:6d} visits  {'back at' if back else 'at'} {state[:70]!r}")
    for warning in found.warnings:
        secho(f"warning: {warning}", fg="yellow", err=True)


@app.command()
def shorten(
    traces: TraceFile,
    out: Out,
    key: Key = "normalised",
    outcome: Outcome = None,
    score: ScoreName = "success",
    threshold: Least = 1.0,
    keep_recoveries: Annotated[
        bool, typer.Option("--keep-recoveries", help="Write the successful traces whole instead.")
    ] = False,
) -> None:
    """Write the successful traces without their detours (or whole, with --keep-recoveries).

    Example: refork recovery shorten traces.jsonl --out golden.jsonl --key 'regex:^[^;]+'
    """
    from refork_methods.recovery.distillation import build_distillation_set
    from refork_methods.recovery.on_tree import read_traces
    from refork_methods.recovery.traces import state_key

    read = read_traces(traces, outcome=outcome, score=score)
    chosen = build_distillation_set(
        read.traces, key=state_key(key), keep_recoveries=keep_recoveries, threshold=threshold
    )
    count = read.write(chosen, out)
    typer.echo(f"{count} traces, {sum(t.changed for t in chosen)} of them shortened, in {out}")


@app.command()
def mix(
    traces: TraceFile,
    out: Out,
    fraction: Annotated[float, typer.Option("--fraction", help="Share that keeps its recoveries.")],
    key: Key = "normalised",
    outcome: Outcome = None,
    score: ScoreName = "success",
    threshold: Least = 1.0,
    seed: Annotated[int, typer.Option("--seed", help="Which traces stay whole.")] = 0,
) -> None:
    """Write the successful traces, a fraction whole with a recovery in each, the others shortened.

    Example: refork recovery mix traces.jsonl --fraction 0.05 --out mixed.jsonl --key 'regex:^[^;]+'
    """
    from refork_methods.recovery.distillation import mix_traces
    from refork_methods.recovery.on_tree import read_traces
    from refork_methods.recovery.traces import state_key

    read = read_traces(traces, outcome=outcome, score=score)
    chosen = mix_traces(read.traces, fraction, key=state_key(key), threshold=threshold, seed=seed)
    count = read.write(chosen, out)
    typer.echo(f"{count} traces in {out}, {round(fraction * count)} with their recoveries")
