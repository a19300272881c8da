"""``refork evolve``: agents and their judges evolve together; run, resume, audit, erase."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from refork.cli.common import AsJson, DryRun, existing, print_json
from refork.cli.screen import print_table
from refork_methods.evolve.commands import span

if TYPE_CHECKING:
    from refork_methods.evolve.audit import Audit, WouldErase
    from refork_methods.evolve.folder import Finished

app = typer.Typer(
    help="Agents and the judges that score them evolve together, auditable.", no_args_is_help=True
)

World = Annotated[
    str, typer.Option(help="scripted, reviewer, directory, a recipe FILE.toml, or your own module:function.")
]
Out = Annotated[Path, typer.Option(help="The run's folder; the same command goes on with it.")]
Set = Annotated[
    list[str] | None,
    typer.Option(
        "--set", help="A setting or a world's option: budget=600, options.seed=1, gate.rule=paired."
    ),
]
Folder = Annotated[Path, typer.Argument(metavar="RUN", help="The folder of a run.")]


@app.command()
def run(out: Out, world: World = "scripted", given: Set = None, as_json: AsJson = False) -> None:
    """Evolve workspaces under frozen judges that only checkpoints may replace.

    Every step is an event in the folder; verdicts are scores on its tree, and those of a displaced judge
    vanish from every reader. Ctrl-C stops; the same command, or resume, goes on.

    Example: refork evolve run --world scripted --set budget=600 --out runs/evolve
    """
    from refork.cli.live import LiveProgress
    from refork_methods.evolve.folder import evolve
    from refork_methods.evolve.worlds import read_plan

    plan = read_plan(world, given or ())
    with LiveProgress() as live:
        found = evolve(plan, out, live)
    _print(found, as_json)


@app.command()
def resume(folder: Folder, as_json: AsJson = False) -> None:
    """Go on with a run where it stopped, bit for bit as if it never had.

    Example: refork evolve resume runs/evolve
    """
    from refork.cli.live import LiveProgress
    from refork_methods.evolve.folder import go_on

    with LiveProgress() as live:
        found = go_on(existing(folder), live)
    _print(found, as_json)


@app.command()
def audit(
    folder: Folder,
    out: Annotated[
        Path | None, typer.Option(help="Write audit.json, ledger.jsonl and the picture here.")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Run a run again from its log alone, compare, and tell who judged when and what was erased.

    Exit status 1: the log does not replay, or the tree shows other verdicts than the log.

    Example: refork evolve audit runs/evolve --out runs/evolve/audit
    """
    from refork_methods.evolve.audit import audit as audited
    from refork_methods.evolve.audit import write_audit

    found = audited(existing(folder))
    files = write_audit(found, out) if out is not None else []
    if as_json:
        print_json(found.to_json())
    else:
        _print_audit(found)
        for file in files:
            typer.echo(str(file))
    if not found.sound:
        raise typer.Exit(1)


@app.command()
def erase(
    folder: Folder,
    slot: Annotated[str, typer.Option(help="The slot whose judge is dismissed.")],
    dry_run: DryRun = False,
    reason: Annotated[str, typer.Option(help="Why, for the tree's record.")] = "dismissed by hand",
    as_json: AsJson = False,
) -> None:
    """Dismiss a slot's judge: its verdicts, and scores that read them, leave every reader's sight.

    Only a finished run's judge can be dismissed by hand. Nothing is deleted: the log stays, and the tree
    keeps retired scores for those who ask for them.

    Example: refork evolve erase runs/evolve --slot review --dry-run
    """
    from refork.plain import to_json
    from refork_methods.evolve.audit import erase_slot, would_erase_slot

    found = would_erase_slot(existing(folder), slot)
    if not dry_run:
        erase_slot(folder, slot, reason)
    if as_json:
        print_json(to_json(found) | {"dry_run": dry_run})
    else:
        _print_erase(found, dry_run)


def _print(found: Finished, as_json: bool) -> None:
    if as_json:
        print_json(found.to_json())
        return
    archive = found.archive
    typer.echo(
        f"{archive.outcomes:,} outcomes, {len(archive)} workspaces; {len(archive.records):,} valid records, "
        f"{len(archive.erased):,} erased; {found.folder}"
    )
    for slot in archive.slots.values():
        typer.echo(f"  slot {slot.name}: judge {slot.judge[:12]}, {slot.epoch} replaced before it")
    if archive.records:
        best = archive.endpoint(found.eps)
        roles = ", ".join(f"{role} {node}" for role, node in best.specialists)
        typer.echo(f"  best workspace {best.generalist}; by role: {roles}")


def _print_audit(found: Audit) -> None:
    archive, costs = found.archive, found.costs
    typer.echo("the log replays" if found.replays else f"the log does not replay: {found.diverged}")
    for flaw in found.tree or ():
        typer.echo(f"flaw: {flaw}")
    typer.echo(
        f"{costs.outcomes:,} outcomes, {costs.rescored:,} of cached artifacts; {costs.children} of "
        f"{costs.edits} edits valid; {len(archive.erased):,} records erased; {costs.anchor_queries:,} anchor "
        "answers read"
    )
    print_table(
        ("slot", "epoch", "judge", "outcomes", "anchor", "machine/human"),
        [
            (
                one.slot, str(one.epoch), one.judge[:8], f"{one.since}-{one.until}",
                span(one.anchor), span(one.stringency),
            )
            for one in found.history.tenures
        ],
    )  # fmt: skip
    apart = sum(one.differs for one in found.history.examinations)
    if apart:
        typer.echo(f"at {apart} of {len(found.history.examinations)} examinations the two rules differ")


def _print_erase(found: WouldErase, dry_run: bool) -> None:
    derived = sum(found.scores.values()) - found.verdicts
    verb = "would vanish" if dry_run else "vanished"
    typer.echo(f"judge {found.judge[:12]} of slot {found.slot}, epoch {found.epoch}")
    typer.echo(f"{found.verdicts:,} verdicts and {derived:,} scores that read them {verb}; "
               f"{found.remaining:,} records stay")  # fmt: skip
    typer.echo(f"{found.rescore:,} cached artifacts to judge again")
