"""The live case that ships: repairs of small Python packages, really checked and really tested.

Candidates are turns of any policy on a tree; their edits add up. Critics are the syntax, ruff and the few
public tests; the oracle is the hidden suite.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import final

from ramify.core.grow.plant import plant
from ramify.core.policy.base import Policy as Acting
from ramify.core.policy.base import Sampling
from ramify.core.tree.tree import Tree
from ramify.core.world.base import Task
from ramify.core.world.repair import critics as checks
from ramify.core.world.repair.edits import EditError, edited
from ramify.core.world.repair.tasks import RepairTask, task_from_json
from ramify.core.world.repair.world import RepairWorld
from ramify.operate.gate.live import Check, Told, Verdict, Writer
from ramify.operate.gate.on_tree import Candidate, TreeWriter

#: The critics of a repair, cheapest first.
CRITICS = ("syntax", "ruff", "public")
#: A turn of a repairer may hold a whole diff.
SETTINGS = Sampling(max_tokens=2048)
_UNTOLD = "not right yet"


@final
class RepairBench:
    """Opens tasks of the repair world for the gate: a writer over the tree, its critics, the hidden suite.

    A verdict's price is its wall time in seconds. A candidate whose text is no edit fails every check. A world
    in the small wording tells the writer which critics failed, not why.
    """

    def __init__(
        self,
        tree: Tree,
        world: RepairWorld,
        policy: Acting,
        settings: Sampling = SETTINGS,
        *,
        seed: int = 0,
        critics: tuple[str, ...] = CRITICS,
    ) -> None:
        self._tree, self._world, self._policy, self._settings = tree, world, policy, settings
        self._seed, self._critics = seed, critics

    def open(
        self, task: Task
    ) -> Callable[[int], tuple[Writer[Candidate], Mapping[str, Check[Candidate]], Check[Candidate]]]:
        """What an episode's number, the draw, opens: writer, critics and oracle of the task."""
        root = plant(self._tree, self._policy, self._world, [task])[0]
        home = task_from_json(task.data)
        feedback = _brief if self._world.wording == "small" else _feedback

        def draw(number: int) -> tuple[Writer[Candidate], Mapping[str, Check[Candidate]], Check[Candidate]]:
            write = TreeWriter(
                root, self._policy, self._settings, seed=self._seed, draw=number, feedback=feedback
            )
            named = {name: _check(home, name, self._tree) for name in self._critics}
            return write, named, _check(home, "hidden", self._tree)

        return draw


def files_of(task: RepairTask, candidate: Candidate, tree: Tree) -> dict[str, str] | None:
    """The package with the edits of a candidate's walk; None where its last turn is no edit."""
    files = dict(task.files)
    said = [step.node.text for step in tree.path(candidate.point) if step.node.kind == "action"]
    for number, text in enumerate(said, 1):
        try:
            files = edited(files, task.path, text)
        except EditError:
            if number == len(said) and not _submits(text):
                return None
    return files


def _submits(text: str) -> bool:
    return (text.strip().split("\n") or [""])[-1].strip().lower() == "submit"


def _check(task: RepairTask, name: str, tree: Tree) -> Check[Candidate]:
    def check(candidate: Candidate) -> Verdict:
        files = files_of(task, candidate, tree)
        if files is None:
            return Verdict(False, 0.0, "the turn is no edit")
        if name == "syntax":
            found = checks.syntax(files)
        elif name == "ruff":
            found = checks.ruff(files, task.files)
        elif name == "public":
            found = checks.public_tests(task, files)
        else:
            found = checks.hidden_tests(task, files)
        return Verdict(found.passed, found.seconds, found.note.split("\n", 1)[0])

    return check


def _feedback(told: Sequence[Told]) -> str:
    lines = [f"{one.critic}: {one.verdict.reason}" for one in told if one.verdict.passed is False]
    return "\n".join(lines or [_UNTOLD])


def _brief(told: Sequence[Told]) -> str:
    failed = [one.critic for one in told if one.verdict.passed is False and one.critic in CRITICS]
    return "\n".join(f"{name}: failed" for name in failed) or _UNTOLD
