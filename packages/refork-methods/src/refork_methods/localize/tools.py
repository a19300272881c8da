"""The tools a model or a script explores a repository with: read-only, and the same answer every time."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, final

from refork.errors import UserError
from refork.types import Json
from refork_methods.localize.connected import connected
from refork_methods.localize.facts import ToolResult
from refork_methods.localize.index import RepoIndex
from refork_methods.localize.search import MOST_HITS, search
from refork_methods.localize.snapshot import Snapshot
from refork_methods.localize.symbols import symbols
from refork_methods.localize.tree_tool import tree
from refork_methods.localize.view import CAP, view_file


@final
class RepoTools:
    """View, search, tree, connected and symbols over one snapshot.

    ``root``: a directory, an open snapshot, or an index of one. A question that cannot be answered is no
    exception but an answer whose ``error`` says why and what may have been meant.

    Raises: BadInput where a directory cannot be opened.
    """

    def __init__(self, root: str | Path | Snapshot | RepoIndex) -> None:
        self._index = root if isinstance(root, RepoIndex) else None
        if isinstance(root, RepoIndex):
            self.snapshot = root.snapshot
        else:
            self.snapshot = root if isinstance(root, Snapshot) else Snapshot(root)

    snapshot: Snapshot
    """What the tools answer from."""

    @property
    def index(self) -> RepoIndex:
        """Symbols and imports, read when they are first asked for."""
        if self._index is None:
            self._index = RepoIndex.build(self.snapshot, words=False)
        return self._index

    def view_file(self, path: str, start: int = 1, end: int | None = None) -> ToolResult:
        """Numbered lines of a file, 250 at most, with the total."""
        return _answer(lambda: view_file(self.snapshot, path, start, end))

    def search(self, text: str, path_glob: str | None = None, max_hits: int = 50) -> ToolResult:
        """Lines that hold a literal text, with a line of context, and how many are not shown."""
        return _answer(lambda: search(self.snapshot, text, path_glob, max_hits))

    def tree(self, path: str = ".", depth: int = 2) -> ToolResult:
        """Folders and files, with counts for what is folded."""
        return _answer(lambda: tree(self.snapshot, path, depth))

    def connected(self, path: str, hops: int = 1) -> ToolResult:
        """Files linked by imports, both directions."""
        return _answer(lambda: connected(self.index, path, hops))

    def symbols(self, path: str | None = None, name: str | None = None) -> ToolResult:
        """Definitions in a file, or of a name."""
        return _answer(lambda: symbols(self.index, path, name))

    def call(self, name: str, arguments: Mapping[str, Any]) -> ToolResult:
        """Answer a tool call as a model makes it; a call that fits no schema is an answer with ``error``."""
        spec = _SPECS.get(name)
        if spec is None:
            return _refused(f"there is no tool {name!r}; there are {', '.join(_SPECS)}")
        why = _misfit(spec, arguments)
        if why is not None:
            return _refused(f"{name}: {why}")
        given = {key: value for key, value in arguments.items() if value is not None}
        made: ToolResult = getattr(self, name)(**given)
        return made

    @staticmethod
    def schemas() -> list[Json]:
        """The tools as OpenAI function schemas."""
        return [
            {
                "type": "function",
                "function": {
                    "name": name,
                    "description": spec["description"],
                    "parameters": {
                        "type": "object",
                        "properties": {key: dict(one) for key, one in spec["properties"].items()},
                        "required": list(spec["required"]),
                        "additionalProperties": False,
                    },
                },
            }
            for name, spec in _SPECS.items()
        ]


def _answer(ask: Callable[[], ToolResult]) -> ToolResult:
    try:
        return ask()
    except UserError as error:
        return _refused(f"{error.what}{f'; {error.hint}' if error.hint else ''}")


def _refused(why: str) -> ToolResult:
    return ToolResult(f"error: {why}\n", error=why)


def _misfit(spec: Json, arguments: Mapping[str, Any]) -> str | None:
    """Why arguments do not fit a tool; None where they do. A null is an argument that is not given."""
    properties = spec["properties"]
    for key, value in arguments.items():
        if key not in properties:
            return f"it takes {', '.join(properties)}, not {key}"
        kind = properties[key]["type"]
        fits = (
            isinstance(value, str)
            if kind == "string"
            else isinstance(value, int) and not isinstance(value, bool)
        )
        if value is not None and not fits:
            return f"{key} is {'a string' if kind == 'string' else 'an integer'}, not {value!r}"
        if fits and kind == "integer" and value < 1:
            return f"{key} is at least 1"
    missing = [key for key in spec["required"] if arguments.get(key) is None]
    return f"{missing[0]} is missing" if missing else None


def _text(description: str) -> Json:
    return {"type": "string", "description": description}


def _number(description: str, most: int | None = None) -> Json:
    limit = {} if most is None else {"maximum": most}
    return {"type": "integer", "minimum": 1, **limit, "description": description}


_PATH = "Path relative to the repository root, with forward slashes."
_SPECS: dict[str, Json] = {
    "view_file": {
        "description": f"Show numbered lines of one file, {CAP} at most per call, and their total.",
        "properties": {
            "path": _text(_PATH),
            "start": _number("First line, counted from 1. Default 1."),
            "end": _number("Last line, included. Default: as many lines as one call shows."),
        },
        "required": ["path"],
    },
    "search": {
        "description": "Find a literal text (no pattern, capitals count) in all files. Gives path:line "
        "of each"
        " line that holds it, with one line of context, and says how many hits were left out.",
        "properties": {
            "text": _text("The text to find, exactly as it stands in the code."),
            "path_glob": _text("Only files that fit, such as '*.py', 'src/**' or 'tests/**/test_*.py'."),
            "max_hits": _number("Hits to show. Default 50.", MOST_HITS),
        },
        "required": ["text"],
    },
    "tree": {
        "description": "List folders and files below a folder. Deeper folders are folded to their counts.",
        "properties": {
            "path": _text("Folder relative to the repository root. Default '.', the root."),
            "depth": _number("Levels to open. Default 2."),
        },
        "required": [],
    },
    "connected": {
        "description": "List the files that a file imports and those that import it, in the repository.",
        "properties": {"path": _text(_PATH), "hops": _number("How many imports away, 1 to 5. Default 1.", 5)},
        "required": ["path"],
    },
    "symbols": {
        "description": "List the classes, functions and variables of a file, or every definition of a name."
        " Give path, name, or both.",
        "properties": {
            "path": _text(_PATH),
            "name": _text("A name such as 'parse' or a dotted one such as 'Parser.parse'."),
        },
        "required": [],
    },
}  # fmt: skip
