"""``refork kernel``: what holds a kernel back, whether a version stands, the search for a faster one."""

from __future__ import annotations

import shutil
import tempfile
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from refork.cli.common import AsJson, Unconfined, existing, print_json
from refork.cli.screen import print_table, secho
from refork.errors import BadInput

if TYPE_CHECKING:
    from refork.types import Json
    from refork_methods.kernel.bench.result import Evaluated
    from refork_methods.kernel.diagnose import Diagnosed
    from refork_methods.kernel.gpu.diagnose import GpuDiagnosed
    from refork_methods.kernel.problem import Problem
    from refork_methods.kernel.search.run import SearchResult

app = typer.Typer(
    help="Kernels that get fast: calibrated, verified, diagnosed, searched.", no_args_is_help=True
)

Entry = Annotated[str | None, typer.Option(help="The kernel's function, where the file has several.")]
Set = Annotated[
    list[str] | None,
    typer.Option("--set", help="A size or setting: n=512, a=n*n, c=n*n:out, rtol=1e-4. May be repeated."),
]


def _problem(file: Path, entry: str | None, given: list[str] | None, **settings: Any) -> Problem:
    from refork_methods.kernel.problem import parse_settings, read_problem

    told = parse_settings(given or []) | settings
    named = told.pop("entry", None)
    return read_problem(existing(file), entry or named, **told)


@app.command()
def calibrate(
    force: Annotated[bool, typer.Option("--force", help="Measure again.")] = False,
    unconfined: Unconfined = False,
    as_json: AsJson = False,
) -> None:
    """Measure this machine's ceilings on one core, and its noise; kept for the other verbs.

    Example: refork kernel calibrate
    """
    from refork.cli.live import LiveProgress
    from refork.sandbox import jailed
    from refork_methods.kernel.bench import calibrate as measure
    from refork_methods.kernel.bench.calibration import calibration_path

    with jailed.unconfined(unconfined), LiveProgress() as live:
        found = measure(force=force, progress=live)
    if as_json:
        print_json(found.to_json())
        return
    typer.echo(f"{found.machine['processor']}, {found.machine['gcc']}")
    typer.echo(f"float      {found.flops / 1e9:8.1f} GF/s   fused multiply-adds, one core")
    typer.echo(f"double     {found.flops64 / 1e9:8.1f} GF/s")
    size = f"over {found.triad_bytes / 1e6:.0f} MB"
    typer.echo(f"triad      {found.bandwidth / 1e9:8.1f} GB/s   {size}, with the better kind of stores")
    typer.echo(f"ordinary   {found.ordinary / 1e9:8.1f} GB/s   {size}, where stores fetch their lines before")
    typer.echo(f"in cache   {found.cached / 1e9:8.1f} GB/s   first cache")
    typer.echo(f"ridge      {found.ceilings.ridge:8.1f} flop/byte")
    typer.echo(
        f"noise      {found.noise:8.3f} times   between runs of the same program; gains within it are none"
    )
    typer.echo(f"measured {found.made}, kept in {calibration_path()}")


@app.command()
def verify(
    kernel: Annotated[Path, typer.Argument(metavar="KERNEL", help="The original, a C or C++ file.")],
    candidate: Annotated[Path, typer.Argument(metavar="CANDIDATE", help="The other version.")],
    entry: Entry = None,
    set_: Set = None,
    flag: Annotated[
        list[str] | None,
        typer.Option(help="Compile the candidate with these flags instead. May be repeated."),
    ] = None,
    repeats: Annotated[int, typer.Option(min=7, help="Samples of each, in turns.")] = 15,
    seed: Annotated[int, typer.Option(min=0, help="All inputs are drawn from it.")] = 0,
    unconfined: Unconfined = False,
    as_json: AsJson = False,
) -> None:
    """Say whether a version of a kernel is right on random inputs, honest, and faster than the original.

    It is checked at other sizes too (one less, one more, 7, 1, 0), and timed with cold and with warm caches.

    Exit status 1: it does not stand. Example: refork kernel verify matmul.c tiled.c --set n=512
    """
    from refork.cli.live import LiveProgress
    from refork.sandbox import jailed
    from refork_methods.kernel.bench import Bench, Candidate

    problem = _problem(kernel, entry, set_)
    version = Candidate(existing(candidate).read_text(errors="replace"), tuple(flag or problem.flags))
    with (
        jailed.unconfined(unconfined),
        LiveProgress() as live,
        tempfile.TemporaryDirectory(prefix="refork-verify-") as folder,
        Bench(problem, Path(folder), seed, progress=live) as bench,
    ):
        found = bench.evaluate(version, repeats=repeats)
        layers, calibrated, left_out = bench.layers, bench.calibration is not None, bench.left_out
    if as_json:
        told = {"layers": list(layers), "calibrated": calibrated, "sizes_left_out": left_out}
        print_json(found.to_json() | told | {"faster": found.faster})
    else:
        _print_verdict(found, layers, calibrated)
        for sizes, why in left_out.items():
            typer.echo(f"not tried   {sizes}: {why}")
    if not found.ok:
        raise typer.Exit(1)


