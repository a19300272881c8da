"""``refork kernel diagnose``: what holds a kernel back, by the tools, from measurements here or exports."""

from __future__ import annotations

import shutil
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from refork.cli.common import AsJson, Unconfined, existing, print_json
from refork.cli.screen import secho
from refork.errors import BadInput

if TYPE_CHECKING:
    from collections.abc import Sequence

    from refork_methods.kernel.diagnose import Diagnosed
    from refork_methods.kernel.diagnose_told import Line
    from refork_methods.kernel.gpu.diagnose import GpuDiagnosed

FILE = Annotated[Path | None, typer.Argument(metavar="[FILE]", help="A C, C++ or CUDA source.")]
Entry = Annotated[str | None, typer.Option(help="The function, where the file has several.")]
Sizes = Annotated[list[str] | None, typer.Option("--set", metavar="NAME=N", help="A size; may be repeated.")]
Arrays = Annotated[
    list[str] | None,
    typer.Option("--array", metavar="NAME=E", help="An array's length, as in a=n*n or c=n:out; repeatable."),
]
Flags = Annotated[
    list[str] | None, typer.Option("--flag", help="A compiler flag, in place of the file's; repeatable.")
]
Quick = Annotated[bool, typer.Option("--quick", help="Look for cache conflicts only where accesses stride.")]
Ncu = Annotated[
    Path | None,
    typer.Option(help="CSV export of Nsight Compute (example:transpose is a synthetic one that is shipped)."),
]
Nsys = Annotated[list[Path] | None, typer.Option(help="CSV export of Nsight Systems; may be repeated.")]
Kernel = Annotated[
    str | None, typer.Option(help="Of an export or CUDA source: the kernel, or a part of its name.")
]
Architecture = Annotated[str, typer.Option(help="Of a CUDA source: what to compile for.")]
_STYLES: dict[str, dict[str, Any]] = {
    "head": {"bold": True}, "critical": {"fg": "red", "bold": True}, "warn": {"fg": "yellow", "bold": True},
    "info": {"fg": "cyan", "bold": True}, "dim": {"dim": True}, "plain": {},
}  # fmt: skip


def diagnose(
    file: FILE = None,
    entry: Entry = None,
    sizes: Sizes = None,
    array: Arrays = None,
    flag: Flags = None,
    quick: Quick = False,
    ncu: Ncu = None,
    nsys: Nsys = None,
    kernel: Kernel = None,
    arch: Architecture = "sm_80",
    unconfined: Unconfined = False,
    as_json: AsJson = False,
) -> None:
    """Say what holds a kernel back and what to do: findings gravest first, each with its evidence.

    A C or C++ kernel is compiled, checked, timed and profiled here. A CUDA source is compiled and its code
    read; --ncu and --nsys take measurements from any machine. Exit status 1: there are findings.

    Example: refork kernel diagnose matmul.c --set n=512
    """
    if (file is None) == (ncu is None and not nsys):
        raise BadInput("give a source, or an export", hint="FILE, or --ncu EXPORT.csv")
    from refork.sandbox import jailed

    with jailed.unconfined(unconfined):
        if file is None:
            from refork_methods.kernel.gpu.diagnose import diagnose_exports

            found: Diagnosed | GpuDiagnosed = diagnose_exports(ncu, nsys or (), kernel=kernel)
        elif file.suffix == ".cu":
            from refork_methods.kernel.gpu.diagnose import diagnose_cuda

            named = kernel or entry
            found = diagnose_cuda(existing(file), kernel=named, architecture=arch, options=flag or ())
        else:
            found = _measured(existing(file), entry, sizes or (), array or (), flag, quick)
    if as_json:
        print_json(found.to_json())
    else:
        _print(found)
    if found.diagnosis.findings:
        raise typer.Exit(1)


def _measured(
    path: Path,
    entry: str | None,
    sizes: Sequence[str],
    arrays: Sequence[str],
    flags: Sequence[str] | None,
    quick: bool,
) -> Diagnosed:
    """A C or C++ kernel, measured here."""
    from refork.cli.live import LiveProgress
    from refork_methods.kernel.bench import Bench
    from refork_methods.kernel.bench.calibrate import calibrate
    from refork_methods.kernel.diagnose import diagnose as diagnosed
    from refork_methods.kernel.problem import read_problem

    settings: dict[str, Any] = dict(_pair(one, "--array") for one in arrays)
    if flags is not None:
        settings["flags"] = list(flags)
    told = {name: _whole(number, name) for name, number in (_pair(one, "--set") for one in sizes)}
    problem = read_problem(path, entry, sizes=told, name=path.stem, **settings)
    with tempfile.TemporaryDirectory(prefix="refork-diagnose-") as scratch, LiveProgress() as progress:
        known = calibrate(progress=progress)
        with Bench(problem, Path(scratch), calibration=known) as bench:
            return diagnosed(problem, bench=bench, calibration=known, quick=quick, progress=progress)


def _pair(item: str, option: str) -> tuple[str, str]:
    name, sign, rest = item.partition("=")
    if not (name and sign and rest):
        raise BadInput(f"{option} {item}", hint=f"{option} NAME=VALUE")
    return name, rest


def _whole(number: str, name: str) -> int:
    if not number.isdecimal():
        raise BadInput(f"size {name} is {number}", hint="a whole number, 0 or more")
    return int(number)


def _print(found: Diagnosed | GpuDiagnosed) -> None:
    from refork_methods.kernel.diagnose import Diagnosed
    from refork_methods.kernel.diagnose_told import diagnosis_lines, told_gpu

    width = min(120, max(60, shutil.get_terminal_size((100, 24)).columns))
    lines: list[Line] = (
        diagnosis_lines(found, width=width) if isinstance(found, Diagnosed) else told_gpu(found, width=width)
    )
    for line in lines:
        secho(line.text, **_STYLES[line.kind])


def register(app: typer.Typer) -> None:
    """Add the verb."""
    app.command()(diagnose)
