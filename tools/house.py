"""Measure the house: how large the packages are, and where their source breaks the rules of its design.

Prints one JSON object. Every number is read from the source at the moment of asking; nothing is imported or
kept. ``--check`` names what is over its limit and exits with 1; ``--list KEY`` prints the places behind one
number.

The packages are ``packages/NAME/src``: ``refork`` is the product, ``refork-methods``, ``refork-worlds`` and
``refork-testbed`` are the others.

- ``product_lines``, ``source_lines``: physical lines of the product, and of all packages: .py, and what is
  shipped beside it as .js, .css, .html, .j2 or .c. ``test_lines``: those of the .py files in ``tests`` and
  ``packages/*/tests``.
- ``top_level_names``: names in ``__init__.pyi`` of ``refork``, else in its ``__all__``.
- ``product_commands``: what ``refork --help`` lists, by the table ``GROUPS`` of ``refork.cli.commands``. What
  stands under ``refork method`` does not count.
- ``single_importer_same_folder``: modules, ``__init__`` left out, that import statements of exactly one
  other module of src, benchmarks and tools name, which lies in the same folder, and that no test names, nor
  any string (a registry, a child process). Who imports a name from an ``__init__`` that only passes it on
  imports the module it comes from; the passing on itself is no import.
- ``duplicate_public_class_names_in_product``: names that more than one public class at the top of a module
  has.
- ``room_cycles``: a room is the first folder or module under the product; the number counts the sets of two
  or more rooms that reach each other by imports (strongly connected components), those for type checking and
  inside functions too. The product's own ``__init__`` is no room: it names all of them.
- ``product_imports_of_methods_or_testbed``: pairs of a module of the product and a module of a method or of
  the testbed that it imports, or names in a string of code.
- ``glossary_violations``: functions, classes, modules, arguments of public functions, and public attributes
  and module-level names that are called by a word of ``tools/glossary.toml``, in all packages. An attribute
  counts once in a file, everything else where it is defined; local variables do not count.
- ``test_only_modules_in_wheels``: modules that nothing a user starts reaches by imports. A user starts the
  console scripts, the entry points of all packages, the top ``__init__`` of each, what runs by ``python
  -m``, and what a page of the documentation imports. A module named in a string counts as imported by who
  names it: "package.module:name", the parts of an f-string in a module that imports by name, a file
  "name.py" below the folder, and all modules of a package whose ``__file__`` or ``__name__`` is read. The
  testbed is left out: it is there for tests.
- ``comment_share``: lines with a comment, by lines of code of all packages. Directives to tools (noqa,
  type, fmt) are no comments; blank lines and docstrings are no code.
"""

from __future__ import annotations

import argparse
import ast
import json
import re
import sys
import tomllib
from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

import networkx as nx

ROOT = Path(__file__).resolve().parent.parent
#: The most that each number may be; a share may not be less.
LIMITS: dict[str, float] = {
    "product_lines": 50_000,
    "source_lines": 140_000,
    "test_lines": 75_000,
    "top_level_names": 24,
    "product_commands": 14,
    "single_importer_same_folder": 60,
    "duplicate_public_class_names_in_product": 0,
    "room_cycles": 0,
    "product_imports_of_methods_or_testbed": 0,
    "glossary_violations": 0,
    "test_only_modules_in_wheels": 0,
    "comment_share": 0.03,
}
AT_LEAST = {"comment_share"}

PRODUCT = "refork"
SHIPPED = {".py", ".js", ".css", ".html", ".j2", ".c"}
_DIRECTIVE = re.compile(r"#\s*(noqa|type:|fmt:|pragma|mypy:|ruff:|pyright:|pylint:|!)")
#: The tokens in which a # may stand; a whole tokenizer takes forty times as long.
_COMMENT_OR_STRING = re.compile(
    r'#[^\n]*|"{3}(?:[^\\]|\\.)*?"{3}|"(?:[^"\\\n]|\\.)*"'
    r"|'{3}(?:[^\\]|\\.)*?'{3}|'(?:[^'\\\n]|\\.)*'",
    re.DOTALL,
)
_DOTTED = re.compile(r"[A-Za-z_][\w.-]*(:[\w.]+)?")
_WORDS = re.compile(r"[A-Z]+(?=[A-Z][a-z])|[A-Z]?[a-z]+|[A-Z]+|\d+")
_IN_A_PAGE = re.compile(
    r"^\s*(?:>>> )?(?:from\s+(refork[\w.]*)\s+import\s+\(?\s*([\w, ]*)|import\s+(refork[\w.]*))", re.MULTILINE
)
_HOLE = r"([\w.]+)"


