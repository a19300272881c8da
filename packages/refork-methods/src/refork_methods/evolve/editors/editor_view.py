"""What an editor is told: its lineage's own files and scores. Nothing of an anchor is in an archive."""

from __future__ import annotations

from dataclasses import dataclass
from typing import final

from refork.types import Json
from refork_methods.evolve.archive import Archive
from refork_methods.evolve.editors.folder import files_of


@final
@dataclass(frozen=True, slots=True)
class RoleScore:
    """Valid outcomes of one node in one role: how many were 1, of how many."""

    role: str
    passed: int
    measured: int


@final
@dataclass(frozen=True, slots=True)
class Ancestor:
    """A node of the lineage: its number, what changed in it, and its scores, sorted by role."""

    node: int
    diff: str
    scores: tuple[RoleScore, ...]


@final
@dataclass(frozen=True, slots=True)
class EditorView:
    """All that an editor is told: the files to change, and the lineage from the root to their node."""

    files: dict[str, str]
    lineage: tuple[Ancestor, ...]

    @property
    def scores(self) -> tuple[RoleScore, ...]:
        """The scores of the node itself; empty where nothing was measured, or all was erased."""
        return self.lineage[-1].scores

    def to_json(self) -> Json:
        """The lineage as plain JSON, for a file or a prompt."""
        return {"lineage": [
            {"node": one.node, "diff": one.diff, "scores": {
                score.role: {"passed": score.passed, "measured": score.measured} for score in one.scores}}
            for one in self.lineage
        ]}  # fmt: skip


def editor_view(archive: Archive, parent: int, generations: int = 5) -> EditorView:
    """What the editor of a node is told: the newest ``generations`` of its line.

    Scores are of valid records alone: what a displaced judge said is told to nobody. Tasks are not named,
    and examinations are left out: how often a judge was right on an anchor would leak it, bit by bit.
    """
    line = [parent]
    while archive.parents[line[0]] >= 0 and len(line) < generations:
        line.insert(0, archive.parents[line[0]])
    counts: dict[int, dict[str, list[int]]] = {node: {} for node in line}
    for record in archive.records:
        if record.node in counts:
            tally = counts[record.node].setdefault(record.cell.role, [0, 0])
            tally[0] += record.outcome
            tally[1] += 1
    lineage = tuple(
        Ancestor(
            node,
            str(archive.workspaces[node].get("diff", "")),
            tuple(RoleScore(role, *pair) for role, pair in sorted(counts[node].items())),
        )
        for node in line
    )
    return EditorView(files_of(archive.workspaces[parent]), lineage)
