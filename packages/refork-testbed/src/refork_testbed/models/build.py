"""Train an organism, measure it, and put it in its place in one step."""

from __future__ import annotations

import hashlib
import importlib.metadata
import json
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import torch

from refork import stats
from refork.errors import BadInput
from refork.progress import Progress, silent
from refork.types import Json
from refork.worlds.base import World
from refork.worlds.open import open_world
from refork_testbed.models.grown import grow_up
from refork_testbed.models.recipe import AnyRecipe, Grown, Recipe, Reinforced, Staged
from refork_testbed.models.registry import find, names, path, recipe_digest
from refork_testbed.models.reinforced import reinforce
from refork_testbed.models.staged import stage_up
from refork_testbed.models.supervised import new_model, supervise


def card(recipe: AnyRecipe, facts: Json, weights: str) -> str:
    """The README of an organism: what it is, how well it does, how it was made."""
    settings = {key: getattr(recipe, key, None) for key in ("parent", "shape", "training", "stages", "seed")}
    made = {"data": recipe.data} | settings | {k: v for k, v in facts.items() if not isinstance(v, dict)}
    return f"""\
# {recipe.name}

A tiny language model that {recipe.summary}. Made by `refork organism build {recipe.name}`, to have something
small to fork, examine and improve; it knows nothing else.

{told_success(recipe, facts)}

{chr(10).join(f"- {key}: {value}" for key, value in made.items() if value is not None)}
- weights: sha256 {weights}

On one machine with the same versions the same recipe gives the same weights, bit for bit.
"""


def told_success(recipe: AnyRecipe, facts: Json) -> str:
    """One sentence with what was measured and its interval."""
    if isinstance(recipe, Staged):
        return str(facts["staged"]["told"])
    if isinstance(recipe, Grown):
        held = facts["held_out"]
        return (
            f"Loss on {held['texts']} held-out texts ({held['tokens']} tokens): {held['loss']:.4f} nats per "
            f"token; the distribution that wrote them loses {held['law']:.4f}."
        )
    measured = facts["measured"]
    if measured is None:
        return "Not measured: this organism belongs to no world."
    sampling = ", ".join(f"{k} {v}" for k, v in ({"temperature": 1.0} | measured["sampling"]).items())
    return (
        f"{measured['successes']} of {measured['tasks']} held-out tasks of `{measured['world']}` "
        f"(version {measured['version']}): {measured['rate']:.3f}, 95 % interval "
        f"[{measured['low']:.3f}, {measured['high']:.3f}] (Wilson), one rollout each, {sampling}."
    )


__all__ = ["THREADS", "build", "describe", "new_model"]

#: Threads of training. One makes a build repeatable bit for bit, and models this small gain little from a
#: second: two threads that wait for each other on a busy machine can be ten times slower than one. (A grown
#: organism is large enough for two, and names how many.)
THREADS = 1


def build(name: str, out: Path | str | None = None, progress: Progress = silent) -> Path:
    """The folder of an organism, built now unless it is there already.

    It appears as a whole or not at all: an interrupted build leaves nothing behind.

    Args:
        name: one of :func:`~refork_testbed.models.registry.names`.
        out: another folder than the cache's; it must be free, or hold this very organism.
        progress: told of every training step.

    Raises:
        BadInput: no such organism, or the folder holds something else.
        MissingExtra: the world it is measured in needs a package that is not installed.
    """
    recipe = find(name)
    target = path(name) if out is None else Path(out)
    digest = recipe_digest(recipe)
    if _holds(target, digest):
        return target
    if target.exists() and (not target.is_dir() or any(target.iterdir())):
        raise BadInput(
            "this folder holds something else",
            where=str(target),
            hint="name a folder that does not exist yet",
        )
    # What is made in stages measures itself.
    known = recipe.world is not None and not isinstance(recipe, Staged)
    world = open_world(str(recipe.world)) if known else None
    target.parent.mkdir(parents=True, exist_ok=True)
    # Beside the target, hence on the same file system: the rename at the end is then one step.
    with tempfile.TemporaryDirectory(dir=target.parent, prefix=f".{target.name}-") as scratch:
        made = Path(scratch) / "organism"
        _make(recipe, world, digest, made, progress)
        try:
            made.replace(target)
        except OSError:
            # Another process was faster; what it put there is the same organism.
            if not _holds(target, digest):
                raise
    return target


