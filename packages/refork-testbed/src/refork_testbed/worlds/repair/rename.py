"""The same project under other names: the control for what names alone give away.

Functions, classes, parameters, variables, attributes, modules and folders of the project get names without
meaning, in code, tests, comments and docstrings. Lines stay where they are. A name that is also an attribute
of built-in types or of an imported module stays where it is used as one.
"""

from __future__ import annotations

import ast
import builtins
import importlib
import io
import keyword
import re
import sys
import tokenize
import types
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cache
from typing import final

from refork.errors import InternalError
from refork.worlds.dice import Dice
from refork_testbed.worlds.repair.mutation import lines
from refork_testbed.worlds.repair.package import Project
from refork_testbed.worlds.repair.projects import project, shared_runner

_LISTS = ("__all__", "__slots__")
_SYLLABLES = [a + b for a in "bdfgklmnprstvz" for b in "aeiou"]
_BUILTIN_TYPES = (str, bytes, bytearray, list, tuple, dict, set, frozenset, int, float, complex, type, object)


@final
@dataclass(frozen=True, slots=True)
class Renaming:
    """Old name -> new name, for ``names`` (not after a dot), ``attributes`` (after one) and ``modules``.

    ``top`` is the package: imports of others are not touched.
    """

    names: Mapping[str, str]
    attributes: Mapping[str, str]
    modules: Mapping[str, str]
    top: str

    def path(self, path: str) -> str:
        """A file's path under its new name; what is not the project's stays."""
        parts = path.removesuffix(".py").split("/")
        if parts[0] == "tests":
            stem = parts[-1].removeprefix("test_")
            known = self.modules.get(
                stem, "_".join(self.modules.get(one, one) for one in _split(stem, self.modules))
            )
            return path if stem in ("support", "__init__") else f"tests/test_{known}.py"
        return "/".join(self.modules.get(part, part) for part in parts) + ".py"

    def test(self, name: str) -> str:
        """A test's name."""
        path, _, function = name.partition("::")
        return f"{self.path(path)}::{self.function(function)}"

    def function(self, name: str) -> str:
        """The name of a test function, which holds that of what it calls."""
        inner, _, number = name.removeprefix("test_").rpartition("_")
        return f"test_{self.names.get(inner, inner)}_{number}"

    def text(self, source: str) -> str:
        """A source under the new names."""
        return "".join(self._pieces(source))

    def _pieces(self, source: str) -> Iterator[str]:
        starts = [0]
        for line in lines(source):
            starts.append(starts[-1] + len(line))
        listed = _listed(source)
        done, before, own = 0, _Before(), False
        for token in tokenize.generate_tokens(io.StringIO(source).readline):
            new = token.string
            if token.type == tokenize.NAME:
                if before.opens and before.string == "from":
                    own = token.string == self.top
                elif token.string == "import":
                    own = False
                new = self._name(token.string, before.string, own)
            elif token.type == tokenize.OP and before.opens and before.string == "from":
                own = token.string in (".", "...")
            elif token.type == tokenize.COMMENT or (
                token.type == tokenize.STRING
                and (before.statement or token.start[0] in listed or token.string.startswith("'raises "))
            ):  # the last: a test that expects an error compares its name
                new = self._prose(token.string)
            elif (
                token.type == tokenize.STRING
                and "f" in token.string[: token.string.index(token.string[-1])].lower()
            ):
                new = _formatted(token.string, self)
            if new != token.string:
                start, end = (starts[row - 1] + column for row, column in (token.start, token.end))
                yield source[done:start]
                yield new
                done = end
            before.see(token)
        yield source[done:]

    def _name(self, name: str, before: str, own: bool) -> str:
        if own:
            return self.modules.get(name, name)
        if name.startswith("test_"):
            return self.function(name)
        return (self.attributes if before == "." else self.names).get(name, name)

    def _prose(self, text: str) -> str:
        return re.sub(
            r"[A-Za-z_]\w{2,}",
            lambda found: self.names.get(found[0], self.modules.get(found[0], found[0])),
            text,
        )


