"""The same rollouts on one process and on Ray, undisturbed and with workers and nodes killed under way.

Run: python benchmarks/ray_faults.py [--quick]. Ray's local cluster has a head without room for workers and
two nodes with room for one each. In the third run workers are killed (SIGKILL) and nodes taken away, each at
a set number of finished draws; a node that was taken away is followed by a new one. The exports of all three
trees are compared as bytes, times aside. The time of the undisturbed runs begins when all workers are ready.
"""

from __future__ import annotations

import argparse
import io
import json
import os
import signal
import tempfile
import time
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from refork.forking.backend import Backend, open_backend
from refork.forking.backend.ray_pool import import_ray
from refork.formats.native import Native
from refork.growing.rollouts import grow
from refork.policies.base import Sampling
from refork.progress import Progress, silent
from refork.tree.tree import Tree
from refork.worlds.open import open_world

POLICY, WORLD = "scripted:walker", "maze:2,2,2"
UNIT = 4
ROOM = {"object_store_memory": 80 * 2**20}


def rollouts(backend: Backend, tasks: int, draws: int, progress: Progress = silent) -> tuple[bytes, float]:
    """Grow into a tree on disk; its export and the seconds it took."""
    policy, world = backend.open(POLICY), open_world(WORLD)
    with tempfile.TemporaryDirectory() as folder, Tree.open(Path(folder) / "tree.db") as tree:
        start = time.perf_counter()
        chosen = world.tasks("held-out", tasks, 0)
        sampling = Sampling(max_tokens=24)
        grow(tree, policy, world, chosen, draws=draws, settings=sampling, backend=backend, progress=progress)
        return exported(tree), time.perf_counter() - start


def exported(tree: Tree) -> bytes:
    """The export of a tree, times aside."""
    out = io.StringIO()
    Native().write(tree.records(), out)
    lines = []
    for line in out.getvalue().splitlines():
        record = json.loads(line)
        record.pop("created", None)
        record.get("cost", {}).pop("seconds", None)
        lines.append(json.dumps(record))
    return "\n".join(lines).encode()


@dataclass
class Killer:
    """Kills a worker or takes a node away, in turns, whenever ``every`` more draws are finished."""

    backend: Backend
    cluster: Any
    kills: int
    every: int
    done: list[str] = field(default_factory=list)

    def __call__(
        self, stage: str, done: int, total: int, *, tokens: int | None = None, waiting: str | None = None
    ) -> None:
        """Told of every finished unit."""
        alive = self.backend.pool.alive()
        if len(self.done) >= self.kills or done < self.every * (len(self.done) + 1) or len(alive) < 2:
            return
        if len(self.done) % 3 == 2:
            self.cluster.remove_node(self.cluster.list_all_nodes()[-1], allow_graceful=False)
            self.cluster.add_node(num_cpus=1, **ROOM)
            self.done.append("node")
        else:
            os.kill(next(iter(alive.values())), signal.SIGKILL)
            self.done.append("worker")


def ready(backend: Backend, workers: int) -> None:
    """Wait until all workers have begun and have opened the policy and the world."""
    backend.pool.start()
    while len(backend.pool.alive()) < workers:
        backend.pool.wait(1.0)
    rollouts(backend, tasks=1, draws=2 * UNIT)


def show(rows: list[tuple[str, float, int, int, bool]]) -> None:
    table = Table("rollouts on", "seconds", "killed", "units done again", "same bytes")
    for name, seconds, kills, again, same in rows:
        table.add_row(name, f"{seconds:.1f}", str(kills), str(again), "yes" if same else "NO")
    Console().print(table)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="fewer rollouts and kills; under 50 seconds")
    quick = parser.parse_args().quick
    tasks, draws, kills = (2, 24, 3) if quick else (4, 64, 12)
    with open_backend(f"serial?unit={UNIT}") as alone:
        rollouts(alone, tasks=1, draws=2)
        reference, alone_s = rollouts(alone, tasks, draws)
    ray = import_ray()
    from ray.cluster_utils import Cluster

    cluster = Cluster(initialize_head=True, head_node_args={"num_cpus": 0} | ROOM)
    for _ in range(2):
        cluster.add_node(num_cpus=1, **ROOM)
    with open_backend(f"ray:{cluster.address}?workers=2&unit={UNIT}") as backend:
        ready(backend, 2)
        calm, calm_s = rollouts(backend, tasks, draws)
        killer = Killer(backend, cluster, kills, tasks * draws // (kills + 2))
        before = backend.retried
        hurt, hurt_s = rollouts(backend, tasks, draws, killer)
        again = backend.retried - before
    ray.shutdown()
    cluster.shutdown()
    wanted, got = (Counter(tree.split(b"\n")) for tree in (reference, hurt))
    show(
        [
            ("one process", alone_s, 0, 0, True),
            ("Ray, 2 workers on 2 nodes", calm_s, 0, 0, calm == reference),
            ("the same, with kills", hurt_s, len(killer.done), again, hurt == reference),
        ]
    )
    print(f"killed: {killer.done.count('worker')} workers, {killer.done.count('node')} nodes")
    result = {
        "kills": len(killer.done),
        "lost": (wanted - got).total(),
        "duplicated": (got - wanted).total(),
        "same_bytes": calm == reference == hurt,
        "speedup_2": round(alone_s / calm_s, 2),
    }
    print(json.dumps(result))


if __name__ == "__main__":
    main()