def _holds(folder: Path, digest: str) -> bool:
    """Whether a folder is a finished build of this recipe with the weights it names."""
    try:
        record = json.loads((folder / "digest.json").read_text())
        return bool(record["recipe"] == digest and record["weights"] == _sha256(folder / "model.safetensors"))
    except (OSError, ValueError, KeyError, TypeError):
        return False


def _sha256(file: Path) -> str:
    return hashlib.sha256(file.read_bytes()).hexdigest()


def _make(
    recipe: AnyRecipe,
    world: World | None,
    digest: str,
    folder: Path,
    progress: Progress,
) -> None:
    # The parent is an organism of its own, with its own seed: it is not part of this one's time.
    origin = recipe.parent if isinstance(recipe, Reinforced | Staged) else None
    parent = None if origin is None else build(origin, progress=progress)
    threads = recipe.threads if isinstance(recipe, Grown) else THREADS
    started = time.monotonic()
    with _fixed(recipe.seed, threads):
        if isinstance(recipe, Grown):
            made = grow_up(recipe, folder, progress)
        elif isinstance(recipe, Staged):
            made = stage_up(recipe, parent, folder, progress)
        elif isinstance(recipe, Reinforced):
            assert parent is not None
            made = reinforce(recipe, parent, folder, progress)
        else:
            made = supervise(recipe, folder, progress)
    trained = time.monotonic() - started
    measured = made.facts.get("staged")
    if world is not None and not isinstance(recipe, Grown | Staged):
        measured = _measure(recipe, world, folder, progress)
    facts: Json = made.facts | {
        "train_seconds": round(trained, 1),
        "measured": measured,
        "threads": threads,
        "torch": torch.__version__,
        "transformers": importlib.metadata.version("transformers"),
    }
    (folder / "train_log.jsonl").write_text("".join(json.dumps(row) + "\n" for row in made.log))
    weights = _sha256(folder / "model.safetensors")
    (folder / "README.md").write_text(card(recipe, facts, weights))
    record = {"recipe": digest, "weights": weights, "measured": measured}
    (folder / "digest.json").write_text(json.dumps(record, indent=2) + "\n")


@contextmanager
def _fixed(seed: int, threads: int) -> Iterator[None]:
    """A seeded generator and a fixed number of threads, both given back afterwards."""
    before = torch.get_num_threads()
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        torch.set_num_threads(threads)
        try:
            yield
        finally:
            torch.set_num_threads(before)


def _measure(recipe: Recipe | Reinforced, world: World, folder: Path, progress: Progress) -> Json:
    """Success of one rollout of each held-out task, with its 95 % Wilson interval."""
    from refork.forking.arm import graded
    from refork.growing import grow
    from refork.policies.local import LocalPolicy
    from refork.tree.tree import Tree

    def report(
        stage: str, done: int, total: int, *, tokens: int | None = None, waiting: str | None = None
    ) -> None:
        progress(f"measuring {recipe.name}", done, total, tokens=tokens, waiting=waiting)

    tasks = world.tasks("held-out", recipe.tasks, 0)
    with Tree.memory() as tree:
        groups = grow(
            tree, LocalPolicy.load(str(folder)), world, tasks, draws=1, settings=recipe.sampling,
            seed=0, tasks_at_once=len(tasks), progress=report,
        )  # fmt: skip
        values = graded([value for group in groups for value in group.values()])
    known = values[np.isfinite(values)]
    wins = int((known >= 1.0).sum())
    interval = stats.wilson(wins, len(known))
    return {
        "world": world.name,
        "version": world.version,
        "tasks": len(known),
        "successes": wins,
        "rate": interval.estimate,
        "low": interval.low,
        "high": interval.high,
        "sampling": recipe.sampling.to_json(),
    }


def describe() -> list[Json]:
    """One record per organism: name, summary, world, path, built, and the measured success if built."""
    rows: list[Json] = []
    for name in names():
        recipe, place = find(name), path(name)
        built = _holds(place, recipe_digest(recipe))
        record = json.loads((place / "digest.json").read_text()) if built else {}
        rows.append(
            {
                "name": name,
                "summary": recipe.summary,
                "world": recipe.world,
                "path": str(place),
                "built": built,
                "measured": record.get("measured"),
            }
        )
    return rows
