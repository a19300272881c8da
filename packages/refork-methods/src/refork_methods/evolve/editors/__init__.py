"""Editors and judges of a directory of prompts or code: any chat model, or any command in a sandbox."""

from refork_methods.evolve.editors.by_chat import ChatDrafter
from refork_methods.evolve.editors.by_command import CommandDrafter
from refork_methods.evolve.editors.editor_view import EditorView, editor_view
from refork_methods.evolve.editors.edits import Edit, EditResult, FolderEditor
from refork_methods.evolve.editors.folder import FolderLimits, diff, read_folder, write_folder
from refork_methods.evolve.editors.judges import (
    ChatRunner,
    Judgement,
    PartJudge,
    ShellRunner,
    read_verdict,
)
from refork_methods.evolve.editors.material import Artifacts, Example, Task, read_lines
from refork_methods.evolve.editors.world import Bench, open_folder

__all__ = [
    "Artifacts",
    "Bench",
    "ChatDrafter",
    "ChatRunner",
    "CommandDrafter",
    "Edit",
    "EditResult",
    "EditorView",
    "Example",
    "FolderEditor",
    "FolderLimits",
    "Judgement",
    "PartJudge",
    "ShellRunner",
    "Task",
    "diff",
    "editor_view",
    "open_folder",
    "read_folder",
    "read_lines",
    "read_verdict",
    "write_folder",
]
