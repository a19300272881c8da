"""The gate's live case: repairs of small Python packages, really checked and really tested.

Candidates are turns of any policy on a tree; their edits add up. Critics are the syntax, ruff and the few
public tests; the oracle is the hidden suite.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TypeAlias, final

from refork.errors import BadInput, CannotDo, ServerError
from refork.growing.plant import plant
from refork.policies.base import Policy as Acting
from refork.policies.base import Sampling
from refork.progress import Progress, silent
from refork.registry import resolve, version_of
from refork.tree.node import Point
from refork.tree.score import Producer
from refork.tree.tree import Tree
from refork.types import Json
from refork.worlds.base import Split, Task, World
from refork_methods.gate.fit import refuse_instances
from refork_methods.gate.live import Check, CriticVerdict, Opened, Verdict, collect_file
from refork_methods.gate.on_tree import Candidate, LiveRun, Setting, TreeWriter, critic_producer, run_live
from refork_methods.gate.records import Record
from refork_testbed.worlds.repair import critics as checks
from refork_testbed.worlds.repair.edits import EditError, edited
from refork_testbed.worlds.repair.tasks import RepairTask, task_from_json
from refork_testbed.worlds.repair.world import RepairWorld

#: The critics of a repair that are asked where none are named, cheapest first.
CRITICS = ("syntax", "ruff", "public")
#: What a name of ``refork.critics`` stands for: given a task and the candidate's files (path to text),
#: whether they pass. A plain bool is timed.
Critic: TypeAlias = Callable[[RepairTask, Mapping[str, str]], checks.Verdict | bool]
#: A turn of a repairer may hold a whole diff.
SETTINGS = Sampling(max_tokens=2048)
_UNTOLD = "not right yet"


@final
class RepairBench:
    """Opens tasks of the repair world for the gate: a writer over the tree, its critics, the hidden suite.

    A verdict's price is its wall time in seconds, a candidate's what the policy says it took. A candidate
    whose text is no edit fails every check. In the small wording the writer is told which critics failed,
    not why.
    """

    def __init__(
        self,
        tree: Tree,
        world: RepairWorld,
        policy: Acting,
        settings: Sampling = SETTINGS,
        *,
        seed: int = 0,
        critics: Sequence[str] = CRITICS,
    ) -> None:
        self._tree, self._world, self._policy, self._settings = tree, world, policy, settings
        self._seed, self._specs = seed, {critic_name(spec): spec for spec in critics}
        if len(self._specs) < len(critics):
            raise BadInput("two critics have one name", hint=", ".join(critics))
        self._critics: dict[str, Critic] = {
            name: resolve("critics", spec) for name, spec in self._specs.items()
        }

    @property
    def producers(self) -> dict[str, Producer]:
        """Who gives each critic's verdicts."""
        found: dict[str, Producer] = {}
        for name, critic in self._critics.items():
            config: Json = {"world": [self._world.name, self._world.version]}
            if self._specs[name] not in CRITICS:
                # A critic from a file can change under its name; its old verdicts must not pass for new ones.
                config["code"] = version_of("critics", self._specs[name], critic)
            found[name] = critic_producer(name, config)
        return found

    def root(self, task: Task) -> Point:
        """Where the episodes of a task begin; it is planted once."""
        return plant(self._tree, self._policy, self._world, [task])[0]

    def open(self, task: Task) -> Callable[[int], Opened[Candidate]]:
        """What an episode's number, the draw, opens: writer, critics and oracle of the task."""
        root = self.root(task)
        home = task_from_json(task.data)
        feedback = self._brief if self._world.wording == "small" else _feedback

        def draw(number: int) -> Opened[Candidate]:
            write = TreeWriter(
                root, self._policy, self._settings, seed=self._seed, draw=number, feedback=feedback,
                unit="seconds",
            )  # fmt: skip
            named = {name: _check(home, name, one, self._tree) for name, one in self._critics.items()}
            return write, named, _check(home, "hidden", checks.hidden_tests, self._tree)

        return draw

    def _brief(self, told: Sequence[CriticVerdict]) -> str:
        failed = [one.critic for one in told if one.verdict.passed is False and one.critic in self._critics]
        return "\n".join(f"{name}: failed" for name in failed) or _UNTOLD


def critic_name(spec: str) -> str:
    """What a critic is called in records: a registered name, or what follows the file or module."""
    return spec.rpartition(":")[2]


def syntax(task: RepairTask, files: Mapping[str, str]) -> checks.Verdict:
    """Whether every file compiles."""
    return checks.syntax(files)


def ruff(task: RepairTask, files: Mapping[str, str]) -> checks.Verdict:
    """Whether ruff finds nothing in the changed files that it did not find before."""
    return checks.ruff(files, task.files)


