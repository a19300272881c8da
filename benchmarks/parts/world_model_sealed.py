"""Held-out tasks that nothing learned from, was chosen or was measured on before: proved when they are drawn.

Recipes, cards, tables on pages, and the quick form took tasks of seed 0, whose lists are prefixes of one
another; :data:`EARLIER` is longer than any that was taken.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from refork.worlds.base import Task
from refork.worlds.environment import EnvTrajectory
from refork.worlds.open import open_world
from refork_methods.simulate.data import task_of
from refork_testbed.models.recipes.world_model import WORLDS

#: Seed of the sealed tasks: no recipe, test, page or other benchmark draws these worlds with it.
SEED = 9167
#: So many held-out tasks of seed 0 of each world count as looked at: five times the most that were.
EARLIER = 1000


def marks(task: Task) -> frozenset[str]:
    """What of a task must be new: paths of its files, or the composition of its goal."""
    if "parts" in task.data:
        return frozenset({"+".join(part["kind"] for part in task.data["parts"])})
    goal = task.data["goal"]
    return frozenset({*task.data["files"], *goal["files"], *goal["gone"]})


@dataclass(frozen=True, slots=True)
class Seal:
    """How much of some tasks was there before; a task is known by the digest of all that it holds.

    ``trained``: tasks that were trained on; ``earlier``: tasks that were looked at; ``marks``: paths and
    compositions of training tasks; ``strange``: episodes, learned from or tested on, of tasks that are in
    neither list.
    """

    tasks: int
    trained: int
    earlier: int
    marks: int
    strange: int

    @property
    def whole(self) -> bool:
        """Whether nothing was."""
        return self.tasks > 0 and self.trained == self.earlier == self.marks == self.strange == 0


def seal_of(tasks: Sequence[Task], trained: Sequence[Task], earlier: Sequence[Task]) -> Seal:
    """What of ``tasks`` is among the others."""
    mine = {task.id for task in tasks}
    known = set().union(*(marks(task) for task in trained)) if trained else set()
    return Seal(
        len(mine),
        len(mine & {task.id for task in trained}),
        len(mine & {task.id for task in earlier}),
        len(set().union(*(marks(task) for task in tasks)) & known) if tasks else 0,
        0,
    )


def seal(items: Iterable[EnvTrajectory], lessons: Iterable[EnvTrajectory], count: int, seed: int) -> Seal:
    """The seal of episodes of the first ``count`` held-out tasks of a seed, beside what was learned from."""
    mine: list[Task] = []
    trained: list[Task] = []
    earlier: list[Task] = []
    for spec, size in WORLDS.items():
        world = open_world(spec)
        mine += world.tasks("held-out", count, seed)
        trained += world.tasks("train", size, 0)
        earlier += world.tasks("held-out", EARLIER, 0)
    found = seal_of(mine, trained, earlier)
    # The episodes are what is learned from and tested on; the tasks say what is in them.
    strange = {task_of(item) for item in lessons} - {task.id for task in trained}
    strange |= {task_of(item) for item in items} - {task.id for task in mine}
    return Seal(found.tasks, found.trained, found.earlier, found.marks, len(strange))