def _print_verdict(found: Evaluated, layers: tuple[str, ...], calibrated: bool) -> None:
    if found.ok:
        secho("pass", fg="green", bold=True)
    else:
        secho(f"FAIL at {found.stage}: {found.why}", fg="red", bold=True)
    if found.cheat:
        typer.echo(f"looks like  {found.cheat}")
    if found.error is not None:
        typer.echo(f"error       {found.error:.2e}   worst, relative to higher precision")
    if found.seconds is not None and found.reference_seconds is not None:
        typer.echo(f"time        {found.seconds:.3e} s, the original {found.reference_seconds:.3e} s")
        typer.echo(f"speed-up    {found.speedup:.3f} [{found.low:.3f}, {found.high:.3f}]")
        if found.warm is not None:
            span = f"[{found.warm_low:.3f}, {found.warm_high:.3f}]"
            typer.echo(f"warm        {found.warm:.3f} {span}   arrays in the caches")
        said = (
            "calibrated" if calibrated else "of this kernel against itself; better: refork kernel calibrate"
        )
        typer.echo(f"noise       {found.noise:.3f} ({said})")
        said = "slower with warm caches" if found.slower_warm else "not faster by more than chance and noise"
        typer.echo("faster" if found.faster else said)
    if found.sizes:
        typer.echo(f"right too   at {'; '.join(found.sizes)}")
    for pair in found.overlaps:
        typer.echo(f"assumed     {pair} do not overlap: where they do, its results are others")
    typer.echo(f"held back by {', '.join(layers)}")


FILE = Annotated[Path | None, typer.Argument(metavar="[FILE]", help="A C or C++ source.")]
Flags = Annotated[
    list[str] | None, typer.Option("--flag", help="A compiler flag, in place of the file's; repeatable.")
]
Quick = Annotated[bool, typer.Option("--quick", help="Look for cache conflicts only where accesses stride.")]
Ncu = Annotated[
    Path | None,
    typer.Option(help="CSV export of Nsight Compute (example:transpose is a synthetic one that is shipped)."),
]
Nsys = Annotated[list[Path] | None, typer.Option(help="CSV export of Nsight Systems; may be repeated.")]
CodeFile = Annotated[
    list[Path] | None,
    typer.Option("--code", help="What nvcc -Xptxas -v or cuobjdump -sass printed; may be repeated."),
]
KernelName = Annotated[str | None, typer.Option(help="Of a GPU's files: the kernel, or a part of its name.")]
_STYLES: dict[str, dict[str, Any]] = {
    "head": {"bold": True}, "critical": {"fg": "red", "bold": True}, "warn": {"fg": "yellow", "bold": True},
    "info": {"fg": "cyan", "bold": True}, "dim": {"dim": True}, "plain": {},
}  # fmt: skip


@app.command()
def diagnose(
    file: FILE = None,
    entry: Entry = None,
    set_: Set = None,
    flag: Flags = None,
    quick: Quick = False,
    ncu: Ncu = None,
    nsys: Nsys = None,
    code: CodeFile = None,
    kernel: KernelName = None,
    unconfined: Unconfined = False,
    as_json: AsJson = False,
) -> None:
    """Say what holds a kernel back and what to do: findings gravest first, each with its evidence.

    A C or C++ kernel is compiled, checked, timed and profiled here. Of a GPU kernel --ncu, --nsys and --code
    take what was printed on any machine. Exit status 1: there are findings.

    Example: refork kernel diagnose matmul.c --set n=512
    """
    exports = ncu is not None or bool(nsys) or bool(code)
    if (file is not None) == exports:
        raise BadInput("give a source, or an export", hint="FILE, or --ncu EXPORT.csv")
    from refork.sandbox import jailed
    from refork_methods.kernel.gpu.diagnose import diagnose_exports

    with jailed.unconfined(unconfined):
        if file is None:
            found: Diagnosed | GpuDiagnosed = diagnose_exports(ncu, nsys or (), code or (), kernel=kernel)
        else:
            found = _measured(existing(file), entry, set_, flag, quick)
    if as_json:
        print_json(found.to_json())
    else:
        _print_diagnosis(found)
    if found.diagnosis.findings:
        raise typer.Exit(1)


