"""Any command as the editor: it changes a copy of the directory in a sandbox without network."""

from __future__ import annotations

import json
from typing import Final, final

from refork.errors import BadInput
from refork.plain import content_hash
from refork.sandbox.shell import Shell, ShellState
from refork_methods.evolve.editors.editor_view import EditorView
from refork_methods.evolve.editors.edits import EditResult

#: Where the copy and what the editor is told lie in the sandbox.
FOLDER: Final = "workspace"
TASK_FILE: Final = "told.json"


@final
class CommandDrafter:
    """Runs ``command`` in the copy, under the shell's limits; what it leaves there is the draft.

    The command finds the files in its folder, the lineage's scores in ``$REFORK_TOLD`` and the step's number
    in ``$REFORK_STEP``. It reaches no network and no other file; where it fails, takes too long or leaves a
    link, the draft is refused.
    """

    def __init__(self, shell: Shell, command: str) -> None:
        if not command.strip():
            raise BadInput("an editor's command is empty", hint="such as python3 mutate.py")
        self._shell, self._command = shell, command

    @property
    def name(self) -> str:
        """With the command's digest."""
        return f"command:{content_hash(self._command)[:8]}"

    def draft(self, view: EditorView, step: int) -> EditResult:
        """What the command left."""
        files = {f"{FOLDER}/{path}": text for path, text in view.files.items()}
        state = ShellState.of_files({**files, TASK_FILE: json.dumps(view.to_json(), indent=1)}, [FOLDER])
        # RAMIFY_*: commands written while the package was called Ramify read them.
        path = f'"$HOME/{TASK_FILE}"'
        names = f"REFORK_TOLD={path} REFORK_STEP={step} RAMIFY_TOLD={path} RAMIFY_STEP={step}"
        head = f"cd {FOLDER} && export {names} && "
        # The brace is on a line of its own: a comment at the end of the command would swallow it.
        ran = self._shell.run(state, f"{head}{{ {self._command}\n}}")
        said = ran.output.strip()[-500:]
        if ran.ended != "exit" or ran.status != 0:
            why = {"time": "it took too long", "output": "it said too much", "lost": "its process was lost"}
            return EditResult(None, said, why.get(ran.ended, f"it ended with status {ran.status}"))
        try:
            return EditResult(files_left(ran.state, FOLDER), said)
        except BadInput as error:
            return EditResult(None, said, f"{error.where}: {error.what}")


def files_left(state: ShellState, folder: str) -> dict[str, str]:
    """Files under a folder of a sandbox, by their path in it.

    Raises: BadInput for a link, a second name of a file, or bytes that are no UTF-8.
    """
    found: dict[str, str] = {}
    for entry in state.entries:
        path = entry.path.removeprefix(f"{folder}/")
        if path == entry.path or entry.kind == "folder":
            continue
        if entry.kind != "file":
            raise BadInput("a link in a workspace is refused, wherever it leads", where=path)
        # The sandbox hands bytes that are no UTF-8 over as lone surrogates.
        if any("\ud800" <= letter <= "\udfff" for letter in entry.text):
            raise BadInput("it is no UTF-8 text", where=path)
        found[path] = entry.text
    return found
