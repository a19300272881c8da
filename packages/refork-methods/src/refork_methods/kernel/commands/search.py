"""Verbs of ``refork kernel``: search for a faster version, and compare searches by what they were told."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from refork.cli.common import AsJson, Unconfined, existing, print_json

if TYPE_CHECKING:
    from refork_methods.kernel.search import ArmTest, SearchResult

Kernel = Annotated[Path, typer.Argument(metavar="KERNEL", help="A C or C++ file.")]
Out = Annotated[Path, typer.Option(help="The search's folder; the same command goes on with it.")]
Entry = Annotated[str | None, typer.Option(help="The kernel's function, where the file has several.")]
Set = Annotated[
    list[str] | None,
    typer.Option("--set", help="A size or setting: n=512, a=n*n, c=n*n:out, rtol=1e-4. May be repeated."),
]
Evaluations = Annotated[int, typer.Option(min=1, help="Kernels to try, the original not counted.")]
Kind = Annotated[str, typer.Option("--search", help="mcts, or hill: only ever on from the fastest.")]
FeedbackOption = Annotated[
    str, typer.Option("--feedback", help="What the writer sees: diagnosed, raw or none.")
]
WriterOption = Annotated[
    str, typer.Option(help="rewrite (no model), or chat:SPEC, as chat:openai:URL#MODEL.")
]
Seed = Annotated[int, typer.Option(min=0, help="Of all that is drawn.")]
Batch = Annotated[int, typer.Option(min=1, help="Versions from one node at a time, built side by side.")]
Unguided = Annotated[float, typer.Option(min=0, max=1, help="Share of rewrites that follow no advice.")]
Workers = Annotated[int | None, typer.Option(min=1, help="Builds at once. Default: one per processor.")]
MaxTokens = Annotated[int, typer.Option(min=1, help="With a model: tokens of one answer.")]


def search(
    kernel: Kernel,
    out: Out,
    entry: Entry = None,
    given: Set = None,
    evaluations: Evaluations = 40,
    kind: Kind = "mcts",
    feedback: FeedbackOption = "diagnosed",
    writer: WriterOption = "rewrite",
    seed: Seed = 0,
    batch: Batch = 2,
    unguided: Unguided = 0.15,
    workers: Workers = None,
    max_tokens: MaxTokens = 8192,
    unconfined: Unconfined = False,
    as_json: AsJson = False,
) -> None:
    """Search for a faster version of a kernel: rewrite, build, check, time, diagnose, and again.

    Every version runs in a process without rights, and is checked on fresh inputs. At the end the fastest are
    timed again in turns with the original. Ctrl-C stops; the same command goes on. Exit status 1: nothing
    faster was found.

    Example: refork kernel search matmul.c --set n=512 --out runs/matmul
    """
    from refork.cli.live import LiveProgress
    from refork.sandbox import jailed
    from refork_methods.kernel.search.model import KernelSearchSettings
    from refork_methods.kernel.search.on_file import search_file

    told: dict[str, Any] = {"search": kind, "feedback": feedback}
    settings = KernelSearchSettings(
        evaluations=evaluations, seed=seed, batch=batch, unguided=unguided, **told
    )
    with jailed.unconfined(unconfined), LiveProgress() as live:
        found = search_file(
            existing(kernel), settings, out, entry=entry, given=given or (), writer=writer, workers=workers,
            max_tokens=max_tokens, progress=live,
        )  # fmt: skip
    if as_json:
        print_json(found.to_json())
    else:
        _print(found)
    for slip in found.slips:
        typer.echo(f"a bug of ours, passed over: {slip.rule}: {slip.error}", err=True)
    if found.slips:
        typer.echo(f"please report it with the tracebacks in {found.folder / 'slips.jsonl'}", err=True)
    if not found.faster:
        raise typer.Exit(1)


def arms(
    folders: Annotated[list[Path], typer.Argument(metavar="DIR...", help="Folders of finished searches.")],
    as_json: AsJson = False,
) -> None:
    """Compare finished searches by what their writer was told, paired by kernel and seed.

    One-sided signed-rank tests, corrected for their number. Example: refork kernel arms runs/
    """
    from refork_methods.kernel.search import compare_arms, read_arms

    tests = compare_arms(read_arms([existing(one) for one in folders]))
    if as_json:
        print_json([one.to_json() for one in tests])
    else:
        _print_arms(tests)


def register(app: typer.Typer) -> None:
    """Add the verbs."""
    app.command()(search)
    app.command()(arms)


def _print(found: SearchResult) -> None:
    right = sum(node.evaluated.ok for node in found.nodes[1:])
    typer.echo(f"{len(found.nodes) - 1} versions tried, {right} right; {found.folder}")
    for node in (found.nodes[number] for number in found.path):
        done = node.evaluated
        speed = "" if done.speedup is None else f"{done.speedup:8.2f} x"
        typer.echo(f"  {node.number:4d}  {speed:>10}  {node.proposal.move if node.proposal else 'original'}")
    last = found.final
    if not found.faster or last.speedup is None:
        typer.echo("nothing faster than the original was found")
        return
    span = "" if last.low is None or last.high is None else f"  [{last.low:.2f}, {last.high:.2f}]"
    typer.echo(f"last duel: {last.speedup:.2f} times as fast as the original{span}")
    if found.granted:
        typer.echo("it is assumed, so check it before you use this version:")
        for one in found.granted:
            typer.echo(f"  - {one}")
    typer.echo(f"{found.source}  {' '.join(found.best.candidate.flags)}")


def _print_arms(tests: list[ArmTest]) -> None:
    typer.echo("better     other      cases  ratio                     p       p (Holm)")
    for one in tests:
        span = f"{one.ratio:.3f} [{one.low:.3f}, {one.high:.3f}]"
        typer.echo(
            f"{one.better:<10} {one.other:<10} {one.cases:5d}  {span:<24}  {one.p:<7.3g} {one.adjusted:.3g}"
        )
