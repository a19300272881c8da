"""Run the notebooks in notebooks/: every cell of each, in a folder of its own; fails where a cell does.

    python tools/run_notebooks.py            run them; nothing is changed
    python tools/run_notebooks.py --write    and store their outputs in them, as they are read on the web

Kernels are forked from a process that has read the large libraries (tools/warm.py). A notebook
whose stored outputs are of other kinds than what its cells give now is stale, and fails too.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import os
import re
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import nbformat
from nbclient import NotebookClient
from nbclient.exceptions import CellExecutionError

from run_docs import home, warm

ROOT = Path(__file__).resolve().parent.parent
FOLDER = ROOT / "notebooks"
KERNEL = "refork"
LIMIT = 120  # seconds a cell may take
COLOURS = re.compile(r"\x1b\[[0-9;]*m")


def install_kernel(folder: Path, launch: tuple[str, ...]) -> None:
    """A kernel that starts warm, where Jupyter looks for kernels (JUPYTER_PATH)."""
    launcher = importlib.util.find_spec("ipykernel_launcher")
    assert launcher is not None
    assert launcher.origin is not None
    spec = {
        "argv": [*launch, launcher.origin, "-f", "{connection_file}", "--log-level=ERROR"],
        "display_name": KERNEL,
        # A signal would reach the one who asked for the kernel, not the kernel.
        "interrupt_mode": "message",
    }
    place = folder / "kernels" / KERNEL
    place.mkdir(parents=True)
    (place / "kernel.json").write_text(json.dumps(spec | {"language": "python"}))


def execute(notebook: Any) -> None:
    """Run all cells, in a folder that is gone afterwards.

    Raises:
        CellExecutionError: a cell failed; the message has its source and what was raised.
    """
    with tempfile.TemporaryDirectory(prefix="refork-notebook-") as folder:
        style = FOLDER / "refork.mplstyle"
        (Path(folder) / style.name).write_text(style.read_text())
        resources = {"metadata": {"path": folder}}
        NotebookClient(notebook, timeout=LIMIT, kernel_name=KERNEL, resources=resources).execute()


def kinds(notebook: Any) -> list[list[str]]:
    """What kinds of output each code cell has."""
    cells = [cell for cell in notebook.cells if cell.cell_type == "code"]
    return [sorted({kind for out in cell.outputs for kind in _kinds(out)}) for cell in cells]


def _kinds(output: Any) -> list[str]:
    return ["text/plain"] if output.output_type == "stream" else [*output.get("data", {"error": ""})]


def tidy(notebook: Any) -> None:
    """Take out what changes with every run, or names the machine."""
    notebook.metadata = {
        "kernelspec": {"display_name": "Python 3", "language": "python", "name": "python3"},
        "language_info": {"name": "python"},
    }
    for number, cell in enumerate(notebook.cells):
        cell.id = f"cell-{number}"
        cell.metadata = {}


def run(path: Path, write: bool) -> tuple[str, bool]:
    """Run one notebook: what to say of it, and whether it is well."""
    began = time.monotonic()
    notebook = nbformat.read(path, as_version=4)
    stored = kinds(notebook)
    try:
        execute(notebook)
    except CellExecutionError as error:
        return f"FAILED {path.name}\n{COLOURS.sub('', str(error))}", False
    seconds = f"{len(notebook.cells)} cells, {time.monotonic() - began:.1f} s"
    if write:
        tidy(notebook)
        path.write_text(nbformat.writes(notebook, indent=1) + "\n")
        return f"wrote  {path.name}  {seconds}", True
    if stored != kinds(notebook):
        return f"STALE  {path.name}: its outputs are of another run; tools/run_notebooks.py --write", False
    return f"ok     {path.name}  {seconds}", True


def main() -> int:
    """Run the notebooks asked for; 1 where one failed."""
    parser = argparse.ArgumentParser(description="Run the notebooks.")
    parser.add_argument("--only", action="append", default=[], metavar="NAME", help="part of a file's name")
    parser.add_argument("--write", action="store_true", help="store the outputs in the notebooks")
    parser.add_argument("--jobs", type=int, default=2, help="notebooks at once")
    args = parser.parse_args()
    found = [
        path
        for path in sorted(FOLDER.glob("*.ipynb"))
        if not args.only or any(o in path.stem for o in args.only)
    ]
    if not found:
        print("no such notebook")
        return 2
    with ExitStack() as stack:
        stack.enter_context(home(None))
        start = stack.enter_context(warm())
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="refork-kernel-")))
        install_kernel(folder, start.launch)
        os.environ |= {"JUPYTER_PATH": str(folder), "MPLBACKEND": "module://matplotlib_inline.backend_inline"}
        pool = stack.enter_context(ThreadPoolExecutor(args.jobs))
        told = list(pool.map(lambda path: run(path, args.write), found))
    print("\n".join(line for line, _ in told))
    return 0 if all(well for _, well in told) else 1


if __name__ == "__main__":
    sys.exit(main())
