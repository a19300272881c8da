"""Verbs of ``refork kernel``: what the machine can do, and whether a version of a kernel stands."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from refork.cli.common import AsJson, Unconfined, existing, print_json
from refork.cli.screen import secho

if TYPE_CHECKING:
    from refork_methods.kernel.bench.result import Evaluated

Kernel = Annotated[Path, typer.Argument(metavar="KERNEL", help="The original, a C or C++ file.")]
Entry = Annotated[str | None, typer.Option(help="The kernel's function, where the file has several.")]
Set = Annotated[
    list[str] | None,
    typer.Option("--set", help="A size or setting: n=512, a=n*n, c=n*n:out, rtol=1e-4. May be repeated."),
]


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


def verify(
    kernel: Kernel,
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

    Exit status 1: it does not stand. Example: refork kernel verify matmul.c tiled.c --set n=512
    """
    from refork.cli.live import LiveProgress
    from refork.sandbox import jailed
    from refork_methods.kernel.bench import Bench, Candidate
    from refork_methods.kernel.problem import parse_settings, read_problem

    told = parse_settings(set_ or [])
    named = told.pop("entry", None)
    problem = read_problem(existing(kernel), entry or named, **told)
    version = Candidate(existing(candidate).read_text(errors="replace"), tuple(flag or problem.flags))
    with (
        jailed.unconfined(unconfined),
        LiveProgress() as live,
        tempfile.TemporaryDirectory(prefix="refork-verify-") as folder,
        Bench(problem, Path(folder), seed, progress=live) as bench,
    ):
        found = bench.evaluate(version, repeats=repeats)
        layers, calibrated = bench.layers, bench.calibration is not None
    if as_json:
        print_json(
            found.to_json() | {"layers": list(layers), "calibrated": calibrated, "faster": found.faster}
        )
    else:
        _show(found, layers, calibrated)
    if not found.ok:
        raise typer.Exit(1)


def _show(found: Evaluated, layers: tuple[str, ...], calibrated: bool) -> None:
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
        said = (
            "calibrated" if calibrated else "of this kernel against itself; better: refork kernel calibrate"
        )
        typer.echo(f"noise       {found.noise:.3f} ({said})")
        typer.echo("faster" if found.faster else "not faster by more than chance and noise")
    typer.echo(f"held back by {', '.join(layers)}")


def register(app: typer.Typer) -> None:
    """Add the verbs to a noun."""
    app.command()(calibrate)
    app.command()(verify)
