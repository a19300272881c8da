"""What an editor is told: its lineage's own files and scores. Nothing of an anchor is in an archive."""

from __future__ import annotations

from dataclasses import dataclass
from typing import final

from refork.types import Json
from refork_methods.evolve.archive import Archive
from refork_methods.evolve.editors.folder import files_of


@final
@dataclass(frozen=True, slots=True)
class EditorView:
    """All that an editor is told: the files to change, and the lineage from the root to their node.

    Each of the lineage has its ``node``, the ``diff`` that made it, and ``scores`` by role: ``passed`` of
    ``measured``; empty where nothing was measured, or all was erased.
    """

    files: dict[str, str]
    lineage: tuple[Json, ...]

    def to_json(self) -> Json:
        """The lineage as plain JSON, for a file or a prompt."""
        return {"lineage": list(self.lineage)}


def editor_view(archive: Archive, parent: int, generations: int = 5) -> EditorView:
    """What the editor of a node is told: the newest ``generations`` of its line.

    Scores are of valid records alone: what a displaced judge said is told to nobody. Tasks are not named,
    and examinations are left out: how often a judge was right on an anchor would leak it, bit by bit.
    """
    line = [parent]
    while archive.parents[line[0]] >= 0 and len(line) < generations:
        line.insert(0, archive.parents[line[0]])
    counts: dict[int, dict[str, dict[str, int]]] = {node: {} for node in line}
    for record in archive.records:
        if record.node in counts:
            tally = counts[record.node].setdefault(record.cell.role, {"passed": 0, "measured": 0})
            tally["passed"] += record.outcome
            tally["measured"] += 1
    lineage: list[Json] = [
        {"node": node, "diff": str(archive.workspaces[node].get("diff", "")),
         "scores": dict(sorted(counts[node].items()))}
        for node in line
    ]  # fmt: skip
    return EditorView(files_of(archive.workspaces[parent]), tuple(lineage))
