from __future__ import annotations

import ast
import random
import sys
from importlib import invalidate_caches
from importlib.machinery import PathFinder
from pathlib import Path

import pytest

from refork_methods.localize.facts import Import
from refork_methods.localize.index import RepoIndex
from refork_methods.localize.snapshot import Snapshot
from refork_methods.localize.tools import RepoTools, reached


class Oracle:
    """The same question put to the interpreter's own path finder, over files on disk."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.files = sorted(path for path in root.rglob("*.py"))
        tops = {self.own_root(path) for path in self.files}
        first = {root: 0, root / "src": 1}
        self.tops = sorted(
            tops | {root} | ({root / "src"} if (root / "src").is_dir() else set()),
            key=lambda top: (first.get(top, 2), len(top.parts), top.relative_to(root).as_posix()),
        )
        invalidate_caches()

    def own_root(self, path: Path) -> Path:
        here = path.parent
        while here != self.root and (here / "__init__.py").exists():
            here = here.parent
        return here

    def find(self, name: str, folders: list[str]) -> str | None:
        spec = None
        for part in name.split("."):
            spec = PathFinder.find_spec(part, folders)
            if spec is None:
                return None
            folders = list(spec.submodule_search_locations or [])
        return spec.origin if spec is not None else None

    def locate(self, path: Path, module: str, level: int) -> str | None:
        if level:
            if len(path.relative_to(self.root).parts) < level:
                return None
            here = path.parents[level - 1]
            init = here / "__init__.py"
            if not module:
                return str(init) if init.exists() else None
            return self.find(module, [str(here)])
        near = [self.own_root(path), self.root, self.root / "src"]
        far = [] if module.split(".", maxsplit=1)[0] in sys.stdlib_module_names else self.tops
        return self.find(module, list(dict.fromkeys(map(str, [*near, *far]))))

    def imported(self, path: Path) -> set[str]:
        found: set[str | None] = set()
        for node in ast.walk(ast.parse(path.read_bytes())):
            if isinstance(node, ast.Import):
                found |= {self.locate(path, alias.name, 0) for alias in node.names}
            elif isinstance(node, ast.ImportFrom):
                home = self.locate(path, node.module or "", node.level) if node.module or node.level else None
                for alias in node.names:
                    inner = f"{node.module}.{alias.name}" if node.module else alias.name
                    sub = None if alias.name == "*" else self.locate(path, inner, node.level)
                    found.add(sub or home)
                    if alias.name == "*" and home is not None:
                        found |= self.exported(Path(home))
        return {Path(one).relative_to(self.root).as_posix() for one in found if one and one != str(path)}

    def exported(self, home: Path) -> set[str | None]:
        if home.name != "__init__.py":
            return set()
        for node in ast.parse(home.read_bytes()).body:
            if isinstance(node, ast.Assign) and getattr(node.targets[0], "id", "") == "__all__":
                return {self.find(name, [str(home.parent)]) for name in ast.literal_eval(node.value)}
        return set()

    def graph(self) -> dict[str, set[str]]:
        return {path.relative_to(self.root).as_posix(): self.imported(path) for path in self.files}


LAID_OUT = {
    "setup.py": "import helpers\nimport app.core\n",
    "helpers.py": "import json\n",
    "src/app/__init__.py": "from .core import Engine\nfrom . import io\n__all__ = ['Engine', 'io', 'late']\n",
    "src/app/core.py": "from .io.reader import read as r, nothing\nfrom ..app import late\n"
    "import app.io.writer as w\n",
    "src/app/late.py": "def f():\n    from app import core\n    import os, app.io\n",
    "src/app/io/__init__.py": "from app.io.reader import *\nfrom .. import core as c\n",
    "src/app/io/reader.py": "from ... import gone\nfrom ..late import f\n",
    "src/app/io/writer.py": "try:\n    import simplejson as json\nexcept ImportError:\n    import json\n"
    "from app import *\n",
    "src/app/json.py": "import json\n",
    "space/one/a.py": "from space.two import b\nimport space.two.b as bb\n",
    "space/two/b.py": "from space.one.a import x\nfrom space import one\n",
    "src/space/three/c.py": "from space.one import a\n",
    "scripts/run.py": "import tool\nfrom tool import main\nimport app\nimport types\n",
    "scripts/tool.py": "from helpers import x\n",
    "scripts/types.py": "",
    "other/uses_types.py": "import types\nimport tool\n",
    "tests/__init__.py": "",
    "tests/unit/__init__.py": "",
    "tests/unit/test_core.py": "from app.core import Engine\nfrom tests.unit import helper\n"
    "from .helper import x\nimport tests\n",
    "tests/unit/helper.py": "from ..unit import test_core\n",
    "both/__init__.py": "",
    "both.py": "",
    "uses_both.py": "import both\nfrom both import thing\n",
    "hides/ns/mod.py": "",
    "lib/hides/__init__.py": "",
    "lib/other.py": "import hides.ns.mod\nfrom hides.ns import mod\n",
}


def on_disk(root: Path, files: dict[str, str]) -> dict[str, set[str]]:
    for name, text in files.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text)
    try:
        return Oracle(root).graph()
    finally:
        for folder in [one for one in sys.path_importer_cache if one.startswith(str(root))]:
            del sys.path_importer_cache[folder]


def ours(files: dict[str, str]) -> RepoTools:
    return RepoTools(Snapshot.from_files(files))


def compare(tools: RepoTools, expected: dict[str, set[str]]) -> None:
    graph = tools.index.imports
    assert {path: set(graph.successors(path)) for path in graph} == expected
    backwards = {path: {other for other, found in expected.items() if path in found} for path in expected}
    assert {path: set(graph.predecessors(path)) for path in graph} == backwards
    for path, imported in expected.items():
        listed = {
            line.split(" (")[0].strip()
            for line in tools.connected(path).text.splitlines()
            if line[:2] == "  "
        }
        assert listed == imported | backwards[path]
        two = imported | {far for near in imported for far in expected[near]}
        assert set(reached(graph, path, 2)) == two - {path}


def test_connected_equals_the_interpreters_own_finder(tmp_path: Path) -> None:
    expected = on_disk(tmp_path, LAID_OUT)
    # The layout is worth comparing: these are what the finder itself says of it.
    assert expected["src/app/core.py"] == {"src/app/io/reader.py", "src/app/late.py", "src/app/io/writer.py"}
    assert expected["src/app/io/writer.py"] == {
        "src/app/__init__.py",
        "src/app/io/__init__.py",
        "src/app/late.py",
    }
    assert expected["space/two/b.py"] == {"space/one/a.py"}
    assert expected["uses_both.py"] == {"both/__init__.py"}
    assert expected["lib/other.py"] == set()
    assert expected["scripts/run.py"] == {"scripts/tool.py", "src/app/__init__.py", "scripts/types.py"}
    assert expected["other/uses_types.py"] == {"scripts/tool.py"}
    compare(ours(LAID_OUT), expected)


@pytest.mark.parametrize("seed", range(25))
def test_connected_equals_the_finder_on_random_layouts(tmp_path: Path, seed: int) -> None:
    draw = random.Random(seed)
    names = ["a", "b", "c", "json", "src"]
    files: dict[str, str] = {}
    for _ in range(draw.randrange(6, 16)):
        parts = [draw.choice(names) for _ in range(draw.randrange(1, 5))]
        files["/".join(parts) + ".py"] = ""
    for deepest in sorted({name.rsplit("/", 1)[0] for name in files if "/" in name}):
        folder = deepest
        while folder:
            if draw.random() < 0.6:
                files.setdefault(
                    f"{folder}/__init__.py", "__all__ = ['a', 'b']\n" if draw.random() < 0.3 else ""
                )
            folder = folder.rpartition("/")[0]
    for name in files:
        files[name] += "".join(_random_import(draw, names) for _ in range(4))
    compare(ours(files), on_disk(tmp_path, files))


def _random_import(draw: random.Random, names: list[str]) -> str:
    dotted = ".".join(draw.choice(names) for _ in range(draw.randrange(1, 4)))
    form = draw.randrange(5)
    if form == 0:
        return f"import {dotted}\n"
    if form == 1:
        return f"from {dotted} import {draw.choice(names)} as x, y\n"
    if form == 2:
        return f"from {'.' * draw.randrange(1, 4)}{draw.choice(['', dotted])} import {draw.choice(names)}\n"
    if form == 3:
        return f"from {draw.choice(['', '.'])}{dotted} import *\n"
    return f"import {dotted} as x\n"


def test_a_snapshot_that_is_a_package_itself(tmp_path: Path) -> None:
    root = tmp_path / "mine"
    root.mkdir()
    for name, text in {
        "__init__.py": "",
        "a.py": "import mine.b\nfrom mine import b\n",
        "b.py": "import mine\n",
    }.items():
        (root / name).write_text(text)
    graph = RepoIndex.build(Snapshot(root)).imports
    assert set(graph.edges) == {("a.py", "b.py"), ("b.py", "__init__.py")}


def test_dynamic_imports_of_literals() -> None:
    index = RepoIndex.build(
        Snapshot.from_files(
            {
                "p/__init__.py": "",
                "p/a.py": "import importlib\nm = importlib.import_module('p.b')\n"
                "n = importlib.import_module('.c', 'p')\n",
                "p/b.py": "x = __import__('p.c')\ny = __import__(x)\n",
                "p/c.py": "",
            }
        )
    )
    assert set(index.imports.edges) == {("p/a.py", "p/b.py"), ("p/a.py", "p/c.py"), ("p/b.py", "p/c.py")}
    assert Import("c", 3, (), 1, "dynamic") in index.files["p/a.py"].imports


def test_lines_and_names_of_an_import() -> None:
    index = RepoIndex.build(Snapshot.from_files({"a.py": "from b import x, y\n\nimport b\n", "b.py": ""}))
    assert index.imports.edges["a.py", "b.py"] == {"lines": (1, 3), "names": ("x", "y")}
