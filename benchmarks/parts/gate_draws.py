"""Separate draws of a mechanical repairer on real modules: some tasks are easy for it, some are hopeless.

The repairer knows which line is at fault and tries one of the edits of that line that mutation operators
make, each as likely. It knows no gold edit: how often it is right follows from how many edits a line has, and
from whether one of them undoes the fault. The critics (the test that was reported, both public tests) and the
oracle (the hidden suite) really run.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from refork.worlds.base import Split
from refork.worlds.dice import Dice
from refork_methods.gate.records import Record
from refork_testbed.worlds.repair.mutation import mutations
from refork_testbed.worlds.repair.projects import project_names, shared_runner, split_of_project
from refork_testbed.worlds.repair.tasks import RepairTask, repair_tasks

#: What critics cost in units of utility; running both tests costs twice as much as running one.
COSTS = {"reported": 1.0, "public": 2.0}


def edits(task: RepairTask) -> list[str]:
    """The texts of the file that one operator makes of the line at fault, in the order of their ids."""
    here = [one for one in mutations(task.broken) if one.line == task.mutation.line]
    return [one.apply(task.broken) for one in sorted(here, key=lambda one: one.id)]


def draws_of(split: Split, tasks: int, draws: int, seed: int = 0) -> list[Record]:
    """``draws`` candidates of each of ``tasks`` tasks of the standard library's and the generated modules."""
    names = [name for name in project_names() if split_of_project(name) == split]
    return [r for task in repair_tasks(tasks, seed, names=names) for r in _candidates(task, draws, seed)]


def _candidates(task: RepairTask, draws: int, seed: int) -> Iterator[Record]:
    texts = edits(task)
    known: dict[str, tuple[bool, bool, bool]] = {}
    for draw in range(draws if texts else 0):
        text = Dice("mechanical", task.id, seed, draw).choice(texts)
        if text not in known:
            known[text] = _judged(task, text)
        right, reported, public = known[text]
        yield Record(task.id, str(draw), right, {"reported": reported, "public": public})


def _judged(task: RepairTask, text: str) -> tuple[bool, bool, bool]:
    files = {**task.project.files, task.path: text}

    def passes(names: Sequence[str]) -> bool:
        return shared_runner().run(files, task.tests, names).ok

    return passes(task.hidden), passes(task.public[:1]), passes(task.public)