@final
class _Before:
    """The token before: its text, whether it began a statement, and whether one begins now."""

    def __init__(self) -> None:
        self.string, self.opens, self.statement = "", False, True

    def see(self, token: tokenize.TokenInfo) -> None:
        """Go on by one token."""
        if token.type in (tokenize.COMMENT, tokenize.NL):
            return
        ends = token.type in (tokenize.NEWLINE, tokenize.INDENT, tokenize.DEDENT)
        self.string, self.opens, self.statement = token.string, self.statement and not ends, ends


def _listed(source: str) -> frozenset[int]:
    """Lines of statements that list names as text: ``__all__`` and ``__slots__``."""
    found: set[int] = set()
    if not any(name in source for name in _LISTS):  # parsing is slow, and few have any
        return frozenset()
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Assign | ast.AugAssign):
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            if any(isinstance(target, ast.Name) and target.id in _LISTS for target in targets):
                found |= set(range(node.lineno, (node.end_lineno or node.lineno) + 1))
    return frozenset(found)


def _formatted(text: str, renaming: Renaming) -> str:
    """An f-string that is one token (before Python 3.12)."""
    tree = ast.parse(text, mode="eval")
    for node in ast.walk(tree):
        if isinstance(node, ast.Name):
            node.id = renaming.names.get(node.id, node.id)
        elif isinstance(node, ast.Attribute):
            node.attr = renaming.attributes.get(node.attr, node.attr)
        elif isinstance(node, ast.keyword | ast.arg) and node.arg:
            node.arg = renaming.names.get(str(node.arg), str(node.arg))
    return ast.unparse(tree)


def _split(stem: str, modules: Mapping[str, str]) -> list[str]:
    """The modules that a test file's name is made of."""
    # Longest first: one module's name may be the end of another's.
    for name in sorted(modules, key=len, reverse=True):
        if stem == name:
            return [name]
        if stem.endswith(f"_{name}"):
            return [*_split(stem.removesuffix(f"_{name}"), modules), name]
    return [stem]


def renamed_project(home: Project) -> tuple[Project, Renaming]:
    """The project under other names, and the names."""
    return _renamed(home.name)


@cache
def _renamed(name: str) -> tuple[Project, Renaming]:
    home = project(name)
    renaming = renaming_of(home)
    files = {renaming.path(path): renaming.text(text) for path, text in home.files.items()}
    tests = {
        renaming.path(path): text if path == "tests/support.py" else renaming.text(text)
        for path, text in home.tests.items()
    }
    made = replace(
        home,
        name=f"{name}/renamed",
        files=files,
        tests=tests,
        checks={renaming.test(test): check for test, check in home.checks.items()},
        targets=tuple(renaming.path(path) for path in home.targets),
        spectrum={
            renaming.test(test): frozenset((renaming.path(path), line) for path, line in seen)
            for test, seen in home.spectrum.items()
        },
    )
    report = shared_runner().run(made.files, made.tests)
    if not report.ok:
        raise InternalError(f"{made.name} fails its own tests: {list(report.failed.items())[:3]}")
    return made, renaming


def renaming_of(home: Project) -> Renaming:
    """New names for all that a project names itself."""
    trees = [ast.parse(text) for text in home.files.values()]
    defined = [_Defined.of(text) for text in home.files.values()]
    asked = [_Defined.of(text) for text in home.tests.values()]
    outside = _outside(trees)
    attributes = set().union(*(one.attributes for one in defined))
    names = set().union(*(one.names for one in defined)) - attributes
    kept = (
        set(dir(builtins))
        | set(keyword.kwlist)
        | set().union(*(one.kept_names for one in (*defined, *asked)))
    )
    # An attribute may be looked up by text; a function or a variable is not.
    fixed = kept | outside | set().union(*(one.texts for one in (*defined, *asked)))
    own = {name for name in attributes if name not in fixed and not name.startswith("__")}
    plain = {name for name in names if name not in kept and not name.startswith("__")}
    parts = {part for path in home.files for part in path.removesuffix(".py").split("/")} - {"__init__"}
    new = _invented(sorted(plain | own | parts), Dice("repair", "renaming", home.name))
    return Renaming(
        names={name: new[name] for name in sorted(plain | own)},
        attributes={name: new[name] for name in sorted(own)},
        modules={name: new[name] for name in sorted(parts)},
        top=next(iter(home.files)).partition("/")[0],
    )


