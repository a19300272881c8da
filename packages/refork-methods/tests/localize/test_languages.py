from __future__ import annotations

import builtins
from typing import Any

import pytest

import localize.language_fixtures as fixtures
from refork.errors import install_command
from refork_methods.localize.index import RepoIndex
from refork_methods.localize.languages import grammar
from refork_methods.localize.snapshot import Snapshot
from refork_methods.localize.tools import RepoTools

pytest.importorskip("tree_sitter")

ALL = ("JAVASCRIPT", "TYPESCRIPT", "GO", "RUST", "JAVA", "C", "CPP")


def built(name: str) -> RepoIndex:
    return RepoIndex.build(Snapshot.from_files(getattr(fixtures, name)))


def symbols(index: RepoIndex) -> set[tuple[str, str, str, int, int]]:
    return {
        (s.path.rsplit("/", 1)[-1], s.kind, s.qualified, s.start, s.end)
        for s in index.symbols
        if s.kind != "module"
    }


def edges(graph: Any) -> set[tuple[str, str]]:
    return set(graph.edges)


def sure(index: RepoIndex) -> set[tuple[str, str]]:
    short = {s.id: f"{s.path.rsplit('/', 1)[-1]}:{s.qualified}" for s in index.symbols}
    return {(short[a], short[b]) for a, b, data in index.calls.edges(data=True) if data["sure"]}


def test_javascript() -> None:
    index = built("JAVASCRIPT")
    assert symbols(index) == {
        ("money.js", "function", "cents", 2, 2),
        ("index.js", "function", "total", 5, 8),
        ("index.js", "variable", "rules", 4, 4),
        ("cart.js", "class", "Cart", 3, 9),
        ("cart.js", "method", "Cart.constructor", 4, 4),
        ("cart.js", "method", "Cart.sum", 5, 7),
        ("cart.js", "method", "Cart.each", 8, 8),
        ("index.js", "class", "Base", 1, 1),
        ("index.js", "function", "helper", 2, 2),
        ("rules.js", "variable", "path", 1, 1),
        ("rules.js", "function", "fee", 2, 4),
    }
    assert edges(index.imports) == {
        ("src/index.js", "src/cart.js"),
        ("src/index.js", "packages/money/lib/money.js"),
        ("src/index.js", "src/util/index.js"),
        ("src/index.js", "src/rules.js"),
        ("src/cart.js", "src/util/index.js"),
    }
    assert sure(index) == {
        ("index.js:total", "cart.js:Cart"),
        ("index.js:total", "money.js:cents"),
        ("cart.js:Cart.sum", "index.js:helper"),
        ("cart.js:Cart.sum", "cart.js:Cart.each"),
    }
    cart = index.symbols[index.number("src/cart.js::Cart")]
    assert (cart.doc, cart.bases) == ("Items and their sum.", ("Base",))


def test_typescript_and_tsx() -> None:
    index = built("TYPESCRIPT")
    assert symbols(index) == {
        ("model.ts", "class", "Shape", 1, 1),
        ("model.ts", "method", "Shape.area", 1, 1),
        ("model.ts", "class", "Pair", 2, 2),
        ("model.ts", "class", "Color", 3, 3),
        ("model.ts", "class", "Figure", 4, 7),
        ("model.ts", "method", "Figure.area", 5, 5),
        ("model.ts", "method", "Figure.describe", 6, 6),
        ("square.ts", "class", "Square", 3, 7),
        ("square.ts", "method", "Square.constructor", 4, 4),
        ("square.ts", "method", "Square.area", 5, 5),
        ("square.ts", "method", "Square.scale", 6, 6),
        ("square.ts", "function", "multiply", 8, 8),
        ("view.tsx", "function", "View", 2, 5),
    }
    assert edges(index.imports) == {("src/square.ts", "src/model.ts"), ("src/view.tsx", "src/square.ts")}
    assert index.imports.edges["src/square.ts", "src/model.ts"]["lines"] == (1, 2)
    assert ("square.ts:Square.area", "square.ts:multiply") in sure(index)
    assert ("view.tsx:View", "square.ts:Square") in sure(index)