def _measured(
    path: Path, entry: str | None, given: list[str] | None, flags: list[str] | None, quick: bool
) -> Diagnosed:
    """A C or C++ kernel, measured here."""
    from refork.cli.live import LiveProgress
    from refork_methods.kernel.bench import Bench
    from refork_methods.kernel.bench.calibrate import calibrate as measure
    from refork_methods.kernel.diagnose import diagnose as diagnosed

    chosen = {} if flags is None else {"flags": flags}
    problem = _problem(path, entry, given, name=path.stem, **chosen)
    with tempfile.TemporaryDirectory(prefix="refork-diagnose-") as scratch, LiveProgress() as progress:
        known = measure(progress=progress)
        with Bench(problem, Path(scratch), calibration=known) as bench:
            return diagnosed(problem, bench=bench, calibration=known, quick=quick, progress=progress)


def _print_diagnosis(found: Diagnosed | GpuDiagnosed) -> None:
    from refork_methods.kernel.diagnose_told import told_lines

    for line in told_lines(found, width=min(120, max(60, shutil.get_terminal_size((100, 24)).columns))):
        secho(line.text, **_STYLES[line.kind])


SOURCE = Annotated[Path, typer.Argument(metavar="KERNEL", help="A C or C++ file.")]
Out = Annotated[Path, typer.Option(help="The search's folder; the same command goes on with it.")]
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
MaxTokens = Annotated[int, typer.Option(min=1, help="With a model: tokens of one answer.")]


@app.command()
def search(
    kernel: SOURCE,
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
    from refork_methods.kernel.search.on_file import search_problem

    told: dict[str, Any] = {"search": kind, "feedback": feedback}
    settings = KernelSearchSettings(
        evaluations=evaluations, seed=seed, batch=batch, unguided=unguided, **told
    )
    with jailed.unconfined(unconfined), LiveProgress() as live:
        problem = _problem(kernel, entry, given)
        asked: Json = {"file": str(kernel), "set": given or [], "out": str(out)}
        found = search_problem(
            problem, settings, out, writer=writer, max_tokens=max_tokens, asked=asked, progress=live
        )
    if as_json:
        print_json(found.to_json())
    else:
        _print_search(found)
    for slip in found.slips:
        typer.echo(f"a bug of ours, passed over: {slip.rule}: {slip.error}", err=True)
    if found.slips:
        typer.echo(f"please report it with the tracebacks in {found.folder / 'slips.jsonl'}", err=True)
    if not found.faster:
        raise typer.Exit(1)


@app.command()
def arms(
    folders: Annotated[list[Path], typer.Argument(metavar="DIR...", help="Folders of finished searches.")],
    as_json: AsJson = False,
) -> None:
    """Compare finished searches by what their writer was told, paired by kernel and seed.

    One-sided signed-rank tests over kernels, each the mean of its seeds, corrected for their number.

    Example: refork kernel arms runs/
    """
    from refork_methods.kernel.search.arms import compare_arms, read_arms

    tests = compare_arms(read_arms([existing(one) for one in folders]))
    if as_json:
        print_json([asdict(one) for one in tests])
        return
    rows = [
        (one.better, one.other, str(one.kernels), str(one.cases),
         f"{one.ratio:.3f} [{one.low:.3f}, {one.high:.3f}]", f"{one.p:.3g}", f"{one.adjusted:.3g}")
        for one in tests
    ]  # fmt: skip
    print_table(("better", "other", "kernels", "cases", "ratio", "p", "p (Holm)"), rows)


def _print_search(found: SearchResult) -> None:
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
    if last.warm is not None:
        typer.echo(f"with its arrays in the caches: {last.warm:.2f} times")
    if found.granted:
        typer.echo("it is assumed, so check it before you use this version:")
        for one in found.granted:
            typer.echo(f"  - {one}")
    typer.echo(f"{found.source}  {' '.join(found.best.candidate.flags)}")


Folder = Annotated[Path, typer.Argument(metavar="DIR", help="The folder of a search.")]
ReportOut = Annotated[Path | None, typer.Option(help="Write the report here. Default: the search's folder.")]


@app.command()
def report(folder: Folder, out: ReportOut = None, as_json: AsJson = False) -> None:
    """Write report.html and report.md of a search: roofline, tree, best kernel, what advice brought.

    Nothing is measured anew. Example: refork kernel report runs/matmul
    """
    from refork_methods.kernel.report import write_report
    from refork_methods.kernel.report.page import deck, headline

    written = write_report(existing(folder), out)
    if as_json:
        print_json(written.to_json())
    else:
        typer.echo(headline(written.figures))
        typer.echo(deck(written.figures))
        typer.echo(str(written.html))
        typer.echo(str(written.markdown))
