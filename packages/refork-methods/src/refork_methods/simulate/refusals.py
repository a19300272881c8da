"""What training and evaluation refuse: a judge that judges itself, and a test on what was trained on."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from refork.errors import BadInput
from refork.policies.base import Policy
from refork.types import Json
from refork.worlds.environment import EnvTrajectory
from refork_methods.simulate.data import task_of
from refork_methods.simulate.prompt import Target

#: The file in which a training run says what it learned from.
RECORD = "training.json"


def _speakers(identity: Any) -> Iterator[tuple[str | None, str | None]]:
    """Name and weights of every model that an identity tells of, however deep."""
    if isinstance(identity, dict):
        name = identity.get("model", identity.get("judge"))
        weights = identity.get("weights")
        known = name if isinstance(name, str) else None, weights if isinstance(weights, str) else None
        if known != (None, None):
            yield known
        for inner in identity.values():
            yield from _speakers(inner)
    elif isinstance(identity, list):
        for inner in identity:
            yield from _speakers(inner)


def is_same(one: Json, other: Json) -> bool:
    """Whether two identities share a model: equal weights, or, where either's are unknown, an equal name.

    The name of a remote model has its endpoint in it.
    """
    for name, weights in _speakers(one):
        for other_name, other_weights in _speakers(other):
            if weights is not None and other_weights is not None:
                if weights == other_weights:
                    return True
            elif name is not None and name == other_name:
                return True
    return False


def refuse_same(simulator: Json, judge: Json) -> None:
    """Refuse a judge that is the simulator, by their identities.

    Raises: BadInput for the same weights, or the same model on the same server.
    """
    if is_same(simulator, judge):
        raise BadInput(
            "the judge is the simulator, and a model rates its own words well",
            where="judge",
            hint="take another model, or a rule (--judge rule)",
        )


def speaker(policy: Policy) -> Json:
    """What tells a policy from another, as identities have it."""
    return {"model": policy.card.name, "weights": policy.card.weights}


@dataclass(frozen=True, slots=True)
class Learned:
    """What a model learned from: whole sources, and of others the tasks that are known."""

    sources: frozenset[str] = frozenset()
    tasks: frozenset[tuple[str, str]] = frozenset()

    def __or__(self, other: Learned) -> Learned:
        return Learned(self.sources | other.sources, self.tasks | other.tasks)

    def to_json(self) -> Json:
        """Sources, and tasks by source."""
        tasks: dict[str, list[str]] = {}
        for source, task in sorted(self.tasks):
            tasks.setdefault(source, []).append(task)
        return {"sources": sorted(self.sources), "tasks": tasks}

    def has(self, item: EnvTrajectory) -> str | None:
        """What of a trajectory was learned from, in words; None: nothing.

        As :func:`refork_methods.simulate.data.refuse_overlap` has it: within one source, tasks that are known
        tell trajectories apart.
        """
        task = task_of(item)
        known = any(source == item.source for source, _ in self.tasks)
        if item.source in self.sources or (task is None and known):
            # Where the task is not known it may be any, the learned ones among them.
            return repr(item.source)
        return f"task {task} of {item.source!r}" if (item.source, str(task)) in self.tasks else None


def learned_from(items: Iterable[EnvTrajectory]) -> Learned:
    """The record of trajectories: a source counts as a whole where the task of one is not known."""
    pairs = [(item.source, task_of(item)) for item in items]
    whole = frozenset(source for source, task in pairs if task is None)
    return Learned(
        whole, frozenset((source, task) for source, task in pairs if task is not None and source not in whole)
    )


def trained_on(folder: Path | None) -> Learned:
    """What a model's training record says; empty without a record.

    The record is ``training.json`` in the folder or the one above it.
    """
    if folder is None:
        return Learned()
    # A run's policy lies in a folder inside the run's, and either may be named.
    file = next((f for f in (folder / RECORD, folder.parent / RECORD) if f.is_file()), None)
    if file is None:
        return Learned()
    try:
        data = json.loads(file.read_text(encoding="utf-8"))["data"]
        sources = frozenset(map(str, data.get("sources", [])))
        tasks = ((str(source), str(task)) for source, held in data.get("tasks", {}).items() for task in held)
        return Learned(sources, frozenset(tasks))
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise BadInput(f"this is no training record: {error!r}", where=str(file)) from error


def folders_of(policy: str) -> list[Path]:
    """The folders that a policy's specification names: of its model, and of its adapter."""
    parts = policy.removeprefix("hf:").split("+")
    found = [
        Path(parts[0]),
        *(Path(part.partition("=")[2]) for part in parts[1:] if part.startswith("adapter=")),
    ]
    return [folder for folder in found if folder.is_dir()]


def refuse_trained_on(folder: Path | None, due: Iterable[Target]) -> None:
    """Refuse targets of trajectories that the model learned from.

    Raises: BadInput naming the first whose source, or task, is in the training record.
    """
    known = trained_on(folder)
    for target in due:
        what = known.has(target.trajectory)
        if what is not None:
            raise BadInput(
                f"the model learned from {what}: what it says there shows memory",
                where=f"trajectory {target.trajectory.id}",
                hint="test on sources, or tasks, that were held out",
            )
