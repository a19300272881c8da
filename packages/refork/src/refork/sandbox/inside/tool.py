"""Runs one tool's source in a namespace of its own, in the process that will be thrown away afterwards."""

from __future__ import annotations

import builtins
import importlib
import types
from collections.abc import Callable
from typing import Any, final

from refork.sandbox.inside.names import BUILTINS, MODULES

FILE = "<tool>"
#: Modules that the interpreter itself asks for when an allowed function is first used, by when no file can be
#: opened. It takes them from what is loaded; a tool that imports them is given an empty one.
LOADED_LATER = ("_strptime", "time", "unicodedata")
LONGEST = 2000  # characters of an error that are told


class CallFailedError(Exception):
    """An environment function or another tool failed; the text says how."""


@final
class Proxy:
    """``apis.app.function(keyword=...)``, ``tools.name(keyword=...)``: each call asks the parent."""

    def __init__(self, ask: Callable[[str, dict[str, Any]], Any], parts: tuple[str, ...], depth: int) -> None:
        self._ask, self._parts, self._depth = ask, parts, depth

    def __getattr__(self, name: str) -> Any:
        parts = (*self._parts, name)
        if len(parts) < self._depth:
            return Proxy(self._ask, parts, self._depth)

        def function(*positional: Any, **keywords: Any) -> Any:
            if positional:
                raise TypeError(f"{'.'.join(parts)} takes keyword arguments only")
            return self._ask(".".join(parts), keywords)

        return function


def modules() -> dict[str, types.ModuleType]:
    """Look-alikes of the allowed modules that hold the allowed names and nothing else."""
    found = {}
    for name in LOADED_LATER:
        importlib.import_module(name)
    for name, parts in MODULES.items():
        real = importlib.import_module(name)
        found[name] = types.ModuleType(name)
        found[name].__dict__.update({part: getattr(real, part) for part in parts if hasattr(real, part)})
    return found


def restricted(known: dict[str, types.ModuleType]) -> dict[str, Any]:
    """The built-in functions of a tool; its import finds only ``known`` modules."""

    def importer(
        name: str, globals_: Any = None, locals_: Any = None, parts: Any = (), level: int = 0
    ) -> Any:
        if not level and name in LOADED_LATER:
            return types.ModuleType(name)
        if level or name not in known:
            raise ImportError(f"{name!r} is not on the list of modules that a tool may import")
        return known[name]

    allowed = {name: getattr(builtins, name) for name in BUILTINS if name != "print"}
    return {**allowed, "print": lambda *values, **options: None, "__import__": importer}


def run(
    job: dict[str, Any], space: dict[str, Any], ask: Callable[[str, dict[str, Any]], Any]
) -> dict[str, Any]:
    """The answer frame of a job: ``{"ok": value}`` or ``{"error": text, "kind": "error" or "memory"}``.

    ``job`` has ``source``, ``name`` and ``arguments``; arguments of None only load the tool, and the answer
    tells whether ``name`` is a function.
    """
    try:
        exec(compile(job["source"], FILE, "exec", dont_inherit=True), space)
        function = space.get(job["name"])
        if not isinstance(function, types.FunctionType):
            return {"error": f"the source defines no function {job['name']!r}", "kind": "error"}
        if job["arguments"] is None:
            return {"ok": None}
        return {"ok": function(Proxy(ask, (), 2), Proxy(ask, ("tools",), 2), **job["arguments"])}
    except MemoryError:
        return {"error": "it asked for more memory than it may have", "kind": "memory"}
    except BaseException as error:
        return {"error": _error_text(error), "kind": "error"}


def _error_text(error: BaseException) -> str:
    """Type, text and line in the tool's source of an error."""
    line, trace = None, error.__traceback__
    while trace is not None:
        if trace.tb_frame.f_code.co_filename == FILE:
            line = trace.tb_lineno
        trace = trace.tb_next
    place = "" if line is None else f" (line {line})"
    return f"{type(error).__name__}: {error}"[:LONGEST] + place