def test_go() -> None:
    index = built("GO")
    assert symbols(index) == {
        ("account.go", "class", "Account", 4, 6),
        ("account.go", "variable", "limit", 8, 8),
        ("account.go", "function", "Open", 11, 13),
        ("account.go", "method", "Account.Deposit", 15, 17),
        ("account_test.go", "function", "helper", 3, 3),
        ("check.go", "function", "check", 3, 8),
        ("main.go", "function", "main", 9, 13),
    }
    assert edges(index.imports) == {("main.go", "account/account.go"), ("main.go", "account/check.go")}
    assert sure(index) == {
        ("main.go:main", "account.go:Open"),
        ("account.go:Open", "check.go:check"),
        ("account.go:Account.Deposit", "check.go:check"),
    }
    assert index.symbols[index.number("account/account.go::Open")].doc == "Open makes an account."


def test_rust() -> None:
    index = built("RUST")
    assert symbols(index) == {
        ("mod.rs", "class", "Area", 2, 4),
        ("mod.rs", "method", "Area.area", 3, 3),
        ("circle.rs", "class", "Circle", 5, 8),
        ("circle.rs", "method", "Circle.new", 11, 14),
        ("circle.rs", "method", "Circle.area", 18, 20),
        ("util.rs", "function", "square", 1, 1),
        ("util.rs", "function", "check", 2, 2),
        ("main.rs", "function", "main", 2, 4),
    }
    assert edges(index.imports) == {
        ("src/lib.rs", "src/shape/mod.rs"),
        ("src/lib.rs", "src/util.rs"),
        ("src/lib.rs", "src/shape/circle.rs"),
        ("src/shape/mod.rs", "src/shape/circle.rs"),
        ("src/shape/circle.rs", "src/shape/mod.rs"),
        ("src/shape/circle.rs", "src/util.rs"),
        ("src/main.rs", "src/shape/circle.rs"),
    }
    assert sure(index) == {
        ("circle.rs:Circle.new", "util.rs:check"),
        ("circle.rs:Circle.area", "util.rs:square"),
        ("main.rs:main", "circle.rs:Circle.new"),
    }


def test_java() -> None:
    index = built("JAVA")
    assert symbols(index) == {
        ("Stack.java", "class", "Stack", 8, 21),
        ("Stack.java", "variable", "Stack.head", 9, 9),
        ("Stack.java", "method", "Stack.Stack", 11, 11),
        ("Stack.java", "method", "Stack.push", 13, 18),
        ("Stack.java", "method", "Stack.grow", 20, 20),
        ("Holder.java", "class", "Holder", 3, 5),
        ("Holder.java", "method", "Holder.size", 4, 4),
        ("Node.java", "class", "Node", 3, 6),
        ("Node.java", "method", "Node.Node", 4, 4),
        ("Node.java", "class", "Node.Kind", 5, 5),
        ("Checks.java", "class", "Checks", 3, 5),
        ("Checks.java", "method", "Checks.require", 4, 4),
        ("StackTest.java", "class", "StackTest", 5, 6),
    }
    main = "src/main/java/org/lib/"
    assert edges(index.imports) == {
        (f"{main}Stack.java", f"{main}base/Node.java"),
        (f"{main}Stack.java", f"{main}util/Checks.java"),
        ("src/test/java/org/lib/StackTest.java", f"{main}base/Node.java"),
    }
    assert sure(index) == {
        ("Stack.java:Stack.push", "Checks.java:Checks.require"),
        ("Stack.java:Stack.push", "Stack.java:Stack.grow"),
        ("Stack.java:Stack.push", "Node.java:Node"),
    }
    stack = index.symbols[index.number(f"{main}Stack.java::Stack")]
    assert (stack.doc, stack.bases) == ("Last in, first out.", ("Holder", "Iterable"))


def test_c() -> None:
    index = built("C")
    assert symbols(index) == {
        ("vec.h", "variable", "VEC_MAX", 3, 3),
        ("vec.h", "class", "vec", 4, 4),
        ("vec.c", "function", "grow", 4, 4),
        ("vec.c", "function", "vec_push", 7, 12),
        ("main.c", "function", "main", 4, 7),
        ("local.h", "variable", "ONE", 1, 1),
    }
    assert edges(index.imports) == {
        ("src/vec.c", "include/vec.h"),
        ("src/main.c", "include/vec.h"),
        ("src/main.c", "src/local.h"),
    }
    assert sure(index) == {("main.c:main", "vec.c:vec_push"), ("vec.c:vec_push", "vec.c:grow")}


