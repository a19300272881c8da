from __future__ import annotations

import ast
from collections import Counter
from pathlib import Path

import numpy as np
import pytest

from refork.errors import BadInput
from refork_methods.localize import index as module
from refork_methods.localize.index import RepoIndex
from refork_methods.localize.lexing import FIELDS
from refork_methods.localize.snapshot import Snapshot
from refork_methods.localize.terms import words

FOLDER = Path(module.__file__).parent

SOURCE = '''"""Parses requests.

More about it.
"""
import os  # the system

LIMIT = 3
table: dict = {
    "slow-path": 1,
}


def outer(first_arg, *, flag=None):
    """Opens the outerDoor."""

    def inner():
        # a remark here
        return first_arg + os.sep

    return inner() or f"the {flag} string"


@outer
@os.register(
    "x",
)
class HttpServer(Base, abc.Other[int], metaclass=Meta):
    """Serves."""

    port = 80

    @property
    async def handleRequest(self, req: Request) -> None:
        await self.send(req.body)

    if LIMIT:
        def late(self): pass


try:
    def fallback(): return 1
except ImportError:
    def fallback(): return 2
'''


@pytest.fixture(scope="module")
def index() -> RepoIndex:
    return RepoIndex.build(
        Snapshot.from_files({"pkg/server.py": SOURCE, "README.md": "Read the HttpServer docs.\n"})
    )


def counted(index: RepoIndex, symbol_id: str, field: str) -> dict[str, int]:
    number = index.number(symbol_id)
    postings = index.postings[field]
    found = {}
    for word, place in index.words.items():
        holders, counts = postings.of(place)
        at = np.flatnonzero(holders == number)
        if at.size:
            found[word] = int(counts[at[0]])
    assert sum(found.values()) == postings.lengths[number]
    return found


def test_symbols_with_their_lines(index: RepoIndex) -> None:
    found = [(s.id, s.kind, s.start, s.end) for s in index.symbols if s.path == "pkg/server.py"]
    p = "pkg/server.py::"
    assert found == [
        (p, "module", 1, 43),
        (f"{p}LIMIT", "variable", 7, 7),
        (f"{p}table", "variable", 8, 10),
        (f"{p}outer", "function", 13, 20),
        (f"{p}outer.inner", "function", 16, 18),
        (f"{p}HttpServer", "class", 23, 37),
        (f"{p}HttpServer.port", "variable", 30, 30),
        (f"{p}HttpServer.handleRequest", "method", 32, 34),
        (f"{p}HttpServer.late", "method", 37, 37),
        (f"{p}fallback", "function", 41, 41),
        (f"{p}fallback#2", "function", 43, 43),
    ]
    server = index.symbols[index.number(f"{p}HttpServer")]
    assert server.bases == ("Base", "abc.Other")
    assert server.doc == "Serves."
    assert server.signature.startswith('@outer @os.register( "x", ) class HttpServer(Base')
    assert index.symbols[index.number(p)].doc == "Parses requests."
    assert index.symbols[index.number("README.md::")].kind == "module"


def test_symbols_equal_a_walk_of_the_syntax_tree() -> None:
    """On this package's own sources: every definition, once, with the lines the parser gives."""
    snapshot = Snapshot.from_files({path.name: path.read_text() for path in sorted(FOLDER.glob("*.py"))})
    index = RepoIndex.build(snapshot, words=False)
    for path in snapshot.files:
        expected = Counter()
        for node in ast.walk(ast.parse(snapshot.text(path))):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
                start = min([node.lineno, *(mark.lineno for mark in node.decorator_list)])
                expected[node.name, start, node.end_lineno] += 1
        kinds = ("class", "function", "method")
        got = Counter((s.name, s.start, s.end) for s in index.files[path].symbols if s.kind in kinds)
        assert got == expected
        called = {
            (node.lineno, node.func.id)
            for node in ast.walk(ast.parse(snapshot.text(path)))
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Name)
        }
        names = {call.callee for call in index.files[path].calls}
        assert {name for _, name in called} <= names


def test_every_line_belongs_to_the_innermost_symbol(index: RepoIndex) -> None:
    wanted = {
        1: "",
        5: "",
        7: "LIMIT",
        9: "table",
        13: "outer",
        16: "outer.inner",
        18: "outer.inner",
        20: "outer",
        23: "HttpServer",
        30: "HttpServer.port",
        33: "HttpServer.handleRequest",
        37: "HttpServer.late",
    }
    for line, qualified in wanted.items():
        found = index.at("pkg/server.py", line)
        assert found is not None
        assert found.id == f"pkg/server.py::{qualified}", line
    assert index.at("pkg/server.py", 0) is None
    assert index.at("pkg/server.py", 44) is None
    assert index.at("absent.py", 1) is None


