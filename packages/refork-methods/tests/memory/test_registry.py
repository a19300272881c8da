"""The closure is a least fixed point, and the registry a value."""

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from refork.errors import BadInput
from refork.sandbox import Limits, Sandbox
from refork_methods.memory.registry import DEEPEST, ToolRegistry, invoke
from refork_methods.memory.tool import Tool

LETTERS = "abcdef"


def tool(name, *needs, body="return 1", parameters=(), plan=None):
    keywords = "".join(f", {key}: int" for key in parameters)
    head = f"def {name}(apis, tools{', *' + keywords if keywords else ''}) -> object:"
    schema = {
        "type": "object",
        "properties": {key: {"type": "integer"} for key in parameters},
        "required": list(parameters),
    }
    source = f'{head}\n    """Does {name}."""\n    {body}\n'
    return Tool(f"tool:{name}", name, source, f"Does {name}.", schema, needs, plan or f"plan:{name}", ("q",))


graphs = st.dictionaries(
    st.sampled_from(LETTERS), st.sets(st.sampled_from([*LETTERS, "x.f", "y.g"])), min_size=1
)


def registry_of(graph):
    full = {
        name: [
            need if "." in need else f"tools.{need}" for need in sorted(needs) if "." in need or need in graph
        ]
        for name, needs in graph.items()
    }
    return ToolRegistry(tuple(tool(name, *needs) for name, needs in full.items()))


def rounds(registry, names):
    """The definition: U_{r+1} = U_r with all needs of U_r, until nothing changes."""
    found = {f"tools.{name}" for name in names}
    while True:
        more = found | {
            need for one in found if one.startswith("tools.") for need in registry.tool(one).needs
        }
        if more == found:
            return found
        found = more


@given(graphs, st.data())
def test_closure_is_the_least_fixed_point_idempotent_and_free_of_order(graph, data):
    registry = registry_of(graph)
    names = data.draw(st.lists(st.sampled_from(sorted(graph)), unique=True))
    closed = registry.close(names)
    assert closed == rounds(registry, names)
    assert registry.close(closed) == closed
    assert registry.close(reversed(names)) == closed
    assert closed == frozenset().union(*(registry.close([name]) for name in names))


def test_closure_ends_on_cycles():
    registry = ToolRegistry((tool("a", "tools.b"), tool("b", "tools.a", "x.f")))
    assert registry.close(["a"]) == {"tools.a", "tools.b", "x.f"}
    assert registry.close([]) == frozenset()


def test_a_missing_dependency_is_named_with_who_needs_it():
    registry = ToolRegistry((tool("a", "tools.gone"),))
    with pytest.raises(BadInput, match=r"no tool 'tools.gone', which tools.a needs"):
        registry.close(["a"])
    other = ToolRegistry((tool("a", "x.f"),))
    assert other.close(["a"], {"x.f"}) == {"tools.a", "x.f"}
    with pytest.raises(BadInput, match=r"no function 'x.f', which tools.a needs"):
        other.close(["a"], set())


def test_the_registry_is_a_value():
    tools = [tool(name) for name in "cab"]
    made = {ToolRegistry(tuple(order)).to_bytes() for order in itertools.permutations(tools)}
    assert len(made) == 1
    data = made.pop()
    registry = ToolRegistry.from_bytes(data)
    assert registry.to_bytes() == data
    assert registry.names == ("a", "b", "c")
    assert "a" in registry
    assert "tools.a" in registry
    assert "z" not in registry
    before = registry.to_bytes()
    registry.with_tool(tool("d"))
    registry.without("a")
    assert registry.to_bytes() == before


def test_refusals():
    with pytest.raises(BadInput, match="two tools 'a'"):
        ToolRegistry((tool("a"), tool("a", "x.f")))
    with pytest.raises(BadInput, match="no tool 'b'"):
        ToolRegistry((tool("a"),)).tool("b")
    with pytest.raises(BadInput, match="needed by b"):
        ToolRegistry((tool("a"), tool("b", "tools.a"))).without("a")
    for data in (b"{}", b"[]", b"x", b'{"tools": [{}]}', b'{"tools": [1]}'):
        with pytest.raises(BadInput):
            ToolRegistry.from_bytes(data)


def test_tools_call_each_other_and_only_what_they_declared():
    double = tool("double", "m.mul", body="return apis.m.mul(x=x, y=2)", parameters=("x",))
    twice = tool("twice", "tools.double", body="return tools.double(x=tools.double(x=x))", parameters=("x",))
    sly = tool("sly", "m.mul", body="return [apis.m.mul(x=1, y=1), apis.m.wipe()]")
    looping = tool("loop", "tools.loop", body="return tools.loop()")
    registry = ToolRegistry((double, twice, sly, looping))
    asked = []

    def call(name, arguments):
        asked.append(name)
        return arguments["x"] * arguments["y"]

    with Sandbox(Limits(seconds=60)) as sandbox:
        assert invoke(registry, sandbox, "twice", {"x": 5}, call).value == 20
        asked.clear()
        result = invoke(registry, sandbox, "tools.sly", {}, call)
        assert "sly may not call m.wipe" in result.error
        assert asked == ["m.mul"]
        assert f"more than {DEEPEST} deep" in invoke(registry, sandbox, "loop", {}, call).error
        assert "no environment" in invoke(registry, sandbox, "double", {"x": 1}).error
        assert "unexpected keyword" in invoke(registry, sandbox, "double", {"z": 1}, call).error
