"""A workflow as a model writes it: who does what, in order, and who sees whose answer."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, TypeAlias, final

from refork.errors import BadInput
from refork.types import Json
from refork_methods.route.conduct.lists import KEYS, Item, three_lists
from refork_methods.route.pool import WorkerPool

#: Steps that a plan may have.
MOST_STEPS = 5
#: Why a plan cannot run.
Fault: TypeAlias = Literal[
    "unreadable",
    "empty",
    "unequal lengths",
    "too many steps",
    "unknown worker",
    "opted out",
    "empty subtask",
    "forward access",
    "unknown access",
    "repeated access",
]


@dataclass(frozen=True, slots=True)
class Problem:
    """Why a plan cannot run: the fault, the step it is in (from 1; None: the whole), and a sentence."""

    fault: Fault
    step: int | None
    text: str


@final
@dataclass(frozen=True, slots=True)
class Plan:
    """Three lists of one length: the worker of each step, its subtask, and the steps whose answers it sees.

    Steps are counted from 1, and so are workers where they are named by number (their place in the pool).
    ``access_list[t]`` holds earlier steps in the order in which they are shown. A plan may hold faults:
    :meth:`problems` names them, :meth:`validate` refuses them.

    Source: arXiv:2512.04388 (three lists, at most five steps); counting from 1 is ours.
    """

    model_id: tuple[str, ...]
    subtasks: tuple[str, ...]
    access_list: tuple[tuple[int, ...], ...]

    @classmethod
    def parse(cls, text: str, workers: Sequence[str] = ()) -> Plan:
        """Read the plan that a model wrote, after whatever reasoning; its faults stay in it.

        ``workers`` are the names that numbers stand for, from 1. Access is a list of steps, ``[]`` or
        ``all`` (every earlier step), for each step, or ``all`` once for the whole plan.

        Raises: BadInput where no three lists can be found, or an item cannot be what its list holds.
        """
        models, subtasks, access = three_lists(text)
        granted = ["all"] * len(subtasks) if isinstance(access, str) else access
        return cls(
            tuple(_worker(item, workers) for item in models),
            tuple(_subtask(item) for item in subtasks),
            tuple(_access(item, step) for step, item in enumerate(granted, 1)),
        )

    @classmethod
    def from_json(cls, data: Json) -> Plan:
        """Inverse of :meth:`to_json`. Raises BadInput for what is no plan."""
        if not isinstance(data, dict) or not set(KEYS) <= set(data):
            raise BadInput("a workflow is an object with the lists " + ", ".join(KEYS))
        return cls.parse(json.dumps({key: data[key] for key in KEYS}))

    @classmethod
    def read(cls, path: Path | str) -> Plan:
        """The plan of a workflow file. Raises BadInput where there is none."""
        try:
            return cls.from_json(json.loads(Path(path).read_text(encoding="utf-8")))
        except (OSError, ValueError) as error:
            raise BadInput(f"no workflow can be read: {error}", where=str(path)) from error

    def __len__(self) -> int:
        """Steps; the longest list where they differ."""
        return max(len(self.model_id), len(self.subtasks), len(self.access_list))

    def problems(self, pool: WorkerPool, most: int = MOST_STEPS) -> list[Problem]:
        """Every fault; none where the plan can run with this pool."""
        lengths = len(self.model_id), len(self.subtasks), len(self.access_list)
        found: list[Problem] = []
        if max(lengths) == 0:
            found.append(Problem("empty", None, "the plan has no step"))
        if len(set(lengths)) > 1:
            sizes = ", ".join(f"{key} {size}" for key, size in zip(KEYS, lengths, strict=True))
            found.append(Problem("unequal lengths", None, f"the lists differ in length: {sizes}"))
        if max(lengths) > most:
            found.append(Problem("too many steps", None, f"{max(lengths)} steps; at most {most}"))
        for step, name in enumerate(self.model_id, 1):
            if name not in pool.names:
                found.append(Problem("unknown worker", step, f"there is no worker {name!r}"))
            elif name not in pool.open:
                found.append(Problem("opted out", step, f"worker {name!r} has opted out"))
        for step, subtask in enumerate(self.subtasks, 1):
            if not subtask.strip():
                found.append(Problem("empty subtask", step, "the subtask is empty"))
        for step, access in enumerate(self.access_list, 1):
            found += _access_problems(step, access)
        return found

    def validate(self, pool: WorkerPool, most: int = MOST_STEPS) -> Plan:
        """The plan itself. Raises BadInput that names every fault where it has one."""
        found = self.problems(pool, most)
        if found:
            said = "; ".join(p.text if p.step is None else f"step {p.step}: {p.text}" for p in found)
            raise BadInput(f"this plan cannot run: {said}", hint=f"open workers: {', '.join(pool.open)}")
        return self

    def to_json(self) -> Json:
        """The workflow as JSON: the three lists."""
        return {
            "model_id": list(self.model_id),
            "subtasks": list(self.subtasks),
            "access_list": [list(access) for access in self.access_list],
        }


def _access_problems(step: int, access: tuple[int, ...]) -> list[Problem]:
    found: list[Problem] = []
    if len(set(access)) < len(access):
        found.append(Problem("repeated access", step, f"access {list(access)} names a step twice"))
    for other in dict.fromkeys(access):
        if other < 1:
            found.append(Problem("unknown access", step, f"there is no step {other}; steps count from 1"))
        elif other >= step:
            what = "itself" if other == step else f"step {other}, which comes later"
            found.append(Problem("forward access", step, f"it cannot see {what}"))
    return found


def _worker(item: Item, workers: Sequence[str]) -> str:
    if isinstance(item, bool) or not isinstance(item, str | int):
        raise BadInput(f"{item!r} names no worker", where="model_id")
    # A worker whose name is a number is meant by it, before any place in the pool.
    if isinstance(item, int) and str(item) not in workers and 1 <= item <= len(workers):
        return workers[item - 1]
    return str(item)


def _subtask(item: Item) -> str:
    if isinstance(item, bool) or not isinstance(item, str | int):
        raise BadInput(f"{item!r} is no subtask", where="subtasks")
    return str(item)


def _access(item: Item, step: int) -> tuple[int, ...]:
    if isinstance(item, str) and item.strip().lower() == "all":
        return tuple(range(1, step))
    if isinstance(item, list) and len(item) == 1 and item[0] == "all":
        return tuple(range(1, step))
    if not isinstance(item, list) or any(isinstance(i, bool) or not isinstance(i, int) for i in item):
        raise BadInput(f"{item!r} is no list of steps", where=f"access_list, step {step}")
    return tuple(i for i in item if isinstance(i, int))
