"""Codifier and repairer by any chat model. Neither type holds a trajectory. The prompts are ours."""

from __future__ import annotations

import ast
from typing import Any, Protocol, final, runtime_checkable

from pydantic import Field

from refork.chat import ChatModel
from refork.errors import BadInput
from refork.policies.base import Cost
from refork.types import Json
from refork_methods.memory.codifier import Codified, CodifierInput
from refork_methods.memory.queries import free_literals, masked, tokens_of
from refork_methods.memory.roles.asking import StrictReply, ask, told
from refork_methods.memory.skeleton import functions_of
from refork_methods.memory.tool import Tool

_CODE = """\
You turn a plan that was used again and again into small Python functions. You see the plan and the
queries it served, and nothing else. Write a function only if at least two structurally different
queries need it; everything that varies between queries is a parameter, and no value of a single
query stands in the code. Prefer small helpers that can be combined; write no function that solves
one whole query.
Each function is one complete "def NAME(apis, tools, *, parameter: type) -> type:" with a docstring
that describes its parameters. Environment functions are apis.app.function(keyword=...), other
functions tools.name(keyword=...). A value secret:NAME of the calls is a credential: pass the string
"secret:NAME" as it stands, it is filled in later; write no other credential.
Reply {"tools": [{"name": "...", "source": "...", "doc": "one line", "parameters": JSON schema
object, "needs": ["app.function", "tools.name"]}], "refuse": ""} or {"tools": [], "refuse": "why
not"} and nothing else."""

_REPAIR = """\
You repair one Python function that was not admitted. Keep its name, parameters and purpose; change
only what the reason asks for. Reply {"source": "...", "needs": ["app.function", "tools.name"]} and
nothing else."""


class _Function(StrictReply):
    name: str
    source: str
    doc: str
    parameters: dict[str, Any]
    needs: list[str] = Field(default_factory=list)


class _Functions(StrictReply):
    tools: list[_Function]
    refuse: str = ""


class _Repaired(StrictReply):
    source: str
    needs: list[str] = Field(default_factory=list)


@runtime_checkable
class Repairer(Protocol):
    """Mends a tool that was not admitted, once."""

    @property
    def name(self) -> str:
        """Who repairs, for the record."""
        ...

    def repair(self, tool: Tool, reason: str) -> tuple[Tool, Cost]:
        """The tool with another source. It sees the tool and the reason, and no run."""
        ...


@final
class ModelCodifier:
    """A chat model writes the functions; what it may not do is checked, not trusted."""

    def __init__(self, model: ChatModel) -> None:
        self._model = model

    @property
    def name(self) -> str:
        """The model's name."""
        return self._model.name

    def codify(self, given: CodifierInput) -> Codified:
        """Tools or a refusal. Raises ServerError where the model gives no usable reply."""
        queries = given.all_queries
        nothing = Cost(tokens_in=0, tokens_out=0)
        if given.support > 1 and (len(queries) < given.support or not _differ(queries)):
            return Codified(refused="no two of the queries are structurally different", cost=nothing)

        def check(found: _Functions) -> None:
            if bool(found.tools) == bool(found.refuse):
                raise BadInput('give "tools", or say in "refuse" why there are none')
            for one in found.tools:
                _tool(one, given)
                if one.name in given.taken:
                    raise BadInput(f"the name {one.name!r} is taken")

        messages = told(
            _CODE,
            plan=given.body,
            calls=[step.to_json() for step in given.skeleton] or "(none given)",
            functions=list(functions_of(given.skeleton)) or "(none given)",
            queries=list(queries),
            **{"names that are taken": list(given.taken)},
        )
        found, cost = ask(self._model, "codifier", messages, _Functions, check)
        if not found.tools:
            return Codified(refused=found.refuse, cost=cost)
        tools = tuple(_tool(one, given) for one in found.tools)
        if given.support > 1:
            for tool in tools:
                free = free_literals(literals_of(tool.source), queries)
                if free:
                    return Codified(
                        refused=f"{tool.name}: the literal {free[0]!r} is of some queries only", cost=cost
                    )
        return Codified(tools, cost=cost)


def _differ(queries: tuple[str, ...]) -> bool:
    """Whether two queries differ in wording, or in at least two of their typed slots."""
    for place, one in enumerate(queries):
        for other in queries[place + 1 :]:
            if masked(one) != masked(other):
                return True
            pairs = zip(tokens_of(one), tokens_of(other), strict=True)
            if sum(a.text.lower() != b.text.lower() for a, b in pairs) >= 2:
                return True
    return False


def _tool(one: _Function, given: CodifierInput) -> Tool:
    return Tool(
        id=f"tool:{given.plan}:{one.name}",
        name=one.name,
        source=one.source,
        doc=one.doc,
        parameters=dict(one.parameters),
        needs=tuple(one.needs),
        plan=given.plan,
        queries=given.all_queries,
    )


def literals_of(source: str) -> list[object]:
    """The strings and numbers in a source, docstrings left out; none where it does not parse."""
    try:
        tree = ast.parse(source)
    except (SyntaxError, ValueError):
        return []
    doc = {
        id(node.body[0].value)
        for node in ast.walk(tree)
        if isinstance(node, ast.FunctionDef | ast.Module) and node.body and isinstance(node.body[0], ast.Expr)
    }
    return [
        node.value
        for node in ast.walk(tree)
        if isinstance(node, ast.Constant)
        and id(node) not in doc
        and isinstance(node.value, str | int | float)
    ]


@final
class ModelRepairer:
    """One repair by a chat model."""

    def __init__(self, model: ChatModel) -> None:
        self._model = model

    @property
    def name(self) -> str:
        """The model's name."""
        return self._model.name

    def repair(self, tool: Tool, reason: str) -> tuple[Tool, Cost]:
        """The tool with another source. Raises ServerError where the model gives no usable reply."""

        def check(found: _Repaired) -> None:
            _with(tool, found)

        shown: Json = {"name": tool.name, "source": tool.source, "parameters": tool.parameters}
        found, cost = ask(
            self._model, "repairer", told(_REPAIR, function=shown, reason=reason), _Repaired, check
        )
        return _with(tool, found), cost


def _with(tool: Tool, found: _Repaired) -> Tool:
    return Tool.from_json(tool.to_json() | {"source": found.source, "needs": found.needs or list(tool.needs)})