def test_cpp() -> None:
    index = built("CPP")
    assert symbols(index) == {
        ("shape.hpp", "class", "geo.Shape", 3, 6),
        ("shape.hpp", "class", "geo.Square", 7, 14),
        ("shape.hpp", "method", "geo.Square.twice", 11, 11),
        ("shape.hpp", "function", "geo.clamp", 15, 15),
        ("shape.cpp", "method", "geo.Square.Square", 3, 3),
        ("shape.cpp", "method", "geo.Square.area", 4, 6),
        ("main.cpp", "function", "main", 2, 6),
    }
    assert edges(index.imports) == {("lib/shape.cpp", "lib/shape.hpp"), ("app/main.cpp", "lib/shape.hpp")}
    assert sure(index) == {
        ("main.cpp:main", "shape.hpp:geo.Square"),
        ("shape.cpp:geo.Square.area", "shape.hpp:geo.clamp"),
    }
    assert index.symbols[index.number("lib/shape.hpp::geo.Square")].bases == ("Shape",)


@pytest.mark.parametrize("name", ALL)
def test_the_tools_work_there_too(name: str) -> None:
    tools = RepoTools(Snapshot.from_files(getattr(fixtures, name)))
    for path in tools.snapshot.files:
        assert tools.view_file(path).error is None
        assert tools.connected(path).error is None
    for symbol in tools.index.symbols:
        assert 1 <= symbol.start <= symbol.end <= max(1, tools.snapshot.length(symbol.path))
        if symbol.kind != "module":
            assert symbol.name in "\n".join(tools.snapshot.lines(symbol.path)[symbol.start - 1 : symbol.end])


@pytest.mark.parametrize("name", ALL)
def test_broken_and_empty_files_are_data(name: str) -> None:
    files = getattr(fixtures, name)
    for path, text in files.items():
        for broken in (
            "",
            "\n",
            text[: len(text) // 2],
            text.replace(")", "", 1),
            "}{" + text,
            text.encode() + b"\xff\xfe",
        ):
            index = RepoIndex.build(Snapshot.from_files({**files, path: broken}))
            assert path in index.files


def test_without_the_grammars_files_are_plain_text(monkeypatch: pytest.MonkeyPatch) -> None:
    real = builtins.__import__

    def refuse(name: str, *rest: Any, **more: Any) -> Any:
        if name.startswith("tree_sitter"):
            raise ImportError(name)
        return real(name, *rest, **more)

    grammar._tools.cache_clear()
    monkeypatch.setattr(builtins, "__import__", refuse)
    index = built("GO")
    facts = index.files["main.go"]
    assert facts.parse == "none"
    assert facts.error == f"tree-sitter-go is not installed: {install_command('languages')}"
    assert "tree-sitter-go>=" in RepoTools(index).connected("main.go").text


SCRIPTS = {
    "web/tsconfig.json": '{"compilerOptions": {"paths": {"~lib": ["./lib/main.ts"], "#/*": ["./gen/*", '
    '"./src/*"]}}}',
    "web/lib/main.ts": "",
    "web/src/a.tsx": "",
    "web/src/styles.css": "",
    "web/src/b.d.ts": "",
    "web/src/dir/index.jsx": "",
    "web/src/use.ts": (
        "import x from '~lib';\nimport '#/a';\nimport './b';\nimport './dir';\nimport 'react';\n"
        "import './none';\n"
        "import './styles.css';\nconst lazy = import('./a');\nexport { y } from '..';\n"
        "import '../../../../etc/passwd';\n"
    ),
    "web/index.mjs": "",
}


def test_script_specifiers() -> None:
    index = RepoIndex.build(Snapshot.from_files(SCRIPTS))
    assert set(index.imports.successors("web/src/use.ts")) == {
        "web/lib/main.ts",
        "web/src/a.tsx",
        "web/src/b.d.ts",
        "web/src/dir/index.jsx",
        "web/src/styles.css",
        "web/index.mjs",
    }


def test_an_include_of_another_kind_of_file() -> None:
    files = {
        "src/ops.inc": "X(add)\n",
        "src/a.c": '#include "ops.inc"\n#include <../up.h>\nint f(void) { return g(); }\n',
    }
    index = RepoIndex.build(Snapshot.from_files(files))
    assert set(index.imports.edges) == {("src/a.c", "src/ops.inc")}
    assert index.calls.number_of_edges() == 0
