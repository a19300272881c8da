"""Which files of the repository a JavaScript or TypeScript import means."""

from __future__ import annotations

import json
import posixpath
import re
from collections.abc import Mapping
from typing import Any, final

from refork_methods.localize.facts import FileFacts
from refork_methods.localize.snapshot import Snapshot

_SUFFIXES = (".ts", ".tsx", ".d.ts", ".mts", ".cts", ".js", ".jsx", ".mjs", ".cjs")
#: A specifier with an output's suffix means the source it is made from.
_SOURCES = {".js": (".ts", ".tsx"), ".jsx": (".tsx",), ".mjs": (".mts",), ".cjs": (".cts",)}
_REMARKS = re.compile(r"(\"(?:[^\"\\]|\\.)*\")|//[^\n]*|/\*.*?\*/", re.DOTALL)
_TRAILING = re.compile(r",(\s*[}\]])")


@final
class ScriptImports:
    """Relative specifiers, aliases of ``tsconfig.json`` and ``jsconfig.json``, packages of the workspace."""

    def __init__(self, files: Mapping[str, FileFacts], snapshot: Snapshot) -> None:
        self._files = files
        self._aliases: dict[str, list[tuple[str, str]]] = {}
        self._packages: dict[str, tuple[str, Any]] = {}
        for path in snapshot.files:
            base, folder = posixpath.basename(path), posixpath.dirname(path)
            if base in ("tsconfig.json", "jsconfig.json"):
                self._aliases[folder] = _aliases(folder, _loose(snapshot.text(path)))
            elif base == "package.json":
                told = _loose(snapshot.text(path))
                if isinstance(told.get("name"), str):
                    self._packages[told["name"]] = (folder, told)

    def find(self, path: str, module: str) -> list[str]:
        """The file that a specifier means; empty where it is a package from elsewhere."""
        module = module.split("?", 1)[0]
        if module.startswith("."):
            return self._file(posixpath.normpath(posixpath.join(posixpath.dirname(path), module)))
        folder = posixpath.dirname(path)
        while True:
            for pattern, target in self._aliases.get(folder, ()):
                rest = _fits(pattern, module)
                found = (
                    self._file(posixpath.normpath(target.replace("*", rest, 1))) if rest is not None else []
                )
                if found:
                    return found
            if not folder:
                break
            folder = posixpath.dirname(folder)
        return self._package(module)

    def _package(self, module: str) -> list[str]:
        name = "/".join(module.split("/")[: 2 if module.startswith("@") else 1])
        if name not in self._packages:
            return []
        folder, told = self._packages[name]
        rest = module[len(name) + 1 :]
        if rest:
            return self._file(posixpath.join(folder, rest)) or self._file(posixpath.join(folder, "src", rest))
        told_main = [told.get(key) for key in ("source", "types", "module", "main")]
        mains = [main for main in told_main if isinstance(main, str)]
        for main in (*mains, "src/index", "index", "lib/index"):
            found = self._file(posixpath.normpath(posixpath.join(folder, main)))
            if found:
                return found
        return []

    def _file(self, stem: str) -> list[str]:
        if stem.startswith(".."):
            return []
        if stem in self._files:
            return [stem]
        body, suffix = posixpath.splitext(stem)
        tries = [body + source for source in _SOURCES.get(suffix, ())]
        tries += [stem + end for end in _SUFFIXES]
        tries += [posixpath.join("" if stem == "." else stem, "index" + end) for end in _SUFFIXES]
        return next(([one] for one in tries if one in self._files), [])


def _aliases(folder: str, told: Any) -> list[tuple[str, str]]:
    """(pattern, target) of the compiler's paths, the most exact first, a base folder last."""
    options = told.get("compilerOptions")
    options = options if isinstance(options, dict) else {}
    base = options.get("baseUrl")
    top = posixpath.normpath(posixpath.join(folder, base)) if isinstance(base, str) else folder
    out: list[tuple[str, str]] = []
    paths = options.get("paths")
    for pattern, targets in (paths if isinstance(paths, dict) else {}).items():
        for target in targets if isinstance(targets, list) else ():
            if isinstance(target, str):
                out.append((pattern, posixpath.join("" if top == "." else top, target)))
    out.sort(key=lambda one: -len(one[0].split("*", 1)[0]))
    if isinstance(base, str):
        out.append(("*", posixpath.join("" if top == "." else top, "*")))
    return out


def _fits(pattern: str, module: str) -> str | None:
    """What the star of a pattern stands for in a specifier; None where it does not fit."""
    before, star, after = pattern.partition("*")
    if not star:
        return "" if module == pattern else None
    if len(module) < len(before) + len(after) or not module.startswith(before) or not module.endswith(after):
        return None
    return module[len(before) : len(module) - len(after) if after else None]


def _loose(text: str) -> Any:
    """A settings file with remarks and trailing commas as a dictionary; empty where it is broken."""
    plain = _TRAILING.sub(r"\1", _REMARKS.sub(lambda found: found[1] or "", text.removeprefix("\ufeff")))
    try:
        told = json.loads(plain)
    except ValueError:
        return {}
    return told if isinstance(told, dict) else {}
