"""The whole comparison: cells in worker processes, then one table. Stops cleanly and resumes."""

from __future__ import annotations

import json
import multiprocessing
import os
import signal
import time
from collections.abc import Callable, Sequence
from concurrent.futures import FIRST_COMPLETED, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from dataclasses import asdict
from pathlib import Path
from typing import Final

import numpy as np

from refork.errors import CannotDo, InternalError
from refork.forking.backend.worker import refusal, wrong
from refork.progress import Progress, silent
from refork.runs.recipe import digest, open_folder
from refork.types import Json
from refork.visible import show_only
from refork_methods.compare.cell import Cell, run_cell, start_of
from refork_methods.compare.recipe import CompareRecipe, WorldPlan
from refork_methods.compare.table import Row, compare_arms, mean_curve

#: Times that processes may be lost before a comparison is given up.
LIVES: Final = 3


def cells_of(recipe: CompareRecipe, folder: Path) -> list[Cell]:
    """Every run of a comparison, seeds outermost: after one seed there is a first table."""
    cells = []
    for i in range(recipe.seeds):
        for place in recipe.worlds:
            for arm in recipe.arms:
                seed = recipe.first_seed + i
                where = folder / "cells" / f"{_short(recipe, place)}-{arm}-{seed}"
                cells.append(Cell(recipe, place, arm, seed, where))
    return cells


def _short(recipe: CompareRecipe, place: WorldPlan) -> str:
    """A folder's name for a place, with a digest where another place of the comparison has the same name."""
    names = {plan: _plain(plan.world) for plan in recipe.worlds}
    alone = list(names.values()).count(names[place]) == 1
    return names[place] if alone else f"{names[place]}-{digest(place)}"


def _plain(world: str) -> str:
    return "".join(c if c.isalnum() else "-" for c in world.partition("?")[0])


def _titles(recipe: CompareRecipe) -> dict[WorldPlan, str]:
    """What to call each place: its world, and the settings that tell it from other places of that world."""
    titles = {}
    for place in recipe.worlds:
        same = [plan for plan in recipe.worlds if plan.world == place.world]
        apart = [f"{key} {value}" for key, value in place if any(getattr(p, key) != value for p in same)]
        titles[place] = place.world + (f" ({', '.join(apart)})" if apart else "")
    return titles


def run_compare(
    recipe: CompareRecipe, folder: Path, progress: Progress = silent, *, workers: int | None = None
) -> Json:
    """Run what is missing of a comparison and return its summary, which ``folder/summary.json`` holds too.

    ``workers`` processes of one thread each (None: one per core). Where one dies the others' cells and its
    own go on from their last checkpoints. An interrupt ends them; the same call again goes on.

    Raises:
        BadInput: parts of the recipe do not fit one another.
        Mismatch: the folder holds another comparison.
        CannotDo: processes died again and again.
    """
    recipe.checked()
    began = time.monotonic()
    open_folder(folder, recipe)
    for place in recipe.worlds:
        start_of(place, progress)
    cells = cells_of(recipe, folder)
    _run(cells, min(workers or os.cpu_count() or 1, len(cells)), progress)
    summary = summary_of(recipe, cells)
    summary["seconds"] = round(time.monotonic() - began, 1)
    part = folder / "summary.part"
    part.write_text(json.dumps(summary, indent=2) + "\n")
    part.replace(folder / "summary.json")
    return summary


def _train(cell: Cell) -> Json:
    """Train a cell in a process of its own; empty, or the error as plain data: not every error pickles."""
    try:
        run_cell(cell)
    except Exception as error:
        return wrong(error)
    return {}


def _run(
    cells: Sequence[Cell], workers: int, progress: Progress, work: Callable[[Cell], Json] = _train
) -> None:
    _report(cells, progress)
    if workers == 1:
        for cell in cells:
            run_cell(cell)
            _report(cells, progress)
        return
    for _ in range(LIVES):
        try:
            _in_processes(cells, workers, progress, work)
        except BrokenProcessPool:
            continue  # what the lost process had trained is in its cell's folder
        return
    left = [cell.folder.name for cell in cells if not cell.done]
    raise CannotDo(
        f"processes were lost {LIVES} times, with {len(left)} cells to train",
        where=left[0],
        hint="is there memory enough? --workers 1 trains one cell at a time; what is trained stays",
    )


def _begin() -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the one that gives out work
    show_only()


def _in_processes(
    cells: Sequence[Cell], workers: int, progress: Progress, work: Callable[[Cell], Json]
) -> None:
    """Train what is missing in ``workers`` processes; an error or interrupt ends them at once."""
    # Spawned, not forked: a process that has run torch's threads must not be copied.
    context = multiprocessing.get_context("spawn")
    # Whoever calls this may have children of its own: only those that the pool adds are killed below.
    others = set(multiprocessing.active_children())
    pool = ProcessPoolExecutor(workers, context, _begin)
    try:
        given = {pool.submit(work, cell): cell for cell in cells if not cell.done}
        waiting = set(given)
        while waiting:
            done, waiting = wait(waiting, timeout=0.5, return_when=FIRST_COMPLETED)
            for one in done:
                _check(one.result(), given[one])
            _report(cells, progress)
        pool.shutdown()
    finally:
        for process in set(multiprocessing.active_children()) - others:
            process.kill()  # a cell is whole after every update: nothing is lost but the last one
        pool.shutdown(cancel_futures=True)


def _check(answer: Json, cell: Cell) -> None:
    """Raise the error that a cell ended with."""
    if "refused" in answer:
        raise refusal(answer["refused"])
    if "broken" in answer:
        raise InternalError(f"a worker failed at {cell.folder.name}:\n{answer['broken']}")


def _report(cells: Sequence[Cell], progress: Progress) -> None:
    """Updates that are evaluated, of all; a world is a stage."""
    for place in dict.fromkeys(cell.world_plan for cell in cells):
        mine = [cell for cell in cells if cell.world_plan == place]
        done = sum(rows[-1]["update"] for cell in mine if (rows := cell.rows))
        title = _titles(mine[0].recipe)[place]
        progress(f"training in {title}", done, sum(cell.recipe.updates for cell in mine))


def summary_of(recipe: CompareRecipe, cells: Sequence[Cell]) -> Json:
    """Per world: a row per arm, and its mean learning curve."""
    worlds: dict[str, Json] = {}
    for place, title in _titles(recipe).items():
        mine = {
            arm: [cell for cell in cells if (cell.world_plan, cell.arm) == (place, arm)]
            for arm in recipe.arms
        }
        arms = {arm: [cell.curve() for cell in group] for arm, group in mine.items()}
        rows = compare_arms(arms, recipe.baseline)
        curves = {arm: mean_curve(runs) for arm, runs in arms.items()}
        worlds[title] = {
            "rows": [
                _row(row) | {"mixed": float(np.mean([cell.mixed() for cell in mine[row.arm]]))}
                for row in rows
            ],
            "curves": {
                arm: {
                    "tokens": [round(float(t)) for t in curve.tokens],
                    "success": [round(float(v), 4) for v in curve.success],
                    "runs": [
                        {"tokens": run.tokens.tolist(), "success": run.mean.round(4).tolist()}
                        for run in arms[arm]
                    ],
                }
                for arm, curve in curves.items()
            },
        }
    return {"baseline": recipe.baseline, "seeds": recipe.seeds, "worlds": worlds, "digest": digest(recipe)}


def _row(row: Row) -> Json:
    plain = asdict(row)
    for key in ("gain", "area_gain"):
        interval = getattr(row, key)
        plain[key] = None if interval is None else [interval.estimate, interval.low, interval.high]
    return plain