def _invented(names: Iterable[str], dice: Dice) -> dict[str, str]:
    """A name without meaning for each, all different, in the same style of capitals and underscores."""
    taken: set[str] = set()
    found = {}
    for name in names:
        stem = ""
        while not stem or stem in taken or keyword.iskeyword(stem):
            stem = "".join(dice.choice(_SYLLABLES) for _ in range(3))
        taken.add(stem)
        bare = name.lstrip("_")
        styled = (
            stem.upper() if bare.isupper() and len(bare) > 1 else stem.title() if bare[:1].isupper() else stem
        )
        found[name] = name[: len(name) - len(bare)] + styled
    return found


@final
@dataclass(frozen=True, slots=True)
class _Defined:
    """What a module names: plain names, attributes of its classes, names that must stay, texts like names."""

    names: frozenset[str]
    attributes: frozenset[str]
    kept_names: frozenset[str]
    texts: frozenset[str]

    @classmethod
    def of(cls, source: str) -> _Defined:
        """What a module's text defines and needs."""
        tree, listed = ast.parse(source), _listed(source)
        names: set[str] = set()
        attributes: set[str] = set()
        kept: set[str] = set()
        texts: set[str] = set()
        own = {node.name for node in ast.walk(tree) if isinstance(node, ast.FunctionDef | ast.ClassDef)}
        for node in ast.walk(tree):
            names |= _plain_names(node)
            if isinstance(node, ast.ClassDef):
                attributes |= set(_class_names(node))
            elif isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store):
                attributes.add(node.attr)
            elif isinstance(node, ast.Import | ast.ImportFrom):
                kept |= _imported(node)
            elif isinstance(node, ast.Call):
                callee = node.func.id if isinstance(node.func, ast.Name) else ""
                kept |= {one.arg for one in node.keywords if one.arg and callee not in own}
            elif isinstance(node, ast.Constant) and isinstance(node.value, str) and node.value.isidentifier():
                texts |= {node.value} if node.lineno not in listed else set()
            elif isinstance(node, ast.JoinedStr) and node.lineno != node.end_lineno:
                kept |= {one.id for one in ast.walk(node) if isinstance(one, ast.Name)}
        return cls(frozenset(names), frozenset(attributes), frozenset(kept), frozenset(texts))


def _plain_names(node: ast.AST) -> set[str]:
    """The name that a node binds, where it binds one."""
    if isinstance(node, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
        return {node.name}
    if isinstance(node, ast.arg):
        return {node.arg}
    return {node.id} if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store) else set()


def _class_names(node: ast.ClassDef) -> Iterator[str]:
    for inner in ast.walk(node):
        if isinstance(inner, ast.ClassDef):
            for one in inner.body:
                if isinstance(one, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
                    yield one.name
                elif isinstance(one, ast.Assign | ast.AnnAssign | ast.AugAssign):
                    targets = one.targets if isinstance(one, ast.Assign) else [one.target]
                    yield from (
                        t.id for target in targets for t in ast.walk(target) if isinstance(t, ast.Name)
                    )


def _imported(node: ast.Import | ast.ImportFrom) -> set[str]:
    """Names of other people's modules that a statement brings in."""
    if isinstance(node, ast.ImportFrom) and (node.level or not _standard(node.module or "")):
        return set()
    home = (node.module or "").split(".") if isinstance(node, ast.ImportFrom) else []
    return {
        *home,
        *(part for alias in node.names for part in (*alias.name.split("."), alias.asname or alias.name)),
    }


def _standard(module: str) -> bool:
    return module.partition(".")[0] in sys.stdlib_module_names


def _outside(trees: Iterable[ast.Module]) -> set[str]:
    """Attributes that values of built-in types and imported modules have."""
    found = {name for kind in _BUILTIN_TYPES for name in dir(kind)}
    modules = set()
    for tree in trees:
        for node in ast.walk(tree):
            if isinstance(node, ast.Import):
                modules |= {alias.name for alias in node.names}
            elif isinstance(node, ast.ImportFrom) and not node.level and _standard(node.module or ""):
                modules.add(node.module or "")
    for name in sorted(modules):
        try:
            module = importlib.import_module(name)
        except ImportError:
            continue
        found |= _reachable(module)
    return found


def _reachable(module: types.ModuleType) -> set[str]:
    found = set(dir(module))
    for value in vars(module).values():
        if isinstance(value, type):
            found |= set(dir(value))
    return found