def test_words_by_field(index: RepoIndex) -> None:
    p = "pkg/server.py::"
    assert counted(index, f"{p}HttpServer.handleRequest", "name") == Counter(
        words("HttpServer handleRequest")
    )
    assert counted(index, f"{p}outer", "doc") == Counter(words("Opens the outerDoor."))
    assert counted(index, f"{p}outer", "signature") == Counter(words("outer first_arg flag"))
    assert counted(index, f"{p}outer.inner", "comment") == Counter(words("a remark here"))
    assert counted(index, f"{p}outer.inner", "body") == Counter(words("first_arg os sep"))
    assert counted(index, f"{p}outer", "string") == Counter(words("the flag string"))
    assert counted(index, f"{p}outer", "body") == Counter(words("inner"))
    assert counted(index, f"{p}table", "string") == Counter(words("slow-path"))
    assert counted(index, p, "comment") == Counter(words("the system"))
    assert counted(index, p, "doc") == Counter(words("Parses requests. More about it."))
    assert counted(index, f"{p}outer", "path") == Counter(words("pkg server"))
    assert counted(index, "README.md::", "body") == Counter(words("Read the HttpServer docs"))
    assert set(index.postings) == set(FIELDS)


def test_postings_are_in_order(index: RepoIndex) -> None:
    assert list(index.words) == sorted(index.words)
    assert list(index.words.values()) == list(range(len(index.words)))
    for postings in index.postings.values():
        assert postings.indptr.size == len(index.words) + 1
        for word in range(len(index.words)):
            holders, counts = postings.of(word)
            assert np.all(np.diff(holders) > 0)
            assert np.all(counts > 0)


BROKEN = (
    "import os, sys as system\n"
    "from a.b import c as d, e\n"
    "class Old:\n"
    "    def first(self):\n"
    "        print 'two'\n"
    "\n"
    "    def second(self,\n"
    "               more):\n"
    "        return 1\n"
    "# a remark\n"
    "def last():\n"
    "    pass\n"
)


def test_a_file_that_does_not_parse_is_read_by_lines() -> None:
    index = RepoIndex.build(Snapshot.from_files({"old.py": BROKEN, "a/b.py": "c = 1\n"}))
    facts = index.files["old.py"]
    assert facts.parse == "lines"
    assert "SyntaxError" in str(facts.error)
    assert [(s.qualified, s.kind, s.start, s.end) for s in facts.symbols[1:]] == [
        ("Old", "class", 3, 9),
        ("Old.first", "method", 4, 5),
        ("Old.second", "method", 7, 9),
        ("last", "function", 11, 12),
    ]
    assert set(index.imports.edges) == {("old.py", "a/b.py")}
    assert index.imports.edges["old.py", "a/b.py"]["names"] == ("c", "e")


@pytest.mark.parametrize(
    "raw",
    [
        b"x = '\xe9'\ndef f(): pass\n",
        b"# -*- coding: latin-1 -*-\nx = '\xe9'\ndef f(): pass\n",
        b"\xef\xbb\xbfx = 1\ndef f(): pass\n",
        b"x = 1\r\ndef f(): pass\r\n",
        b"x = '\\d'\n\x0cdef f(): pass\n",
        b"x = " + b"(" * 300 + b")" * 300 + b"\ndef f(): pass\n",
        b"x = " + b"-" * 20_000 + b"1\ndef f(): pass\n",
        b"x = 1 + \\\n",
        b"",
    ],
)
def test_odd_files_never_stop_the_index(raw: bytes) -> None:
    index = RepoIndex.build(Snapshot.from_files({"odd.py": raw, "ok.py": "def g(): pass\n"}))
    assert index.number("ok.py::g")
    if b"def f" in raw:
        symbol = index.symbols[index.number("odd.py::f")]
        assert b"def f" in raw.split(b"\n")[symbol.start - 1]


def test_no_symbol_of_a_name(index: RepoIndex) -> None:
    with pytest.raises(BadInput, match="no symbol"):
        index.number("pkg/server.py::nothing")


def test_an_index_without_words() -> None:
    bare = RepoIndex.build(Snapshot.from_files({"a.py": "x = 1\n"}), words=False)
    assert bare.words == {}
    assert bare.postings == {}


def test_patterns_that_match_a_singleton_are_read() -> None:
    source = "def f(x):\n    match x:\n        case True | None:\n            return g(x)\n\n"
    source += "def g(x):\n    return x\n"
    index = RepoIndex.build(Snapshot.from_files({"a.py": source}))
    assert list(index.calls.edges) == [("a.py::f", "a.py::g")]
