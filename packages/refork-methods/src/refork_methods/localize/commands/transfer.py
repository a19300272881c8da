"""Verbs of ``refork localize``: hand a case file over or not, and what case files are worth downstream."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from refork.cli.common import AsJson, existing, print_json
from refork.errors import BadInput
from refork.jsonl import read_utf8

if TYPE_CHECKING:
    from refork.decide import Advice
    from refork_methods.localize.transfer import SettingTransfer, TransferReport


def inject(
    case: Annotated[Path, typer.Argument(metavar="CASE", help="A case file (JSON).")],
    gate: Annotated[
        Path | None, typer.Option(help="A fitted gate (JSON); needs --agent. Or give --gain and --loss.")
    ] = None,
    agent: Annotated[str | None, typer.Option(help="The repair agent, by its name in the gate.")] = None,
    task: Annotated[str | None, typer.Option(help="The task's id, to refuse one the gate knows.")] = None,
    gain: Annotated[float | None, typer.Option(min=0, help="What a right finding earns the agent.")] = None,
    loss: Annotated[float | None, typer.Option(min=0, help="What a wrong finding costs it.")] = None,
    chance: Annotated[
        float | None, typer.Option(min=0, max=1, help="Chance of being right; else the case's own.")
    ] = None,
    price: Annotated[float, typer.Option(min=0, help="What handing over costs either way.")] = 0.0,
    root: Annotated[
        Path | None, typer.Option(help="The repository, to print the places' lines with them.")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Say whether a case file should go into a repair agent's context, and print it as Markdown if so.

    Advice goes to standard error, so that the output can be piped. Exit status 1: do not inject.

    Example: refork localize inject case.json --gate gate.json --agent my-agent > findings.md
    """
    from refork_methods.localize.casefile import CaseFile
    from refork_methods.localize.casefile_markdown import case_markdown
    from refork_methods.localize.inject import InjectionGate, advise_by_numbers
    from refork_methods.localize.snapshot import Snapshot

    told = CaseFile.loads(read_utf8(existing(case)))
    if gate is not None:
        if agent is None or gain is not None or loss is not None or chance is not None:
            raise BadInput("a gate needs --agent, and knows --gain, --loss and --chance itself")
        advice = InjectionGate.read(existing(gate)).decide(told, agent, task=task, price=price)
    elif gain is None or loss is None:
        raise BadInput("give --gate with --agent, or both --gain and --loss")
    else:
        advice = advise_by_numbers(told, gain, loss, chance=chance, price=price)
    markdown = case_markdown(told, None if root is None else Snapshot(root)) if advice.act else None
    if as_json:
        print_json(_advice_json(advice) | {"markdown": markdown})
    else:
        typer.echo(f"{'inject' if advice.act else 'do not inject'}: {advice.reason}", err=True)
        if markdown is not None:
            typer.echo(markdown, nl=False)
    if not advice.act:
        raise typer.Exit(1)


def transfer(
    with_: Annotated[Path, typer.Argument(metavar="WITH", help="Repairs with findings (JSON lines).")],
    without: Annotated[Path, typer.Argument(metavar="WITHOUT", help="The same tasks without (JSON lines).")],
    level: Annotated[float, typer.Option(help="Of the intervals; tests reject at 1 minus it.")] = 0.95,
    deploy: Annotated[
        bool, typer.Option("--deploy", help="Refuse a control arm (oracle, shuffled, masked).")
    ] = False,
    svg: Annotated[Path | None, typer.Option(help="Write the differences here as a picture.")] = None,
    as_json: AsJson = False,
) -> None:
    """Compare repairs with and without findings: paired difference, test, tokens with the localizer's own.

    A line is {"task", "resolved", "findings": "none|all|gated|masked|shuffled|oracle"} and may have
    "setting", "tokens", "localizer_tokens" and "error".

    Example: refork localize transfer with.jsonl without.jsonl
    """
    from refork_methods.localize.transfer import read_runs, transfer_report

    report = transfer_report(read_runs(existing(with_)), read_runs(existing(without)), level=level)
    if deploy:
        report.refuse_control()
    if svg is not None:
        from refork_methods.localize.transfer_picture import transfer_figure
        from refork_methods.localize.write import replace_text

        replace_text(svg, transfer_figure(report).svg())
    if as_json:
        print_json(report.to_json())
    else:
        _print_report(report)


def register(app: typer.Typer) -> None:
    """Add the verbs to ``refork localize``."""
    app.command()(inject)
    app.command()(transfer)


def _advice_json(advice: Advice) -> dict[str, Any]:
    from math import isfinite

    limit = advice.threshold if isfinite(advice.threshold) else None  # None: no chance is enough
    return {
        "inject": advice.act,
        "chance": advice.chance,
        "break_even": limit,
        "net": advice.net,
        "reason": advice.reason,
    }


def _print_report(report: TransferReport) -> None:
    wide = max([7, *(len(row.setting) for row in report.settings)])
    typer.echo(
        f"{'setting':<{wide}}  tasks  without  with   difference               +    -    p (Holm)  tokens"
    )
    for row in report.settings:
        span = row.difference
        typer.echo(
            f"{row.setting or '-':<{wide}}  {row.tasks:>5}  {row.without:.3f}    {row.with_:.3f}  "
            f"{span.estimate:+.3f} [{span.low:+.3f}, {span.high:+.3f}]  {row.gains:<4} {row.losses:<4} "
            f"{row.p:.4f}{'*' if row.significant else ' '}   {_tokens(row)}"
        )
    typer.echo(f"mean difference over {len(report.settings)} settings {report.mean:+.3f}")
    if any(report.unmatched):
        typer.echo(f"left out, in one arm only: {report.unmatched[0]} without, {report.unmatched[1]} with")
    if any(report.errors):
        typer.echo(f"broken rollouts, not resolved: {report.errors[0]} without, {report.errors[1]} with")
    if any(row.tokens is not None and row.tokens.relative is not None for row in report.settings):
        typer.echo("tokens: change of the total, the localizer's own counted")
    if not report.deployable:
        typer.echo(f"note: {report.findings} findings are a control, nothing to deploy")


def _tokens(row: SettingTransfer) -> str:
    if row.tokens is None:
        return "not counted"
    if row.tokens.relative is None:
        return "localizer's not counted"
    return f"{row.tokens.relative:+.1%}"