def public(task: RepairTask, files: Mapping[str, str]) -> checks.Verdict:
    """Whether the task's few public tests pass."""
    return checks.public_tests(task, files)


def repair_only(world: World) -> RepairWorld:
    """The world, where its candidates have critics here. Raises CannotDo for any but repair."""
    if isinstance(world, RepairWorld):
        return world
    raise CannotDo(
        f"world {world.name!r} has no critics for the gate",
        hint="repair has; for work of your own give callables in Python: docs/methods/gate-live.md",
    )


def collect_repairs(
    path: Path,
    tree: Tree,
    world: World,
    policy: Acting,
    settings: Sampling = SETTINGS,
    *,
    split: Split = "train",
    tasks: int = 40,
    draws: int = 1,
    steps: int = 3,
    seed: int = 0,
    critics: Sequence[str] = (),
    failed: Callable[[ServerError], None] | None = None,
    progress: Progress = silent,
) -> list[Record]:
    """Calibration records of a writer on tasks of the repair world, into JSON lines; costs are in seconds.

    ``critics``: names of ``refork.critics`` or files; none: :data:`CRITICS`. ``failed`` is told of what a
    writer failed where that cut its chain short.

    Raises: CannotDo for another world; BadInput for a file that was collected otherwise; ServerError where
    the writer gave nothing at all.
    """
    place, critics = repair_only(world), critics or CRITICS
    bench = RepairBench(tree, place, policy, settings, seed=seed, critics=critics)
    others = "" if tuple(critics) == CRITICS else f" critics {' '.join(critics)}"
    opened = {task.id: bench.open(task) for task in place.tasks(split, tasks, seed)}
    card = policy.card
    return collect_file(
        path, opened, lambda one: one.digest, unit="seconds", draws=draws, steps=steps, failed=failed,
        source=f"{place.name} {card.name} {(card.weights or '')[:12]} seed {seed} {settings.to_json()}"
        + others,
        progress=progress,
    )  # fmt: skip


def live_repairs(
    tree: Tree,
    world: World,
    policy: Acting,
    setting: Setting,
    settings: Sampling = SETTINGS,
    *,
    split: Split = "held-out",
    tasks: int = 40,
    draws: int = 1,
    seed: int = 0,
    critics: Sequence[str] = (),
    progress: Progress = silent,
) -> LiveRun:
    """Live episodes on tasks of the repair world that the gate's policy was not fitted on.

    ``critics`` as for :func:`collect_repairs`.

    Raises: CannotDo for another world; BadInput for tasks it was fitted on, real seconds against prices in
        another unit, and as :func:`run_live`.
    """
    place = repair_only(world)
    if setting.measured and setting.prices.unit != "seconds":
        raise BadInput(
            f"calls here are measured in seconds, and the prices are in {setting.prices.unit}",
            hint="fit with --unit seconds, or pay the stated prices",
        )
    found = place.tasks(split, tasks, seed)
    refuse_instances(setting.model, (task.id for task in found), "tasks")
    bench = RepairBench(tree, place, policy, settings, seed=seed, critics=critics or CRITICS)
    return run_live(tree, bench, found, setting, draws=draws, progress=progress)


def files_of(task: RepairTask, candidate: Candidate, tree: Tree) -> dict[str, str] | None:
    """The package with the edits of a candidate's trajectory; None where its last turn is no edit."""
    files = dict(task.files)
    said = [step.node.text for step in tree.path(candidate.point) if step.node.kind == "action"]
    for number, text in enumerate(said, 1):
        try:
            files = edited(files, task.path, text)
        except EditError:
            # An earlier turn that was no edit changed nothing; only the last one is the candidate itself.
            if number == len(said) and not _submits(text):
                return None
    return files


def _submits(text: str) -> bool:
    return (text.strip().split("\n") or [""])[-1].strip().lower() == "submit"


def _check(task: RepairTask, name: str, critic: Critic, tree: Tree) -> Check[Candidate]:
    def check(candidate: Candidate) -> Verdict:
        files = files_of(task, candidate, tree)
        if files is None:
            return Verdict(False, 0.0, "the turn is no edit")
        started = time.perf_counter()
        found = critic(task, files)
        if isinstance(found, bool):
            found = checks.Verdict(found, time.perf_counter() - started)
        if not isinstance(found, checks.Verdict):
            raise BadInput(
                f"critic {name!r} said {found!r}",
                hint="a bool, or refork_testbed.worlds.repair.critics.Verdict",
            )
        return Verdict(found.passed, found.seconds, found.note.split("\n", 1)[0])

    return check


def _feedback(told: Sequence[CriticVerdict]) -> str:
    lines = [f"{one.critic}: {one.verdict.reason}" for one in told if one.verdict.passed is False]
    return "\n".join(lines or [_UNTOLD])