@dataclass(frozen=True)
class Named:
    """Something that the source gives a name to."""

    kind: str  # module, class, function, argument or attribute
    name: str
    line: int


@dataclass
class Module:
    """One file of Python, and what its syntax tree says."""

    file: Path
    name: str  # dotted
    package: str  # product, methods, worlds, testbed; "" outside the packages
    is_init: bool = False
    plain: list[tuple[str, int]] = field(default_factory=list)  # import a.b
    names: list[tuple[str, str, str, int]] = field(default_factory=list)  # from a import b as c: a, b, c
    strings: list[tuple[str, int]] = field(default_factory=list)
    patterns: list[tuple[str, int]] = field(default_factory=list)  # f-strings as regular expressions
    lazy: dict[str, str] = field(default_factory=dict)  # name -> module, both strings
    dotted: set[tuple[str, str]] = field(default_factory=set)  # x.y where x is a plain name
    loads: set[str] = field(default_factory=set)
    exported: list[str] = field(default_factory=list)
    tables: dict[str, dict[str, str]] = field(default_factory=dict)  # dicts of strings at the top
    classes: list[tuple[str, int]] = field(default_factory=list)
    named: list[Named] = field(default_factory=list)
    by_name: bool = False  # imports modules by name
    runs: bool = False  # python -m
    lines: int = 0
    code: int = 0
    comments: int = 0

    @property
    def home(self) -> str:
        """The package that its relative imports start from."""
        return self.name if self.is_init else self.name.rpartition(".")[0]


def read(module: Module, *, source: bool) -> Module:
    """Fill in what the file says. Names, comments and classes only where it is ``source``."""
    text = module.file.read_text(encoding="utf-8")
    lines = text.splitlines()
    module.lines = len(lines)
    reader = _Reader(module, source)
    reader.run(ast.parse(text))
    if source:
        module.code = sum(
            bool(line.strip()) and n not in reader.documented for n, line in enumerate(lines, 1)
        )
        if "#" in text:
            tokens = (match.group() for match in _COMMENT_OR_STRING.finditer(text))
            module.comments = sum(token[0] == "#" and not _DIRECTIVE.match(token) for token in tokens)
    return module


