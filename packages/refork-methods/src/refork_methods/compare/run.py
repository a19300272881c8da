"""The whole comparison: cells in worker processes, then one table. Stops cleanly and resumes."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path

import numpy as np

from refork.progress import Progress, silent
from refork.runs.recipe import digest, open_folder
from refork.types import Json
from refork_methods.compare.cell import Cell, run_cell, start_of
from refork_methods.compare.cell_pool import CellPool
from refork_methods.compare.recipe import CompareRecipe
from refork_methods.compare.table import Row, compare_arms, mean_curve


def cells_of(recipe: CompareRecipe, folder: Path) -> list[Cell]:
    """Every run of a comparison, seeds outermost: after one seed there is a first table."""
    cells = []
    for i in range(recipe.seeds):
        for place in recipe.worlds:
            for arm in recipe.arms:
                seed = recipe.first_seed + i
                where = folder / "cells" / f"{_short(place.world)}-{arm}-{seed}"
                cells.append(Cell(recipe, place, arm, seed, where))
    return cells


def _short(world: str) -> str:
    return "".join(c if c.isalnum() else "-" for c in world.partition("?")[0])


def run_compare(
    recipe: CompareRecipe, folder: Path, progress: Progress = silent, *, workers: int | None = None
) -> Json:
    """Run what is missing of a comparison and return its summary, which ``folder/summary.json`` holds too.

    ``workers`` processes of one thread each (None: one per core). One that dies is replaced. An interrupt
    ends them; the same call again goes on from their last checkpoints.

    Raises:
        BadInput: parts of the recipe do not fit one another.
        Mismatch: the folder holds another comparison.
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


def _run(cells: Sequence[Cell], workers: int, progress: Progress) -> None:
    todo = [cell for cell in cells if not cell.done]
    _report(cells, progress)
    if workers == 1:
        for cell in todo:
            run_cell(cell)
            _report(cells, progress)
        return
    CellPool(workers).run(todo, lambda: _report(cells, progress))


def _report(cells: Sequence[Cell], progress: Progress) -> None:
    """Updates that are evaluated, of all; a world is a stage."""
    for world in dict.fromkeys(cell.world_plan.world for cell in cells):
        mine = [cell for cell in cells if cell.world_plan.world == world]
        done = sum(rows[-1]["update"] for cell in mine if (rows := cell.rows))
        progress(f"training in {world}", done, sum(cell.recipe.updates for cell in mine))


def summary_of(recipe: CompareRecipe, cells: Sequence[Cell]) -> Json:
    """Per world: a row per arm, and its mean learning curve."""
    worlds: dict[str, Json] = {}
    for place in recipe.worlds:
        mine = {
            arm: [cell for cell in cells if (cell.world_plan, cell.arm) == (place, arm)]
            for arm in recipe.arms
        }
        arms = {arm: [cell.curve() for cell in group] for arm, group in mine.items()}
        rows = compare_arms(arms, recipe.baseline)
        curves = {arm: mean_curve(runs) for arm, runs in arms.items()}
        worlds[place.world] = {
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
