"""Which files of the repository an import means: JavaScript, TypeScript, Go, Java, Rust, C and C++."""

from __future__ import annotations

import json
import posixpath
import re
from collections.abc import Mapping
from typing import Any, final

from refork_methods.localize.facts import FileFacts, Import
from refork_methods.localize.snapshot import Snapshot

# Which files of the repository a JavaScript or TypeScript import means.

_SUFFIXES = (".ts", ".tsx", ".d.ts", ".mts", ".cts", ".js", ".jsx", ".mjs", ".cjs")
#: A specifier with an output's suffix means the source it is made from.
_SOURCES = {".js": (".ts", ".tsx"), ".jsx": (".tsx",), ".mjs": (".mts",), ".cjs": (".cts",)}
# Strings are matched as well, so that the slashes of a URL begin no remark.
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
        # Bundlers take options behind the path, such as ``./icon.svg?raw``.
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
    # The compiler takes the pattern with the longest text before its star.
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


# Which files of the repository an import of Go, Java, Rust, C or C++ means.

_MODULE = re.compile(r"^\s*module\s+\"?([^\s\"]+)", re.MULTILINE)
_CRATE = re.compile(r"^\s*name\s*=\s*[\"']([\w-]+)[\"']", re.MULTILINE)


@final
class OtherImports:
    """Resolves imports by each language's own layout; what lies outside the repository means nothing."""

    def __init__(self, files: Mapping[str, FileFacts], snapshot: Snapshot) -> None:
        self._files = files
        self._folders: dict[str, list[str]] = {}
        self._by_base: dict[str, list[str]] = {}
        for path in files:
            self._folders.setdefault(posixpath.dirname(path), []).append(path)
            self._by_base.setdefault(posixpath.basename(path), []).append(path)
        self._script = ScriptImports(files, snapshot)
        self._go = _declared(snapshot, "go.mod", _MODULE)
        # A crate is declared with hyphens and used with underscores.
        self._crates = {
            name.replace("-", "_"): folder for folder, name in _declared(snapshot, "Cargo.toml", _CRATE)
        }
        self._packages: dict[str, list[str]] = {}
        for path, facts in files.items():
            if facts.language == "java":
                told = next((one.module for one in facts.imports if one.kind == "package"), "")
                self._packages.setdefault(told, []).append(path)

    def targets(self, path: str, statement: Import) -> dict[str, tuple[str, ...]]:
        """Files that an import in a file means -> the names it takes from them."""
        language = self._files[path].language
        names = tuple(name for name, _ in statement.names if name not in ("default", "*"))
        if language in ("javascript", "typescript", "tsx"):
            found = self._script.find(path, statement.module)
        elif language == "go":
            found, names = self._go_package(statement.module), ()
        elif language == "java":
            found = self._java(statement)
        elif language == "rust":
            found = self._rust(path, statement)
        elif language in ("c", "cpp"):
            found, names = self._include(path, statement), ()
        else:
            found = []
        return {target: names for target in sorted(set(found)) if target != path}

    def _go_package(self, module: str) -> list[str]:
        """The package's files without its tests; the longest module path that fits decides."""
        for folder, name in sorted(self._go, key=lambda one: -len(one[1])):
            if module == name or module.startswith(name + "/"):
                inside = posixpath.join(folder, module[len(name) + 1 :]).rstrip("/")
                return [
                    p
                    for p in self._folders.get(inside, ())
                    if p.endswith(".go") and not p.endswith("_test.go")
                ]
        return []

    def _java(self, told: Import) -> list[str]:
        if told.kind == "package":
            return []
        if told.kind == "star" and told.module in self._packages:
            return list(self._packages[told.module])
        parts = told.module.split(".")
        for size in range(len(parts), 0, -1):  # the last names may be classes inside a class
            package, name = ".".join(parts[: size - 1]), parts[size - 1] + ".java"
            found = [path for path in self._packages.get(package, ()) if posixpath.basename(path) == name]
            if found:
                return found
        return []

    def _include(self, path: str, told: Import) -> list[str]:
        """Beside the file for quotes; else below a folder above or its include folder; else the only tail."""
        beside = posixpath.normpath(posixpath.join(posixpath.dirname(path), told.module))
        if told.level and beside in self._files:
            return [beside]
        wanted = posixpath.normpath(told.module)
        if wanted.startswith(".."):
            return []
        tail = "/" + wanted
        fits = [p for p in self._by_base.get(posixpath.basename(wanted), ()) if ("/" + p).endswith(tail)]
        above = posixpath.dirname(path)
        while fits:  # the nearest folder above, or its include or src folder
            for inner in ("", "include", "inc", "src"):
                here = posixpath.normpath(posixpath.join(above, inner, wanted))
                if here in fits:
                    return [here]
            if not above:
                break
            above = posixpath.dirname(above)
        return fits if len(fits) == 1 else []

    def _rust(self, path: str, told: Import) -> list[str]:
        if told.kind == "mod":
            folder = posixpath.dirname(path)
            if told.names:
                return self._first(posixpath.normpath(posixpath.join(folder, told.names[0][0])))
            return self._first(*_module_files(posixpath.join(_inner_folder(path), told.module)))
        parts = told.module.split("::")
        source = self._crate_source(path)
        if parts[0] == "crate":
            return self._walk(source, parts[1:])
        if parts[0] in ("self", "super"):
            here = _inner_folder(path)
            while parts and parts[0] in ("self", "super"):
                here = posixpath.dirname(here) if parts.pop(0) == "super" else here
            return self._walk(here, parts)
        if parts[0] in self._crates:
            return self._walk(posixpath.join(self._crates[parts[0]], "src"), parts[1:])
        return self._walk(_inner_folder(path), parts, near=True)

    def _walk(self, folder: str, parts: list[str], near: bool = False) -> list[str]:
        """The file of the longest beginning of a module path; the module itself where no part is a file."""
        for size in range(len(parts), 0, -1):
            found = self._first(*_module_files(posixpath.join(folder, *parts[:size])))
            if found:
                return found
        if near:
            return []
        own = (f"{folder}/lib.rs", f"{folder}/main.rs", f"{folder}/mod.rs", f"{folder}.rs")
        return self._first(*(name.lstrip("/") for name in own))

    def _crate_source(self, path: str) -> str:
        folder = posixpath.dirname(path)
        while True:
            if (
                any(posixpath.join(folder, name) in self._files for name in ("lib.rs", "main.rs"))
                or not folder
            ):
                return folder
            folder = posixpath.dirname(folder)

    def _first(self, *paths: str) -> list[str]:
        return next(([path] for path in paths if path in self._files), [])


def _module_files(stem: str) -> tuple[str, str]:
    return f"{stem}.rs", f"{stem}/mod.rs"


def _inner_folder(path: str) -> str:
    """Where a Rust file's own submodules lie."""
    folder, name = posixpath.split(path)
    return (
        folder
        if name in ("lib.rs", "main.rs", "mod.rs")
        else posixpath.join(folder, name.removesuffix(".rs"))
    )


def _declared(snapshot: Snapshot, name: str, pattern: re.Pattern[str]) -> list[tuple[str, str]]:
    """(folder, declared name) of every file of a name that declares one."""
    out: list[tuple[str, str]] = []
    for path in snapshot.files:
        if posixpath.basename(path) == name:
            told = pattern.search(snapshot.text(path))
            if told is not None:
                out.append((posixpath.dirname(path), told[1]))
    return out