class _Reader:
    """One pass over a syntax tree."""

    def __init__(self, module: Module, source: bool) -> None:
        self.module, self.source = module, source
        self.docstrings: set[int] = set()  # identities of their nodes
        self.documented: set[int] = set()  # their lines

    def run(self, tree: ast.Module) -> None:
        self._top(tree)
        todo: list[ast.AST] = [tree]
        while todo:  # ast.walk takes three times as long
            node = todo.pop()
            if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
                self._docstring(node.body)
            self._references(node)
            for name in node._fields:
                value = getattr(node, name, None)
                if isinstance(value, list):
                    todo += [one for one in value if isinstance(one, ast.AST)]
                elif isinstance(value, ast.AST) and name not in ("ctx", "op"):
                    todo.append(value)
        if self.source:
            module = self.module
            stem = module.file.parent.name if module.is_init else module.file.stem
            module.named.append(Named("module", stem, 1))
            self._body(tree.body, public=True, inside="module")

    def _docstring(self, body: list[ast.stmt]) -> None:
        first = body[0].value if body and isinstance(body[0], ast.Expr) else None
        if isinstance(first, ast.Constant) and isinstance(first.value, str):
            self.docstrings.add(id(first))
            self.documented |= {*range(first.lineno, (first.end_lineno or first.lineno) + 1)}

    def _top(self, tree: ast.Module) -> None:
        module = self.module
        for node in tree.body:
            if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                module.classes.append((node.name, node.lineno))
            elif isinstance(node, ast.If) and "__main__" in ast.dump(node.test):
                module.runs = True
            targets = (
                node.targets
                if isinstance(node, ast.Assign)
                else [node.target]
                if isinstance(node, ast.AnnAssign)
                else []
            )
            for target in targets:
                if not isinstance(target, ast.Name):
                    continue
                value = node.value  # type: ignore[attr-defined,union-attr]
                if target.id == "__all__" and isinstance(value, ast.List | ast.Tuple):
                    module.exported = [x.value for x in value.elts if isinstance(x, ast.Constant)]
                elif isinstance(value, ast.Dict) and value.keys:
                    pairs = [(k.value, v.value) for k, v in zip(value.keys, value.values, strict=True)
                             if isinstance(k, ast.Constant) and isinstance(v, ast.Constant)]  # fmt: skip
                    if len(pairs) == len(value.keys) and all(
                        isinstance(x, str) for pair in pairs for x in pair
                    ):
                        module.tables[target.id] = dict(pairs)
                        module.lazy.update(pairs)

    def _references(self, node: ast.AST) -> None:  # noqa: C901 - one branch a kind of node
        module = self.module
        if isinstance(node, ast.Constant):
            if (
                isinstance(node.value, str)
                and id(node) not in self.docstrings
                and _DOTTED.fullmatch(node.value)
            ):
                module.strings.append((node.value, node.lineno))
        elif isinstance(node, ast.Name):
            if isinstance(node.ctx, ast.Load):
                module.loads.add(node.id)
                module.by_name |= node.id in ("import_module", "EntryPoint", "__import__")
        elif isinstance(node, ast.Attribute):
            if isinstance(node.value, ast.Name):
                module.dotted.add((node.value.id, node.attr))
            module.by_name |= node.attr in ("import_module", "run_module")
        elif isinstance(node, ast.ImportFrom):
            start = node.module or ""
            if node.level:
                home = module.home.split(".")
                start = ".".join([*home[: len(home) - node.level + 1], *([start] if start else [])])
            for alias in node.names:
                module.names.append((start, alias.name, alias.asname or alias.name, node.lineno))
        elif isinstance(node, ast.Import):
            module.plain += [(alias.name, node.lineno) for alias in node.names]
            # The names that stand for packages, so that package.name is seen too.
            module.names += [
                ("", alias.name, alias.asname, node.lineno) for alias in node.names if alias.asname
            ]
        elif isinstance(node, ast.JoinedStr):
            parts = [self._part(part) for part in node.values]
            if any(part != _HOLE for part in parts):
                module.patterns.append(("".join(parts), node.lineno))

    def _part(self, part: ast.expr) -> str:
        if isinstance(part, ast.Constant):
            return re.escape(str(part.value))
        value = part.value if isinstance(part, ast.FormattedValue) else part
        return (
            re.escape(self.module.name) if isinstance(value, ast.Name) and value.id == "__name__" else _HOLE
        )

    def _body(self, body: Iterable[ast.stmt], *, public: bool, inside: str) -> None:
        """Names that statements define; ``inside``: module, class or function."""
        named = self.module.named
        for node in body:
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                named.append(Named("function", node.name, node.lineno))
                open_ = (
                    public
                    and inside != "function"
                    and (not node.name.startswith("_") or node.name.endswith("__"))
                )
                if open_:
                    a = node.args
                    each = [*a.posonlyargs, *a.args, *a.kwonlyargs, *(x for x in (a.vararg, a.kwarg) if x)]
                    named += [Named("argument", x.arg, x.lineno) for x in each]
                self._body(node.body, public=open_, inside="function")
            elif isinstance(node, ast.ClassDef):
                named.append(Named("class", node.name, node.lineno))
                self._body(node.body, public=public and not node.name.startswith("_"), inside="class")
            else:
                targets = (
                    node.targets
                    if isinstance(node, ast.Assign)
                    else [node.target]
                    if isinstance(node, ast.AnnAssign | ast.AugAssign)
                    else []
                )
                self._assigned(targets, inside)
                for part in ("body", "orelse", "finalbody"):
                    self._body(getattr(node, part, ()), public=public, inside=inside)
                for handler in [*getattr(node, "handlers", ()), *getattr(node, "cases", ())]:
                    self._body(handler.body, public=public, inside=inside)

    def _assigned(self, targets: Iterable[ast.expr], inside: str) -> None:
        known = {one.name for one in self.module.named if one.kind == "attribute"} if targets else set()
        for target in targets:
            for one in target.elts if isinstance(target, ast.Tuple | ast.List) else [target]:
                if (
                    isinstance(one, ast.Attribute)
                    and isinstance(one.value, ast.Name)
                    and one.value.id == "self"
                ):
                    name = one.attr
                elif isinstance(one, ast.Name) and inside != "function":
                    name = one.id
                else:
                    continue
                if not name.startswith("_") and name not in known:
                    known.add(name)
                    self.module.named.append(Named("attribute", name, one.lineno))


