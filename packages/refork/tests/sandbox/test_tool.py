"""What runs inside, tried in this process: namespaces, proxies and answers."""

import pytest

from refork.sandbox.inside import tool, wire
from refork.sandbox.inside.names import BUILTINS, MODULES


@pytest.fixture(scope="module")
def known():
    return tool.modules()


def run(source, arguments, known=None, ask=None):
    space = {"__name__": "tool"} | ({"__builtins__": tool.restricted(known)} if known else {})
    return tool.run({"source": source, "name": "f", "arguments": arguments}, space, ask)


def test_modules_hold_the_listed_names_and_nothing_else(known):
    assert set(known) == set(MODULES)
    for name, module in known.items():
        own = {part for part in vars(module) if not part.startswith("__")}
        assert own == set(MODULES[name]), name


def test_the_namespace_has_the_listed_functions(known):
    allowed = tool.restricted(known)
    assert set(allowed) == {*BUILTINS, "__import__"}
    assert allowed["print"]("x") is None
    assert allowed["__import__"]("json") is known["json"]
    assert vars(allowed["__import__"]("time")).get("sleep") is None
    for name, level in (("os", 0), ("json", 1), ("time", 1)):
        with pytest.raises(ImportError, match="not on the list"):
            allowed["__import__"](name, level=level)


def test_answers(known):
    asked = []
    source = "def f(apis, tools, *, x):\n    return [apis.a.b(y=x), tools.t(z=1)]\n"
    answer = run(source, {"x": 3}, known, lambda name, given: asked.append((name, given)) or 7)
    assert answer == {"ok": [7, 7]}
    assert asked == [("a.b", {"y": 3}), ("tools.t", {"z": 1})]
    assert run(source, None, known) == {"ok": None}
    assert run("f = 1", {}, known)["error"] == "the source defines no function 'f'"
    assert run("def f(apis, tools): return apis.a.b(1)", {}, known)["error"].startswith(
        "TypeError: a.b takes keyword"
    )
    assert (
        run("def f(apis, tools): return open", {}, known)["error"]
        == "NameError: name 'open' is not defined (line 1)"
    )
    assert run("def f(apis, tools): raise MemoryError", {})["kind"] == "memory"
    assert len(run("def f(apis, tools): raise ValueError('x' * 9999)", {}, known)["error"]) < 2100


def test_frames():
    with pytest.raises(ValueError, match="not JSON"):
        wire.unpack(b"NaN")
    with pytest.raises(ValueError, match="nested"):
        wire.unpack(b"[" * 200000)
    with pytest.raises(ValueError, match="Out of range"):
        wire.pack({"x": float("inf")})
    assert wire.unpack(wire.pack({"x": ["ü", 1]})[4:]) == {"x": ["ü", 1]}
