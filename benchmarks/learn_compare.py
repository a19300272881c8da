"""Tree growing and graph credit against plain groups: one organism, equal token budgets, paired seeds.

The claim under test is that UUCB trees with G2PO credit reach GRPO's final success with at most half its
tokens. GRPO has the same optimiser, loss, tasks, evaluation noise and token budget, and the learning rate
that was best for it among those tried (see docs/methods/learn-compare.md). `--quick` runs the household
alone, one short run an arm.
"""

from __future__ import annotations

import argparse
import json
import tempfile
from pathlib import Path

from rich.console import Console
from rich.table import Table

from refork.progress import silent
from refork_methods.compare import CompareRecipe, run_compare
from refork_methods.compare.commands import _table
from refork_methods.compare.recipe import HOUSEHOLD
from refork_testbed.trials.gradient_signal import arm_gradients, signal_of

QUICK = CompareRecipe(
    worlds=(HOUSEHOLD.model_copy(update={"budget": 2000, "tasks": 6}),),
    seeds=1, updates=3, held_out=32, draws=2, evaluate_every=3,
)  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="one short run an arm in one world; under 50 s")
    parser.add_argument("--out", type=Path, help="keep the runs here; the same command again resumes")
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--signal", type=int, metavar="BATCHES", help="also: how much of an update is signal")
    options = parser.parse_args()
    recipe = QUICK if options.quick else CompareRecipe(seeds=options.seeds)
    with tempfile.TemporaryDirectory() as scratch:
        summary = run_compare(recipe, options.out or Path(scratch) / "compare", silent)
    console = Console()
    for name, data in summary["worlds"].items():
        console.print(_table(name, data["rows"], summary["baseline"]))
    if options.signal:
        _signal(console, recipe, options.signal)
    print(json.dumps(_figures(summary)))


def _signal(console: Console, recipe: CompareRecipe, batches: int) -> None:
    """Gradients of independent batches at the starting weights, one per seed, of every arm but the last."""
    place = recipe.worlds[0]
    reference = arm_gradients(recipe, place, recipe.baseline, batches, 2000)
    table = Table(
        "arm", "signal share", f"alignment with {recipe.baseline}", title=f"{place.world}: first update"
    )
    for arm in recipe.arms[:4]:
        found = signal_of(arm_gradients(recipe, place, arm, batches, 1000), reference)
        table.add_row(arm, f"{found.share:.3f}", f"{found.alignment:.2f}")
    console.print(table)


def _figures(summary: dict) -> dict:
    """Final success and share of GRPO's tokens per arm of the first world; other worlds by name."""
    found: dict = {}
    for i, (name, data) in enumerate(summary["worlds"].items()):
        mine = {
            "final": {row["arm"]: round(row["final"], 4) for row in data["rows"]},
            "tokens_to_grpo_final": {
                row["arm"]: None if row["share"] is None else round(row["share"], 3) for row in data["rows"]
            },
            "area_gain_low": {
                row["arm"]: round(row["area_gain"][1], 4) for row in data["rows"] if row["area_gain"]
            },
        }
        if i == 0:
            found |= mine
        else:
            found.setdefault("other", {})[name.partition(":")[2] or name] = mine
    return found


if __name__ == "__main__":
    main()
