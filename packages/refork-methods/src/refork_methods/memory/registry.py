"""The tools that were admitted, what each depends on, and how one is called."""

from __future__ import annotations

import json
from collections.abc import Container, Iterable, Mapping
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

from refork.errors import BadInput, CannotDo
from refork.sandbox import Call, Sandbox, SandboxResult
from refork.types import Json
from refork_methods.memory.runtime import Secrets, filled, from_environment
from refork_methods.memory.tool import Tool

#: How deep tools may call each other.
DEEPEST = 8


def full_name(name: str) -> str:
    """A name as ``needs`` write it: "tools.x" for a tool's bare name, others as they are."""
    return name if "." in name else f"tools.{name}"


@dataclass(frozen=True, slots=True)
class ToolRegistry:
    """An unchangeable set of tools, in the order of their names.

    Raises:
        BadInput: two tools of one name.
    """

    tools: tuple[Tool, ...] = ()

    def __post_init__(self) -> None:
        ordered = tuple(sorted(self.tools, key=lambda tool: tool.name))
        for one, other in pairwise(ordered):
            if one.name == other.name:
                raise BadInput(f"there are two tools {one.name!r}", hint="give one of them another name")
        object.__setattr__(self, "tools", ordered)

    @property
    def names(self) -> tuple[str, ...]:
        """Bare names, in order."""
        return tuple(tool.name for tool in self.tools)

    def __contains__(self, name: object) -> bool:
        return isinstance(name, str) and name.removeprefix("tools.") in self.names

    def tool(self, name: str) -> Tool:
        """The tool of a name, bare or "tools.x". Raises BadInput where there is none."""
        for tool in self.tools:
            if tool.name == name.removeprefix("tools."):
                return tool
        known = ", ".join(self.names) or "none"
        raise BadInput(f"there is no tool {name!r}", hint=f"there are: {known}")

    def dependencies(self, name: str) -> frozenset[str]:
        """What a name calls itself: a tool its needs, an environment function nothing. Raises BadInput."""
        full = full_name(name)
        return frozenset(self.tool(full).needs) if full.startswith("tools.") else frozenset()

    def close(self, names: Iterable[str], environment: Container[str] | None = None) -> frozenset[str]:
        """Everything that calling ``names`` may call: the least set with them that holds what its tools need.

        Names come back as "tools.x" and "app.function". Cycles end; the order of ``names`` does not matter.

        Raises:
            BadInput: a tool that is not here, or a function that ``environment`` (where given) has not.

        Source: arXiv:2606.24151 (dependency closure).
        """
        closed: set[str] = set()
        waiting = [(full_name(name), "") for name in names]
        while waiting:
            name, user = waiting.pop()
            if name in closed:
                continue
            by = f", which {user} needs" if user else ""
            if name.startswith("tools.") and name not in self:
                raise BadInput(f"there is no tool {name!r}{by}")
            if not name.startswith("tools.") and environment is not None and name not in environment:
                raise BadInput(f"the environment has no function {name!r}{by}")
            closed.add(name)
            waiting += [(need, name) for need in self.dependencies(name)]
        return frozenset(closed)

    def with_tool(self, tool: Tool) -> ToolRegistry:
        """The registry with a tool, in the place of one of the same name."""
        return ToolRegistry((*(one for one in self.tools if one.name != tool.name), tool))

    def without(self, name: str) -> ToolRegistry:
        """The registry without a tool. Raises BadInput where there is none, or another needs it."""
        gone = self.tool(name)
        users = [tool.name for tool in self.tools if tool is not gone and gone.name in tool.dependencies]
        if users:
            raise BadInput(f"{gone.name!r} is needed by {', '.join(users)}", hint="remove those first")
        return ToolRegistry(tuple(tool for tool in self.tools if tool is not gone))

    def to_bytes(self) -> bytes:
        """Canonical JSON: equal registries give equal bytes."""
        tools = [tool.to_json() for tool in self.tools]
        return json.dumps({"tools": tools}, sort_keys=True, ensure_ascii=False, indent=1).encode()

    @classmethod
    def from_bytes(cls, data: bytes) -> ToolRegistry:
        """Inverse of :meth:`to_bytes`. Raises BadInput for what is no registry."""
        try:
            return cls(tuple(Tool.from_json(one) for one in json.loads(data)["tools"]))
        except (ValueError, KeyError, TypeError) as error:
            raise BadInput(f"this is no registry of tools: {error}") from error


def invoke(
    registry: ToolRegistry,
    sandbox: Sandbox,
    name: str,
    arguments: Mapping[str, Any],
    call: Call | None = None,
    *,
    depth: int = DEEPEST,
    secrets: Secrets | None = from_environment,
) -> SandboxResult:
    """Run a tool of the registry in the sandbox, and the tools that it calls too, each in its own process.

    ``call`` answers for the environment: name "app.function" and keyword arguments. A tool reaches what its
    ``needs`` declare and nothing else; other calls are told to it as errors. ``secrets`` gives the values of
    secrets that the tool names; they do not enter the sandbox. None: names are passed on as they stand.

    Raises:
        BadInput: no such tool, or arguments that are not JSON.
    """
    tool = registry.tool(name)

    def answer(asked: str, keywords: Json) -> Any:
        if asked not in tool.needs:
            raise CannotDo(f"{tool.name} may not call {asked}", hint="it is not among its declared needs")
        if not asked.startswith("tools."):
            if call is None:
                raise CannotDo(f"there is no environment to answer {asked}")
            return call(asked, filled(asked, keywords, secrets))
        if depth <= 0:
            raise CannotDo(f"tools call each other more than {DEEPEST} deep", where=asked)
        result = invoke(registry, sandbox, asked, keywords, call, depth=depth - 1, secrets=secrets)
        if not result.ok:
            raise CannotDo(f"{asked} failed ({result.kind}): {result.error}")
        return result.value

    return sandbox.run(tool.source, tool.name, arguments, answer)
