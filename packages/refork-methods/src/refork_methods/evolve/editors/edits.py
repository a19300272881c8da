"""What became of each edit: a child, or why there is none."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol, TypeAlias, final

from refork.errors import BadInput
from refork.types import Json
from refork_methods.evolve.archive import Archive
from refork_methods.evolve.editors.editor_view import EditorView, editor_view
from refork_methods.evolve.editors.folder import AGENT, JUDGE, Files, check_files, diff, part_of, workspace


@final
@dataclass(frozen=True, slots=True)
class EditResult:
    """What an editor came to: changed files and a word on them, or ``refused``, why there are none."""

    files: dict[str, str] | None
    note: str = ""
    refused: str = ""


@final
@dataclass(frozen=True, slots=True)
class Edit:
    """One edit, for the record: of which node, at which step, by whom; a diff, or why it is invalid."""

    step: int
    parent: int
    by: str
    diff: str
    note: str
    refused: str


#: Told of every edit, also of those that came to nothing.
Listener: TypeAlias = Callable[[Edit], None]


class Drafter(Protocol):
    """Writes changed files from what it is told."""

    @property
    def name(self) -> str:
        """Who edits, for the record."""
        ...

    def draft(self, view: EditorView, step: int) -> EditResult:
        """Changed files; ``step`` seeds whatever is random."""
        ...


def ignore(edit: Edit) -> None:
    """A listener that keeps nothing."""


@final
class FolderEditor:
    """An editor of directories: a drafter's files are checked, held against the parent's, and diffed.

    ``fixed``: paths that an edit may not touch, such as a test or a driver. Every edit, valid or not, is told
    to ``listener``; an edit that changes nothing, or leaves no agent or judge, is invalid.
    """

    def __init__(
        self,
        drafter: Drafter,
        *,
        fixed: frozenset[str] = frozenset(),
        listener: Listener = ignore,
    ) -> None:
        self._drafter, self._fixed, self._listener = drafter, fixed, listener

    def edit(self, archive: Archive, parent: int, step: int) -> Json | None:
        """A child of a node's directory; None where the edit is invalid."""
        told = editor_view(archive, parent)
        draft = self._drafter.draft(told, step)
        refused, changed = draft.refused, ""
        if draft.files is not None and not refused:
            try:
                child = check_files(draft.files)
                refused = self._touched(told.files, child)
                changed = diff(told.files, child)
            except BadInput as error:
                refused = error.what if error.where is None else f"{error.where}: {error.what}"
            else:
                refused = refused or ("" if changed else "nothing was changed")
        elif not refused:
            refused = "there is no draft"
        name = self._drafter.name
        self._listener(Edit(step, parent, name, changed, draft.note, refused))
        return None if refused else workspace(child, name, draft.note, changed)

    def _touched(self, before: Files, after: Files) -> str:
        gone = sorted(path for path in self._fixed if before.get(path) != after.get(path))
        if gone:
            return f"{gone[0]} may not be changed"
        lost = [name for name in (AGENT, JUDGE) if part_of(before, name) and not part_of(after, name)]
        return f"it leaves no file of the {lost[0]}" if lost else ""
