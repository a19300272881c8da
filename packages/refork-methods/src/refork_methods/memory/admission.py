"""The guard at the registry's door: a tool is admitted whole, or the registry stays as it was."""

from __future__ import annotations

import ast
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from refork.errors import BadInput, ServerError
from refork.policies.base import Cost
from refork.sandbox import Call, Sandbox, SandboxResult, screen
from refork.types import Json
from refork_methods.memory.registry import ToolRegistry, invoke
from refork_methods.memory.roles.code_by_model import Repairer
from refork_methods.memory.signature import call_sites, disagreement
from refork_methods.memory.tool import Tool

#: What no repair costs.
NOTHING = Cost(tokens_in=0, tokens_out=0)
#: Names that generated code uses otherwise.
RESERVED = frozenset({"apis", "tools"})


def _finished(result: SandboxResult) -> bool:
    return result.ok


@dataclass(frozen=True, slots=True)
class ReplayCase:
    """A recorded state to try a tool on: ``restore`` gives the environment there, as a call function.

    ``accept`` says whether the result will do; by default every value does.
    """

    arguments: Mapping[str, Any]
    restore: Callable[[], Call]
    accept: Callable[[SandboxResult], bool] = _finished


@dataclass(frozen=True, slots=True)
class Admission:
    """What became of a tool: the registry afterwards, and the reason where it was refused.

    ``tool`` is the version that was admitted, or the last one that was refused; ``repaired`` says whether
    that is the repairer's, ``cost`` what the repair took; ``first_reason`` is why the first version failed.
    """

    admitted: bool
    reason: str
    tool: Tool
    registry: ToolRegistry
    repaired: bool = False
    first_reason: str = ""
    cost: Cost = NOTHING


def admit(
    tool: Tool,
    registry: ToolRegistry,
    catalogue: Mapping[str, Json],
    sandbox: Sandbox,
    repairer: Repairer | None = None,
    *,
    replay: Sequence[ReplayCase] = (),
) -> Admission:
    """Admit a tool to a registry, after one repair at most; refused, the registry is the same object.

    ``catalogue``: "app.function" -> JSON schema of its parameters. A tool takes the place of one that has its
    name and its plan.

    Source: arXiv:2606.24151 (admission: compile against the closure, one repair round). The import list,
    the sandbox, the agreement of signature, doc and parameters, and the optional replay are ours. Whether
    the tool does what it should is not tested unless ``replay`` is given.
    """
    reason = objection(tool, registry, catalogue, sandbox, replay)
    if reason is None:
        return Admission(True, "", tool, registry.with_tool(tool))
    if repairer is None:
        return Admission(False, reason, tool, registry)
    try:
        mended, cost = repairer.repair(tool, reason)
    except ServerError as error:
        return Admission(False, f"{reason}; and its repair failed: {error.what}", tool, registry)
    second = objection(mended, registry, catalogue, sandbox, replay)
    if second is None:
        after = registry.with_tool(mended)
        return Admission(True, "", mended, after, repaired=True, first_reason=reason, cost=cost)
    return Admission(False, second, mended, registry, repaired=True, first_reason=reason, cost=cost)


def objection(
    tool: Tool,
    registry: ToolRegistry,
    catalogue: Mapping[str, Json],
    sandbox: Sandbox,
    replay: Sequence[ReplayCase] = (),
) -> str | None:
    """Why a tool may not enter the registry; None where nothing speaks against it."""
    tree, refused = screen.parsed(tool.source)
    if tree is None:
        return refused
    found = (
        _clash(tool, registry, catalogue)
        or disagreement(tool, tree)
        or _closure(tool, registry, catalogue)
        or _misfit(tree, registry, catalogue)
    )
    if found:
        return found
    loaded = sandbox.load(tool.source, tool.name)
    if not loaded.ok:
        return f"it does not load ({loaded.kind}): {loaded.error}"
    after = registry.with_tool(tool)
    for number, case in enumerate(replay, 1):
        result = invoke(after, sandbox, tool.name, case.arguments, case.restore())
        if not case.accept(result):
            told = f"{result.kind}: {result.error}" if not result.ok else f"it gave {result.value!r}"
            return f"replay {number} of {len(replay)} was not accepted: {told}"
    return None


def _clash(tool: Tool, registry: ToolRegistry, catalogue: Mapping[str, Json]) -> str | None:
    if tool.name in RESERVED:
        return f"{tool.name!r} means something else in generated code"
    for name in catalogue:
        if tool.name in name.split("."):
            return f"the name {tool.name!r} clashes with the environment's {name!r}"
    if tool.name in registry and registry.tool(tool.name).plan != tool.plan:
        return f"there is a tool {tool.name!r} already, from another plan"
    return None


def _closure(tool: Tool, registry: ToolRegistry, catalogue: Mapping[str, Json]) -> str | None:
    try:
        closed = registry.close(tool.needs, catalogue)
    except BadInput as error:
        return error.what
    if f"tools.{tool.name}" in closed:
        return "it depends on itself through other tools"
    return None


def _misfit(tree: ast.Module, registry: ToolRegistry, catalogue: Mapping[str, Json]) -> str | None:
    """The first call that cannot fit the parameters of what it calls."""
    for site in call_sites(tree)[0]:
        schema = (
            registry.tool(site.name).parameters if site.name in registry else catalogue.get(site.name, {})
        )
        if found := site.misfit(schema):
            return found
    return None