class House:
    """All modules of a repository, and the numbers about them."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.modules: dict[str, Module] = {}
        for start in sorted((root / "packages").glob("*/src")):
            for file in _files(start, {".py"}):
                module = self._source(start, file)
                self.modules[module.name] = read(module, source=True)
        self.test_files = [f for start in self._test_folders() for f in _files(start, {".py"})]
        self.tests = [self._outside(file) for file in self.test_files]
        self.helpers = [
            self._outside(f) for name in ("benchmarks", "tools") for f in _files(root / name, {".py"})
        ]

    def _source(self, start: Path, file: Path) -> Module:
        parts = file.relative_to(start).with_suffix("").parts
        is_init = parts[-1] == "__init__"
        name = ".".join(parts[:-1] if is_init else parts)
        return Module(file, name, self._package(start), is_init)

    def _package(self, start: Path) -> str:
        folder = start.parent.name
        return "product" if folder == PRODUCT else folder.removeprefix(f"{PRODUCT}-")

    def _outside(self, file: Path) -> Module:
        name = ".".join(file.relative_to(self.root).with_suffix("").parts)
        return read(Module(file, name, ""), source=False)

    def _test_folders(self) -> list[Path]:
        return [self.root / "tests", *sorted((self.root / "packages").glob("*/tests"))]

    def where(self, module: Module, line: int = 0) -> str:
        """The file of a module, as a person opens it."""
        path = module.file.relative_to(self.root).as_posix()
        return f"{path}:{line}" if line else path

    # What names what.

    def module_of(self, dotted: str) -> str | None:
        """The longest beginning of a dotted name that is a module."""
        while dotted:
            if dotted in self.modules:
                return dotted
            dotted = dotted.rpartition(".")[0]
        return None

    def imported(self, module: Module) -> Iterator[tuple[str, int]]:
        """Modules that import statements name, with lines; also those an ``__init__`` takes it from."""
        for name, line in module.plain:
            if (found := self.module_of(name)) is not None:
                yield found, line
        packages = {}
        for start, name, local, line in module.names:
            whole = f"{start}.{name}" if start else name
            if whole in self.modules:
                packages[local] = (whole, line)
                if start:
                    yield whole, line
            elif start in self.modules:
                yield from ((one, line) for one in self._through(start, name))
        for name, _ in module.plain:
            packages.setdefault(name, (name, 1))
        for local, attribute in module.dotted:
            if local in packages and packages[local][0] in self.modules:
                start, line = packages[local]
                whole = f"{start}.{attribute}"
                yield from (
                    (one, line)
                    for one in ([whole] if whole in self.modules else self._through(start, attribute))
                )

    def _through(self, start: str, name: str) -> Iterator[str]:
        """A module that a name is imported from, and those that it passes the name on from."""
        passed: set[str] = set()
        todo = [(start, name)]
        while todo:
            start, name = todo.pop()
            if start in passed:
                continue
            passed.add(start)
            yield start
            module = self.modules[start]
            if not module.is_init:
                continue
            todo += [
                (origin, inner)
                for origin, inner, local, _ in module.names
                if local == name and origin in self.modules
            ]
            if name in module.lazy:
                todo += [
                    (place, name)
                    for place in (f"{start}.{module.lazy[name]}", module.lazy[name])
                    if place in self.modules
                ]

    def mentioned(self, module: Module) -> Iterator[tuple[str, int]]:
        """Modules that strings of its code name, with lines."""
        for text, line in module.strings:
            dotted = text.partition(":")[0]
            if dotted.partition(".")[0] in self.tops and (found := self.module_of(dotted)) not in (
                None,
                *self.tops,
            ):
                yield found, line  # type: ignore[misc]
            elif text.endswith(".py") and module.package:
                below = [
                    one
                    for one in self._by_file.get(text, ())
                    if module.file.parent in self.modules[one].file.parents
                ]
                yield from ((one, line) for one in below)
        packages = {local: f"{start}.{name}" for start, name, local, _ in module.names}
        for local, attribute in module.dotted:
            if attribute in ("__file__", "__name__", "__path__") and packages.get(local) in self.modules:
                yield from ((one, 1) for one in self.modules if one.startswith(f"{packages[local]}."))
        if module.by_name:
            yield from self._spelled(module)

    def _spelled(self, module: Module) -> Iterator[tuple[str, int]]:
        """Modules that f-strings spell with the module's own strings in the holes; if none fits, all."""
        texts = {text for text, _ in module.strings}
        for pattern, line in module.patterns:
            if not any(pattern.startswith(rf"{top}\.") for top in self.tops):
                continue  # it says too little: it would fit every module
            whole = re.compile(pattern)
            fits = [(one, match) for one in self.modules if (match := whole.fullmatch(one))]
            exact = [(one, line) for one, match in fits if texts.issuperset(match.groups())]
            # "refork.{name}" alone says too little: without a text for the hole it would fit every module.
            yield from exact or [(one, line) for one, _ in fits if pattern.count(r"\.") > 1]

    @cached_property
    def tops(self) -> set[str]:
        """The names that packages are imported by."""
        return {name.partition(".")[0] for name in self.modules}

    @cached_property
    def _by_file(self) -> dict[str, list[str]]:
        found = defaultdict(list)
        for name, module in self.modules.items():
            found[module.file.name].append(name)
        return found

    @cached_property
    def _statements(self) -> dict[str, dict[str, int]]:
        """For each module, those that its statements import, with the first line."""
        return {name: self._first(self.imported(module), name) for name, module in self.modules.items()}

    @cached_property
    def _strings(self) -> dict[str, dict[str, int]]:
        return {name: self._first(self.mentioned(module), name) for name, module in self.modules.items()}

    @staticmethod
    def _first(pairs: Iterable[tuple[str, int]], but: str = "") -> dict[str, int]:
        found: dict[str, int] = {}
        for name, line in pairs:
            if name != but:
                found[name] = min(line, found.get(name, line))
        return found

    @cached_property
    def projects(self) -> list[tuple[str, dict[str, Any]]]:
        """The folder's name and the project table of every pyproject.toml of the house."""
        files = [self.root / "pyproject.toml", *sorted((self.root / "packages").glob("*/pyproject.toml"))]
        return [
            (
                "" if file.parent == self.root else file.parent.name,
                tomllib.loads(file.read_text()).get("project", {}),
            )
            for file in files
            if file.is_file()
        ]

    # The numbers, each as the places behind it; those that are not one per place give (number, places).

    def lines(self, packages: set[str] | None = None) -> list[tuple[int, str]]:
        """Lines of the shipped files of some packages or of all, with their paths."""
        found = []
        for start in sorted((self.root / "packages").glob("*/src")):
            for file in _files(start, SHIPPED):
                if packages is None or self._package(start) in packages:
                    found.append((_count(file), file.relative_to(self.root).as_posix()))
        return found

    def product_lines(self) -> tuple[int, list[str]]:
        """Lines of the product, the longest files first."""
        return _totals(self.lines({"product"}))

    def source_lines(self) -> tuple[int, list[str]]:
        """Lines of all packages, the longest files first."""
        return _totals(self.lines())

    def test_lines(self) -> tuple[int, list[str]]:
        """Lines of the tests, the longest files first."""
        return _totals([(one.lines, self.where(one)) for one in self.tests])

    def top_level_names(self) -> tuple[int, list[str]]:
        """What ``from refork import *`` brings."""
        top = self.modules[PRODUCT]
        stub = top.file.with_suffix(".pyi")
        names = top.exported
        if stub.is_file():
            body = ast.parse(stub.read_text()).body
            names = [one.name for node in body if isinstance(node, ast.ImportFrom) for one in node.names]
        return len(names), names

    def product_commands(self) -> tuple[int, list[str]]:
        """What ``refork --help`` lists, without the methods' own commands."""
        commands = self.modules.get(f"{PRODUCT}.cli.commands")
        table = commands and re.search(r"^GROUPS\b[^=]*= (\{.*?^\})", commands.file.read_text(), re.M | re.S)
        names = (
            sorted(name for group in ast.literal_eval(table[1]).values() for name in group) if table else []
        )
        return len(names), names

    def single_importer_same_folder(self) -> list[str]:
        """Modules that one neighbour alone imports."""
        importers: dict[str, set[str]] = defaultdict(set)
        for name, module in self.modules.items():
            for target in self._statements[name]:
                importers[target].add(name)
            if module.is_init:
                self._passed_on(module, importers)
        for module in self.helpers:
            for target, _ in self.imported(module):
                importers[target].add(module.name)
        elsewhere = {target for one in [*self.tests, *self.helpers] for target, _ in self.mentioned(one)}
        elsewhere |= {target for one in self.tests for target, _ in self.imported(one)} | self.starts
        elsewhere |= {target for name in self.modules for target in self._strings[name]}
        found = []
        for name, module in self.modules.items():
            who = importers[name]
            if module.is_init or name in elsewhere or len(who) != 1:
                continue
            (one,) = who
            if one in self.modules and self.modules[one].file.parent == module.file.parent:
                found.append(f"{self.where(module)} only by {self.modules[one].file.name}")
        return sorted(found)

    def _passed_on(self, init: Module, importers: dict[str, set[str]]) -> None:
        """An ``__init__`` that uses nothing of a module itself does not count as its importer."""
        used = set()
        for start, name, local, _ in init.names:
            if local in init.loads:
                used |= (
                    {f"{start}.{name}"}
                    if f"{start}.{name}" in self.modules
                    else set(self._through(start, name) if start in self.modules else ())
                )
        for target in self._statements[init.name]:
            if target not in used:
                importers[target].discard(init.name)

    def duplicate_public_class_names_in_product(self) -> tuple[int, list[str]]:
        """Class names of the product that stand for more than one class."""
        found = defaultdict(list)
        for module in self._of("product"):
            for name, line in module.classes:
                found[name].append(self.where(module, line))
        twice = {name: places for name, places in found.items() if len(places) > 1}
        ranked = sorted(twice.items(), key=lambda item: (-len(item[1]), item[0]))
        return len(twice), [f"{name}: {' '.join(places)}" for name, places in ranked]

    def room_cycles(self) -> tuple[int, list[str]]:
        """Sets of rooms that reach each other, each with the imports between its rooms."""
        graph = nx.DiGraph()
        ways: dict[tuple[str, str], list[str]] = defaultdict(list)
        for module in self._of("product"):
            room = self.room(module.name)
            for target, line in self._statements[module.name].items():
                other = self.room(target)
                if room and other and room != other:
                    graph.add_edge(room, other)
                    ways[room, other].append(f"{self.where(module, line)} imports {target}")
        cycles = sorted(
            (sorted(c) for c in nx.strongly_connected_components(graph) if len(c) > 1),
            key=lambda c: (-len(c), c),
        )
        places = []
        for cycle in cycles:
            places.append("cycle: " + " ".join(cycle))
            # The ways with the fewest imports first: those are the cheapest to cut.
            inside = [(len(found), pair) for pair, found in ways.items() if set(pair) <= set(cycle)]
            for count, pair in sorted(inside):
                places.append(f"  {pair[0]} -> {pair[1]}: {count}; {ways[pair][0]}")
        return len(cycles), places

    def room(self, name: str) -> str | None:
        """The room of a module of the product; None for its own ``__init__`` and for other packages."""
        parts = name.split(".")
        if self.modules[name].package != "product" or len(parts) < 2:
            return None
        return parts[1]

    def product_imports_of_methods_or_testbed(self) -> list[str]:
        """Imports that go the wrong way."""
        found = []
        for module in self._of("product"):
            both = self._strings[module.name] | self._statements[module.name]
            bad = {
                target: line
                for target, line in both.items()
                if self.modules[target].package in ("methods", "testbed")
            }
            found += [f"{self.where(module, line)} imports {target}" for target, line in sorted(bad.items())]
        return found

    def glossary_violations(self) -> list[str]:
        """Names that are words of our own."""
        glossary = Glossary(self.root / "tools" / "glossary.toml")
        return [
            f"{word}: {self.where(module, one.line)} {one.kind} {one.name} -> {instead}"
            for module in self.modules.values()
            for one in module.named
            for word, instead in glossary.faults(one, module.file.relative_to(self.root))
        ]

    def test_only_modules_in_wheels(self) -> list[str]:
        """Modules that nothing a user starts reaches."""
        reached: set[str] = set()
        todo = [*self.starts]
        while todo:
            name = todo.pop()
            if name in reached:
                continue
            reached.add(name)
            todo += [*self._statements[name], *self._strings[name]]
            todo += [above for above in [name.rpartition(".")[0]] if above in self.modules]
        called = {t for one in self.tests for t, _ in [*self.imported(one), *self.mentioned(one)]}
        helped = {t for one in self.helpers for t, _ in [*self.imported(one), *self.mentioned(one)]}
        who = {
            (True, True): "tests and benchmarks or tools",
            (True, False): "tests",
            (False, True): "benchmarks or tools",
        }
        return [
            f"{self.where(module)} ({module.lines} lines) "
            f"only by {who.get((name in called, name in helped), 'nobody, or modules of this list')}"
            for name, module in sorted(self.modules.items(), key=lambda item: (-item[1].lines, item[0]))
            if name not in reached and module.package != "testbed"
        ]

    @cached_property
    def starts(self) -> set[str]:
        """Modules that a user starts."""
        found = set(self.tops)
        for _, project in self.projects:
            for group in [project.get("scripts", {}), *project.get("entry-points", {}).values()]:
                found |= {
                    one for target in group.values() if (one := self.module_of(target.partition(":")[0]))
                }
        found |= {
            name for name, module in self.modules.items() if module.runs or module.file.name == "__main__.py"
        }
        return found | self._documented()

    def _documented(self) -> set[str]:
        """Modules that pages import from, those that pass a name on and those that it comes from."""
        pages = [
            self.root / "README.md",
            *sorted(self.root.glob("packages/*/README.md")),
            *sorted(self.root.glob("docs/**/*.md")),
        ]
        found: set[str] = set()
        for page in pages:
            for start, names, whole in _IN_A_PAGE.findall(
                page.read_text(encoding="utf-8") if page.is_file() else ""
            ):
                if whole and (one := self.module_of(whole)):
                    found.add(one)
                for name in re.findall(r"\w+", names) if start in self.modules else ():
                    found |= (
                        {f"{start}.{name}"}
                        if f"{start}.{name}" in self.modules
                        else set(self._through(start, name))
                    )
        return found

    def comment_share(self) -> tuple[float, list[str]]:
        """Lines with a comment by lines of code; the files with the most code for their comments first."""
        code = sum(one.code for one in self.modules.values())
        comments = sum(one.comments for one in self.modules.values())
        ranked = sorted(
            self.modules.values(),
            key=lambda one: (one.comments * LIMITS["comment_share"] ** -1 - one.code, one.name),
        )
        places = [f"{self.where(one)} {one.comments} of {one.code}" for one in ranked]
        return round(comments / code, 4) if code else 0.0, places

    def _of(self, package: str) -> list[Module]:
        return [one for one in self.modules.values() if one.package == package]

    def measure(self, key: str) -> tuple[float, list[str]]:
        """A number and the places behind it."""
        found = getattr(self, key)()
        return found if isinstance(found, tuple) else (len(found), found)


