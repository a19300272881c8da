"""A directory with an agent and a judge in it that evolve together: who measures and who examines."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final, final

import numpy as np
from numpy.typing import NDArray

from refork.errors import BadInput
from refork.plain import content_hash, to_json
from refork.types import Json
from refork_methods.evolve.archive import Archive
from refork_methods.evolve.belief import best_beliefs
from refork_methods.evolve.editors.edits import FolderEditor
from refork_methods.evolve.editors.folder import (
    AGENT,
    JUDGE,
    Files,
    files_of,
    part_of,
    read_folder,
    workspace,
)
from refork_methods.evolve.editors.judges import PartJudge, Runner
from refork_methods.evolve.editors.material import Artifacts, Example, Task, check_material
from refork_methods.evolve.promote import RIGHT, UNANSWERED, WRONG, Tally, tally
from refork_methods.evolve.records import Cell, EvaluatorSlot, own_counts
from refork_methods.evolve.search import Runtime

#: The judge's slot.
SLOT = "verdicts"
TEST: Final = "expected answer"
LABELS: Final = "labels"


@final
@dataclass(frozen=True)
class Bench:
    """What measuring takes: who runs the agent and the judge, the tasks, labelled examples, kept artifacts.

    It holds nothing of the anchor.
    """

    agent: Runner
    judge: Runner
    tasks: tuple[Task, ...]
    examples: tuple[Example, ...]
    artifacts: Artifacts
    retries: int = 2

    def judge_of(self, files: Files) -> PartJudge:
        """The judge of a workspace."""
        return PartJudge(self.judge, part_of(files, JUDGE), retries=self.retries)

    def judge_by_id(self, archive: Archive, judge: str) -> PartJudge:
        """The judge of an id; raises BadInput where no node has it."""
        for body in archive.workspaces:
            files = files_of(body)
            # Edits may not take a judge away; a node of a run that began before that may have none.
            if part_of(files, JUDGE) and (found := self.judge_of(files)).id == judge:
                return found
        raise BadInput(f"no node's judge is {judge!r}")


@final
class FolderEvaluator:
    """Runs agents on tasks, and judges on labelled examples.

    ``unanswered`` counts work on which the judge in the slot gave no valid verdict. Such work is not
    accepted; a judge that gives none on a labelled example has it wrong. Work of an agent that failed is
    its message of failure, and judged like any other.
    """

    def __init__(self, bench: Bench) -> None:
        self._bench = bench
        self._tasks = {task.id: task for task in bench.tasks}
        self._examples = {one.id: one for one in bench.examples}
        self.unanswered = 0

    def cells(self, archive: Archive) -> Sequence[Cell]:
        """A cell for every task and every example; the same ones in all epochs."""
        return [
            *(Cell(AGENT, one.id, SLOT if one.expect is None else None) for one in self._bench.tasks),
            *(Cell(JUDGE, one.id) for one in self._bench.examples),
        ]

    def evaluate(self, archive: Archive, node: int, cell: Cell, artifact: str | None) -> tuple[int, str, str]:
        """One outcome, on the cached artifact where there is one."""
        bench, files = self._bench, files_of(archive.workspaces[node])
        if cell.role == JUDGE:
            example = self._examples[cell.task]
            if not part_of(files, JUDGE):
                return 0, LABELS, artifact or f"{node}:{cell.task}:no judge"
            judge = bench.judge_of(files)
            said = judge.judge(example.task, example.artifact).value
            return int(said == example.label), LABELS, artifact or f"{node}:{cell.task}:{judge.id[:12]}"
        task = self._tasks[cell.task]
        if artifact is None:
            artifact = bench.artifacts.keep(node, task.id, self._answer(files, task))
        text = bench.artifacts.text(artifact)
        if cell.slot is None:
            return int(task.passes(text)), TEST, artifact
        holder = archive.slots[cell.slot].judge
        value = bench.judge_by_id(archive, holder).judge(task.text, text).value
        self.unanswered += value is None
        return int(value == 1), holder, artifact

    def _answer(self, files: Files, task: Task) -> str:
        try:
            return self._bench.agent.run(part_of(files, AGENT), task.text)
        except BadInput as error:
            return f"(no answer: {error.what})"


@final
class FolderExaminer:
    """Holds the anchor, alone; examines the judges that are believed best on the labelled examples.

    A judge that has no more of the anchor right than one verdict for all of it has is no challenger, however
    bad the judge in office is; the notes name it (``idle``).

    Judges see an anchor's work, not its label, one at a time; what they say of it goes nowhere but into the
    counts. Work without a valid verdict is unanswered: neither right nor wrong.
    """

    def __init__(self, bench: Bench, anchor: Sequence[Example], challengers: int = 3) -> None:
        check_material(bench.tasks, bench.examples, anchor)
        if challengers < 1:
            raise BadInput(f"challengers is {challengers}; it must be at least 1", where="examiner")
        self._bench, self._anchor, self._challengers = bench, tuple(anchor), challengers
        self._known: dict[str, NDArray[np.int8]] = {}

    @property
    def fingerprint(self) -> str:
        """Digest of the anchor."""
        return content_hash([to_json(item) for item in self._anchor])

    def examine(self, archive: Archive, slot: EvaluatorSlot) -> tuple[Tally, Sequence[Tally], Json]:
        """Counts on the anchor; who is no better than a constant, and how many items each left unanswered."""
        rivals = self._candidates(archive, slot)
        base = self._answers(self._bench.judge_by_id(archive, slot.judge))
        found = {judge.id: self._answers(judge) for judge in rivals}
        silent = {name: int((answers == UNANSWERED).sum()) for name, answers in found.items()}
        good = sum(item.label == 1 for item in self._anchor)
        constant = max(good, len(self._anchor) - good)
        idle = [name for name, answers in found.items() if int((answers == RIGHT).sum()) <= constant]
        notes = {
            "unanswered": {slot.judge: int((base == UNANSWERED).sum()), **silent},
            "constant": constant,
            "idle": idle,
        }
        able = [tally(k, v, base) for k, v in found.items() if k not in idle]
        return tally(slot.judge, base, base), able, notes

    def _answers(self, judge: PartJudge) -> NDArray[np.int8]:
        # Asked once: a model that is asked again may answer otherwise, and the counts would drift.
        if judge.id not in self._known:
            said = [judge.judge(item.task, item.artifact).value for item in self._anchor]
            self._known[judge.id] = np.array([
                UNANSWERED if value is None else RIGHT if value == item.label else WRONG
                for value, item in zip(said, self._anchor, strict=True)
            ], dtype=np.int8)  # fmt: skip
        return self._known[judge.id]

    def _candidates(self, archive: Archive, slot: EvaluatorSlot) -> list[PartJudge]:
        beliefs = best_beliefs(*own_counts(archive.records, len(archive), JUDGE))
        found: dict[str, PartJudge] = {}
        for node in np.argsort(-beliefs, kind="stable"):
            files = files_of(archive.workspaces[int(node)])
            if part_of(files, JUDGE) and len(found) < self._challengers:
                one = self._bench.judge_of(files)
                if one.id != slot.judge:
                    found.setdefault(one.id, one)
        return list(found.values())


@final
@dataclass(frozen=True, slots=True)
class OpenedFolder:
    """What a search needs: the directory as the first workspace, the judge's slot, and the runtime."""

    workspace: Json
    slots: tuple[EvaluatorSlot, ...]
    runtime: Runtime


def open_folder(
    folder: Path, editor: FolderEditor, bench: Bench, anchor: Sequence[Example], *, challengers: int = 3
) -> OpenedFolder:
    """A search over a directory that has an agent and a judge.

    Raises: BadInput where a part is missing, or tasks, examples and anchor cannot be used together.
    """
    files = read_folder(folder)
    for name in (AGENT, JUDGE):
        if not part_of(files, name):
            raise BadInput(f"there is no {name}", where=str(folder), hint=f"such as {name}.md, or {name}/")
    examiner = FolderExaminer(bench, anchor, challengers)
    runtime = Runtime(editor, FolderEvaluator(bench), examiner)
    return OpenedFolder(workspace(files), (EvaluatorSlot(SLOT, bench.judge_of(files).id),), runtime)
