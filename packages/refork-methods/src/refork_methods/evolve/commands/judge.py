"""``refork judge``: may a judge be swapped, which stored scores become stale, how do judges differ."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from refork.cli.common import AsJson, existing, print_json
from refork.cli.screen import print_table
from refork_methods.evolve.commands import span

if TYPE_CHECKING:
    from refork.stats import Interval
    from refork_methods.evolve.compare import Comparison
    from refork_methods.evolve.swap import Stale, SwapReport

app = typer.Typer(
    help="Judges of stored verdicts: may one be swapped, and what becomes stale.", no_args_is_help=True
)

Files = Annotated[
    list[Path],
    typer.Argument(metavar="FILE...", help="Verdicts: JSON lines, inspect_ai logs, or one tree."),
]
Anchor = Annotated[
    Path | None, typer.Option(help="True labels, JSON lines: {id, label: 0 or 1, source: human or ai}.")
]
Threshold = Annotated[
    float | None, typer.Option(help="Graded scores become verdicts: 1 where at least this.")
]
Majority = Annotated[
    bool, typer.Option("--majority", help="Let a majority decide where a judge contradicts itself.")
]
Name = Annotated[str | None, typer.Option(help="On a tree: scores of this name only.")]


@app.command()
def gate(
    files: Files,
    old: Annotated[str, typer.Option(help="The judge in use.")],
    new: Annotated[
        str | None,
        typer.Option(help="The judge that may replace it; without it only stale scores are listed."),
    ] = None,
    anchor: Anchor = None,
    margin: Annotated[
        float | None, typer.Option(help="No worse by this much accuracy is enough; else it must be better.")
    ] = None,
    rule: Annotated[str, typer.Option(help="paired (exact test), or best_belief.")] = "paired",
    rate: Annotated[float, typer.Option(help="Chance that a judge which is no better passes.")] = 0.05,
    looks: Annotated[int, typer.Option(min=1, help="How often this anchor is asked in all.")] = 1,
    seen: Annotated[
        Path | None, typer.Option(help="Items that prompts or training showed, one per line.")
    ] = None,
    reads: Annotated[
        list[str] | None,
        typer.Option(help="Scores derived from others: DERIVED=JUDGE,JUDGE. May be repeated."),
    ] = None,
    threshold: Threshold = None,
    majority: Majority = False,
    name: Name = None,
    stale: Annotated[Path | None, typer.Option(help="Write the stale scores here, as JSON lines.")] = None,
    as_json: AsJson = False,
) -> None:
    """May this judge be replaced by that one, and which stored scores does that make stale?

    Exit status 0: yes. 1: no, or not shown. Nothing is changed.

    Example: refork judge gate verdicts.jsonl --old v1 --new v2 --anchor anchor.jsonl
    """
    from refork_methods.evolve.on_files import SwapTerms, gate_files, stale_files, write_stale

    paths, report = [existing(file) for file in files], None
    if new is None:
        found = stale_files(paths, old, reads=reads or (), threshold=threshold, name=name)
    else:
        terms = SwapTerms(rule, rate, looks, margin, threshold, majority, name)
        report = gate_files(paths, old, new, anchor, terms, reads=reads or (), seen=seen)
        found = report.stale
    if stale is not None:
        write_stale(found, stale)
    _print_gate(report, found, as_json)
    # An answer other than yes is a finding.
    if report is not None and report.answer != "yes":
        raise typer.Exit(1)


@app.command()
def compare(
    files: Files,
    anchor: Anchor = None,
    threshold: Threshold = None,
    majority: Majority = False,
    name: Name = None,
    as_json: AsJson = False,
) -> None:
    """Every judge in the files: acceptance, accuracy on the anchor, stringency; and each pair of them.

    Example: refork judge compare verdicts.jsonl --anchor anchor.jsonl
    """
    from refork.plain import to_json
    from refork_methods.evolve.on_files import SwapTerms, compare_files

    terms = SwapTerms(threshold=threshold, majority=majority, name=name)
    found = compare_files([existing(file) for file in files], anchor, terms)
    if as_json:
        print_json(to_json(found))
    else:
        _print_comparison(found)


def _print_gate(report: SwapReport | None, found: Stale, as_json: bool) -> None:
    from refork.plain import to_json

    if as_json:
        print_json(to_json(report or found))
    elif report is None:
        _print_stale(found)
    else:
        _print_report(report)


def _print_report(found: SwapReport) -> None:
    typer.echo(f"{found.answer.upper()}: {found.reason}")
    both = (found.old, found.new, found.constant)
    rows: dict[str, list[Interval | None]] = {
        "accuracy": [one.accuracy for one in both],
        "false accepts": [one.false_accepts for one in both],
        "false refusals": [one.false_refusals for one in both],
        "machine/human": [found.stringency.get(one.judge) for one in both],
    }
    print_table(
        ("", *(one.judge for one in both)), [(name, *map(span, cells)) for name, cells in rows.items()]
    )
    typer.echo(
        f"{found.new.items} anchor items; the two disagree on {span(found.flipped)} of all they judged"
    )
    if found.idle:
        typer.echo(f"no more of the anchor right than {found.constant.judge}: {', '.join(found.idle)}")
    _print_stale(found.stale)


def _print_stale(found: Stale) -> None:
    first, *readers = found.judges
    derived = f" and of {', '.join(readers)}, which read them" if readers else ""
    typer.echo(f"stale: {len(found.ids):,} scores, of {first}{derived}; {found.unaffected:,} stay")
    done = f"{len(found.covered):,} of its items the new judge has judged; " if found.covered else ""
    typer.echo(f"  {done}{len(found.to_rescore):,} items to judge again")


def _print_comparison(found: Comparison) -> None:
    print_table(
        ("judge", "items", "accepts", "anchor", "machine/human"),
        [
            (
                row.judge, f"{row.items:,d}", span(row.acceptance),
                span(None if row.anchor is None else row.anchor.accuracy), span(row.stringency),
            )
            for row in found.judges
        ],
    )  # fmt: skip
    if idle := [row.judge for row in found.judges if row.idle]:
        typer.echo(f"no more of the anchor right than one verdict for all: {', '.join(idle)}")
    if not found.pairs:
        return
    typer.echo("")
    print_table(
        ("second - first", "both", "disagree", "anchor", "p (Holm)"),
        [
            (
                f"{pair.other} - {pair.one}", f"{pair.shared:,d}", span(pair.disagree),
                span(None if pair.difference is None else pair.difference.interval),
                "-" if pair.p is None else f"{pair.p:.2g}",
            )
            for pair in found.pairs
        ],
    )  # fmt: skip