class Glossary:
    """The words that are not to be used as names."""

    def __init__(self, file: Path) -> None:
        self._entries = (
            tomllib.loads(file.read_text(encoding="utf-8")).get("word", []) if file.is_file() else []
        )
        for entry in self._entries:
            for allow in entry.get("allow", ()):
                if not allow.get("reason") or not (allow.get("names") or allow.get("within")):
                    raise SystemExit(
                        f"{file}: {entry['words'][0]}: an allowance needs names or within, and a reason"
                    )

    def faults(self, one: Named, path: Path) -> Iterator[tuple[str, str]]:
        """The words that a name in the file uses, each with what to call it instead."""
        parts = [part.lower() for part in _WORDS.findall(one.name)]
        folders = {*path.parts[:-1], path.stem}
        for entry in self._entries:
            if one.kind not in entry.get("kinds", (one.kind,)) or not folders & set(
                entry.get("within", folders)
            ):
                continue
            for word in entry["words"]:
                if _uses(parts, word, entry, one.kind) and not _allowed(entry, one.name, folders):
                    yield word, entry["instead"]


def _uses(parts: list[str], word: str, entry: dict[str, Any], kind: str) -> bool:
    length = word.count("_") + 1
    spelled = ["_".join(parts[n : n + length]) for n in range(len(parts) - length + 1)]
    hits = [n for n, text in enumerate(spelled) if text in (word, f"{word}s")]
    if not entry.get("part") and len(parts) != length:
        return False
    if entry.get("verb") and kind == "function" and spelled[:1] == [word]:
        hits = [n for n in hits if n]
    return bool(hits)


