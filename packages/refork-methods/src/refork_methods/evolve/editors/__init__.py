"""Editors and judges of a directory of prompts or code: any chat model, or any command in a sandbox."""

from refork_methods.evolve.editors.by_chat import ChatDrafter
from refork_methods.evolve.editors.by_command import CommandDrafter
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
from refork_methods.evolve.editors.seen import Seen, seen
from refork_methods.evolve.editors.world import Bench, open_folder

__all__ = [
    "Artifacts",
    "Bench",
    "ChatDrafter",
    "ChatRunner",
    "CommandDrafter",
    "Edit",
    "EditResult",
    "Example",
    "FolderEditor",
    "FolderLimits",
    "Judgement",
    "PartJudge",
    "Seen",
    "ShellRunner",
    "Task",
    "diff",
    "open_folder",
    "read_folder",
    "read_lines",
    "read_verdict",
    "seen",
    "write_folder",
]
