"""A call made to fit its tool: aliases, positions, numbers written as text; only where one reading exists."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from functools import lru_cache

from refork.errors import BadInput
from refork.tool_calls import ToolCall
from refork.types import Json
from refork_methods.localize.paths import clean
from refork_methods.localize.tools import RepoTools

#: Names that agents of other harnesses know these tools by.
TOOL_ALIASES = {
    "view": "view_file", "viewfile": "view_file", "read_file": "view_file", "open_file": "view_file",
    "cat": "view_file", "show_file": "view_file", "get_file": "view_file",
    "codebase_search": "search", "search_code": "search", "search_codebase": "search", "grep": "search",
    "find": "search", "search_text": "search",
    "repository_tree": "tree", "repo_tree": "tree", "list_files": "tree", "list_dir": "tree",
    "list_directory": "tree", "ls": "tree",
    "connected_tree": "connected", "connected_files": "connected", "get_connected": "connected",
    "get_symbols": "symbols", "list_symbols": "symbols", "find_symbol": "symbols",
}  # fmt: skip
_PATHS = ("file", "filename", "file_path", "filepath", "file_name", "path_name")
_FOLDERS = ("dir", "directory", "folder", "root", "dir_path")
_TEXTS = ("query", "pattern", "string", "q", "term", "keyword", "search_text", "needle")
_ARGUMENT_ALIASES: dict[str, dict[str, tuple[str, ...]]] = {
    "view_file": {
        "path": _PATHS,
        "start": ("start_line", "line_start", "first", "from", "begin"),
        "end": ("end_line", "line_end", "last", "to", "stop"),
    },
    "search": {
        "text": _TEXTS,
        "path_glob": ("glob", "include", "file_pattern"),
        "max_hits": ("max_results", "limit", "top_k", "n"),
    },
    "tree": {"path": (*_FOLDERS, *_PATHS), "depth": ("max_depth", "levels", "level")},
    "connected": {"path": _PATHS, "hops": ("depth", "max_hops", "distance")},
    "symbols": {"path": _PATHS, "name": ("symbol", "symbol_name", "identifier")},
}
_RANGES = ("range", "view_range", "line_range", "lines")
_DEFAULTS: dict[str, Json] = {
    "view_file": {"start": 1}, "search": {"max_hits": 50}, "tree": {"path": ".", "depth": 2},
    "connected": {"hops": 1}, "symbols": {},
}  # fmt: skip


@lru_cache(maxsize=1)
def _parameters() -> dict[str, dict[str, str]]:
    """Tool -> argument -> type, in the order of the signature."""
    return {
        one["function"]["name"]: {
            key: about["type"] for key, about in one["function"]["parameters"]["properties"].items()
        }
        for one in RepoTools.schemas()
    }


@lru_cache(maxsize=1)
def _required() -> dict[str, tuple[str, ...]]:
    return {
        one["function"]["name"]: tuple(one["function"]["parameters"]["required"])
        for one in RepoTools.schemas()
    }


def tool_named(name: str) -> str | None:
    """The tool that a name or an alias of it stands for; None where there is none."""
    plain = name.strip().strip("`\"'").rpartition(".")[2].lower().replace("-", "_").replace(" ", "_")
    if plain in _parameters():
        return plain
    return TOOL_ALIASES.get(plain)


def fit(name: str, given: object) -> tuple[ToolCall, tuple[str, ...]]:
    """A call that fits its tool, and what had to be repaired for that.

    ``given``: the arguments by name, by position, or the one argument that the tool needs.

    Raises: BadInput where the tool is unknown, or the arguments fit in no way or in several.
    """
    tool = tool_named(name)
    if tool is None:
        raise BadInput(f"there is no tool {name!r}; there are {', '.join(_parameters())}")
    repairs = () if tool == name else (f"tool {name!r} read as {tool!r}",)
    if isinstance(given, Mapping):
        named, also = _named(tool, given)
    else:
        named, also = _positional(tool, given)
    arguments, numbers = _typed(tool, named)
    for key in _required()[tool]:
        if key not in arguments:
            raise BadInput(f"{tool}: {key} is missing")
    return ToolCall(tool, arguments), (*repairs, *also, *numbers)


def canonical(call: ToolCall) -> str:
    """One text for calls that ask the same: defaults left out, keys in order, paths plain."""
    kept: Json = {}
    for key, value in call.arguments.items():
        plain = (clean(value) or ".") if key == "path" and isinstance(value, str) else value
        if value is not None and _DEFAULTS.get(call.name, {}).get(key) != plain:
            kept[key] = plain
    return json.dumps([call.name, kept], sort_keys=True, ensure_ascii=False)


def _named(tool: str, given: Mapping[object, object]) -> tuple[Json, tuple[str, ...]]:
    parameters, aliases = _parameters()[tool], _ARGUMENT_ALIASES[tool]
    found: Json = {}
    repairs: list[str] = []
    for raw, value in given.items():
        key = str(raw)
        if key in _RANGES and tool == "view_file":
            first, last = _range(key, value)
            pairs: list[tuple[str, object]] = [("start", first), ("end", last)]
        else:
            name = key if key in parameters else next((n for n, also in aliases.items() if key in also), None)
            if name is None:
                raise BadInput(f"{tool}: it takes {', '.join(parameters)}, not {key}")
            pairs = [(name, value)]
        if pairs[0][0] != key:
            repairs.append(f"argument {key!r} read as {' and '.join(repr(name) for name, _ in pairs)}")
        for name, one in pairs:
            if one is None:
                continue
            if name in found and found[name] != one:
                raise BadInput(f"{tool}: {name} is given twice, and differently")
            found[name] = one
    return found, tuple(repairs)


def _positional(tool: str, given: object) -> tuple[Json, tuple[str, ...]]:
    parameters = list(_parameters()[tool])
    values = list(given) if isinstance(given, Sequence) and not isinstance(given, str) else [given]
    if len(values) > len(parameters):
        raise BadInput(f"{tool}: {len(values)} arguments for {', '.join(parameters)}")
    # Which of two optional arguments a lone one is would be a guess.
    if values and not _required()[tool] and len(parameters) > 1 and tool != "tree":
        raise BadInput(f"{tool}: name the argument: {' or '.join(parameters)}")
    return dict(zip(parameters, values, strict=False)), ("arguments by position",) if values else ()


def _range(key: str, value: object) -> tuple[int, int]:
    pair = value
    if isinstance(value, str):
        parts = value.replace(":", "-").split("-")
        pair = [int(part) for part in parts if part.strip().isdigit()] if len(parts) == 2 else None
    if not isinstance(pair, Sequence) or len(pair) != 2 or not all(type(n) is int for n in pair):
        raise BadInput(f"view_file: {key} is {value!r}; give start and end")
    return pair[0], pair[1]


def _typed(tool: str, given: Json) -> tuple[Json, tuple[str, ...]]:
    """Whole numbers that stand as text or as floats; every other value of another type is refused."""
    found: Json = {}
    repairs: list[str] = []
    for key, value in given.items():
        kind = _parameters()[tool][key]
        if kind == "string" and not isinstance(value, str):
            raise BadInput(f"{tool}: {key} is a string, not {value!r}")
        if kind == "integer" and (isinstance(value, bool) or not isinstance(value, int)):
            whole = _whole(value)
            if whole is None:
                raise BadInput(f"{tool}: {key} is an integer, not {value!r}")
            repairs.append(f"{key} {value!r} read as a number")
            found[key] = whole
            continue
        found[key] = value
    return found, tuple(repairs)


def _whole(value: object) -> int | None:
    if isinstance(value, str) and len(value) < 10 and value.strip().isdecimal() and value.isascii():
        return int(value)
    if isinstance(value, float) and value.is_integer():
        return int(value)
    return None