def _allowed(entry: dict[str, Any], name: str, folders: set[str]) -> bool:
    return any(
        name in allow.get("names", (name,)) and folders & set(allow.get("within", folders))
        for allow in entry.get("allow", ())
    )


def _files(start: Path, suffixes: set[str]) -> list[Path]:
    return sorted(
        f for f in start.rglob("*") if f.suffix in suffixes and f.is_file() and "__pycache__" not in f.parts
    )


def _count(file: Path) -> int:
    return len(file.read_bytes().splitlines())


def _totals(found: list[tuple[int, str]]) -> tuple[int, list[str]]:
    return sum(count for count, _ in found), [
        f"{count:6} {path}" for count, path in sorted(found, key=lambda x: (-x[0], x[1]))
    ]


def over(numbers: dict[str, float]) -> list[str]:
    """What is beyond its limit, a line each."""
    return [
        f"{key}: {numbers[key]}, at {'least' if key in AT_LEAST else 'most'} {limit}"
        for key, limit in LIMITS.items()
        if key in numbers and (numbers[key] < limit if key in AT_LEAST else numbers[key] > limit)
    ]


def main(arguments: list[str] | None = None, root: Path = ROOT) -> int:
    """Print the numbers, or the places behind one; 1 where ``--check`` finds one over its limit."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument(
        "--check", nargs="*", choices=LIMITS, metavar="KEY",
        help="exit 1 where one of these numbers (none named: any) is over its limit, and say where",
    )  # fmt: skip
    parser.add_argument(
        "--list", choices=LIMITS, metavar="KEY", help=f"the places behind one number: {', '.join(LIMITS)}"
    )
    asked = parser.parse_args(arguments)
    house = House(root)
    if asked.list:
        print("\n".join(house.measure(asked.list)[1]))
        return 0
    keys = asked.check or list(LIMITS)
    measured = {key: house.measure(key) for key in keys}
    numbers = {key: number for key, (number, _) in measured.items()}
    print(json.dumps(numbers))
    faults = over(numbers) if asked.check is not None else []
    for fault in faults:
        print(f"house: {fault}", file=sys.stderr)
        if asked.check:
            print(*measured[fault.partition(":")[0]][1], sep="\n", file=sys.stderr)
    return bool(faults)


if __name__ == "__main__":
    sys.exit(main())
