"""Editors and judges of a directory of prompts or code: any chat model, or any command in a sandbox."""

from refork.discover.evolve.editors.by_chat import ChatDrafter
from refork.discover.evolve.editors.by_command import CommandDrafter
from refork.discover.evolve.editors.edits import Draft, Edit, FolderEditor
from refork.discover.evolve.editors.folder import FolderLimits, diff, read_folder, write_folder
from refork.discover.evolve.editors.judges import (
    ChatRunner,
    Judgement,
    PartJudge,
    ShellRunner,
    read_verdict,
)
from refork.discover.evolve.editors.material import Artifacts, Example, Task, read_lines
from refork.discover.evolve.editors.seen import Seen, seen
from refork.discover.evolve.editors.world import Bench, open_folder

__all__ = [
    "Artifacts",
    "Bench",
    "ChatDrafter",
    "ChatRunner",
    "CommandDrafter",
    "Draft",
    "Edit",
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
