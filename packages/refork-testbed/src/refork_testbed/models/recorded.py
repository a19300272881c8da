"""Trajectories that organisms learn from: recorded in the real environments once, and kept."""

from __future__ import annotations

import os
from pathlib import Path

from refork.errors import BadInput
from refork.growing.recorder import read_trajectories, record, trajectories, write_trajectories
from refork.plain import content_hash
from refork.progress import Progress, silent
from refork.tree.tree import Tree
from refork.worlds.base import Split
from refork.worlds.environment import Environment, EnvTrajectory
from refork.worlds.open import open_world


def recorded(
    spec: str, split: Split, count: int, seed: int, path: Path, progress: Progress = silent
) -> list[EnvTrajectory]:
    """One episode of a scripted actor in each of ``count`` tasks, as its environment saw it.

    ``path`` is a folder that keeps them; it belongs to one state of the sources. Episodes in which the world
    broke are left out.

    Raises:
        BadInput: the world cannot be recorded, or it broke in more than one episode of a hundred.
    """
    name = content_hash([spec, split, count, seed])[:16]
    file = path / f"{name}.jsonl"
    if not file.exists():
        world = open_world(spec)
        if not isinstance(world, Environment):
            raise BadInput(f"{spec} cannot be recorded", where="organism")

        def report(
            stage: str, done: int, total: int, *, tokens: int | None = None, waiting: str | None = None
        ) -> None:
            progress(f"{stage} {spec}", done, total, tokens=tokens, waiting=waiting)

        with Tree.memory() as tree:
            told = record(world, world.tasks(split, count, seed), tree, seeds=(seed,), progress=report)
            if told.stopped:
                raise KeyboardInterrupt
            if told.errors * 100 > count:
                raise BadInput(f"{told.errors} of {count} episodes broke: {told.reasons[0]}", where=spec)
            path.mkdir(parents=True, exist_ok=True)
            part = file.with_suffix(f".{os.getpid()}")
            write_trajectories(part, trajectories(tree))
            part.replace(file)
    return list(read_trajectories(file))
