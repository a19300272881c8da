"""The door of the registry: a tool is admitted whole, or the registry stays as it was."""

from __future__ import annotations

import ast
import inspect
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, final, runtime_checkable

from refork.errors import BadInput, ServerError
from refork.plain import content_hash
from refork.policies.base import Cost
from refork.sandbox import Call, Sandbox, SandboxResult, screen
from refork.types import Json
from refork_methods.memory.registry import ToolRegistry, invoke
from refork_methods.memory.roles.by_model import Repairer
from refork_methods.memory.tool import Tool

# What a tool's source says of itself: function, parameters, docstring and calls, read without running it.

#: Annotation -> JSON schema type.
TYPES = {
    "str": "string",
    "int": "integer",
    "float": "number",
    "bool": "boolean",
    "list": "array",
    "dict": "object",
}
_FIRST = ["apis", "tools"]


def disagreement(tool: Tool, tree: ast.Module) -> str | None:
    """Where a tool's fields and its source differ, in words; None where they agree."""
    found = [node for node in tree.body if isinstance(node, ast.FunctionDef) and node.name == tool.name]
    if len(found) != 1:
        return f"the source must define one function {tool.name!r}, not {len(found)}"
    for reason in (*_signature(tool, found[0]), *_doc(tool, found[0]), *_calls(tool, tree)):
        return reason
    return None


def _signature(tool: Tool, function: ast.FunctionDef) -> Iterator[str]:
    given = function.args
    if [one.arg for one in (*given.posonlyargs, *given.args)] != _FIRST or given.vararg or given.kwarg:
        yield f"the function must be {tool.name}(apis, tools, *, parameter: type, ...)"
        return
    properties: Json = tool.parameters.get("properties", {})
    names = [one.arg for one in given.kwonlyargs]
    if tool.parameters.get("type", "object") != "object" or not isinstance(properties, dict):
        yield "the parameters must be a JSON schema of an object"
        return
    if sorted(names) != sorted(properties):
        yield f"the function takes {_name_list(names)}, the parameters say {_name_list(sorted(properties))}"
        return
    needed = [
        one.arg for one, value in zip(given.kwonlyargs, given.kw_defaults, strict=True) if value is None
    ]
    if sorted(needed) != sorted(tool.parameters.get("required", [])):
        required = sorted(tool.parameters.get("required", []))
        yield f"without default are {_name_list(needed)}, required are {_name_list(required)}"
    for one, value in zip(given.kwonlyargs, given.kw_defaults, strict=True):
        if value is not None and not _constant(value):
            yield f"the default of {one.arg!r} must be a constant"
        wanted, schema = _type(one.annotation), properties[one.arg]
        if wanted is None:
            yield f"the parameter {one.arg!r} needs one of the types {', '.join(TYPES)}"
        elif not isinstance(schema, dict) or schema.get("type") != wanted:
            yield f"the parameter {one.arg!r} is {wanted} in the source and {schema!r} in the parameters"


def _constant(value: ast.expr) -> bool:
    try:
        ast.literal_eval(value)
    except (ValueError, TypeError, MemoryError, RecursionError):
        return False
    return True


def _type(annotation: ast.expr | None) -> str | None:
    if isinstance(annotation, ast.Subscript):
        annotation = annotation.value
    return TYPES.get(annotation.id) if isinstance(annotation, ast.Name) else None


def _doc(tool: Tool, function: ast.FunctionDef) -> Iterator[str]:
    doc = ast.get_docstring(function)
    if not doc or not doc.strip():
        yield "the function has no docstring"
    elif not tool.doc.strip() or _words(doc)[: len(_words(tool.doc))] != _words(tool.doc):
        yield "the docstring does not begin with the tool's doc"


def _words(text: str) -> list[str]:
    return inspect.cleandoc(text).split()


def _calls(tool: Tool, tree: ast.Module) -> Iterator[str]:
    sites, odd = call_sites(tree)
    used = {site.name for site in sites}
    for node in ast.walk(tree):
        if isinstance(node, ast.Name) and node.id == tool.name:
            yield f"it calls itself (line {node.lineno})"
    if odd:
        yield f"apis and tools may be used as apis.app.function(...) and tools.name(...) only (line {odd[0]})"
    if f"tools.{tool.name}" in used | set(tool.needs):
        yield "it depends on itself"
    if extra := sorted(used - set(tool.needs)):
        yield f"it calls {', '.join(extra)}, which its needs do not declare"
    if idle := sorted(set(tool.needs) - used):
        yield f"its needs declare {', '.join(idle)}, which it never calls"
    for site in sites:
        if site.positional:
            yield f"{site.name} takes keyword arguments only (line {site.line})"


@dataclass(frozen=True, slots=True)
class CallSite:
    """One call of an environment function or another tool; ``open`` where a ``**`` may add keywords."""

    name: str
    keywords: tuple[str, ...]
    positional: bool
    open: bool
    line: int

    def misfit(self, schema: Json) -> str | None:
        """Why this call cannot fit a function of these parameters (a JSON schema); None where it can."""
        properties = schema.get("properties")
        if not isinstance(properties, dict):
            return None
        # JSON Schema allows what it does not mention; a function of an environment refuses such keywords.
        if schema.get("additionalProperties") is not True:
            for unknown in (key for key in self.keywords if key not in properties):
                return f"{self.name} has no parameter {unknown!r} (line {self.line})"
        for missing in (
            key for key in schema.get("required", ()) if key not in self.keywords and not self.open
        ):
            return f"{self.name} needs {missing!r} (line {self.line})"
        return None


def call_sites(tree: ast.AST) -> tuple[list[CallSite], list[int]]:
    """The calls that a source makes, and the lines where ``apis`` or ``tools`` are used otherwise."""
    sites: list[CallSite] = []
    regular: set[int] = set()
    for node in ast.walk(tree):
        if not isinstance(node, ast.Call):
            continue
        parts, value = [], node.func
        while isinstance(value, ast.Attribute):
            parts.append(value.attr)
            value = value.value
        if isinstance(value, ast.Name) and (value.id, len(parts)) in {("apis", 2), ("tools", 1)}:
            # By the node, not the name: any other use of apis or tools, as handing them on, would hide calls.
            regular.add(id(value))
            name = ".".join(reversed(parts)) if value.id == "apis" else f"tools.{parts[0]}"
            keywords = tuple(one.arg for one in node.keywords if one.arg is not None)
            opened = len(keywords) != len(node.keywords)
            sites.append(CallSite(name, keywords, bool(node.args), opened, node.lineno))
    names = [node for node in ast.walk(tree) if isinstance(node, ast.Name) and node.id in _FIRST]
    return sites, sorted(node.lineno for node in names if id(node) not in regular)


def _name_list(names: list[str]) -> str:
    return ", ".join(names) or "nothing"


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
    # Only now, as it runs the module: what can be read from the source was ruled on before.
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


# The admission seam: who says whether a tool may enter the memory.


@runtime_checkable
class Guard(Protocol):
    """Rules on tools."""

    def admit(self, tool: Tool, admitted: Sequence[Tool]) -> Admission:
        """The ruling on a tool beside those that were admitted before."""
        ...

    def fingerprints(self, tool: Tool) -> dict[str, str]:
        """A digest of what is documented of every function that the tool calls."""
        ...


def fingerprints(tool: Tool, catalogue: Mapping[str, Json]) -> dict[str, str]:
    """Digest of the schema (its descriptions too) of every function of the catalogue that a tool calls."""
    return {name: content_hash(catalogue[name]) for name in tool.functions if name in catalogue}


@final
class AdmissionGuard:
    """Closure, compilation, signature and sandbox, with one repair where there is a repairer.

    ``catalogue``: "app.function" -> JSON schema of its parameters. ``replay``: recorded states to try on.
    """

    def __init__(
        self,
        catalogue: Mapping[str, Json],
        sandbox: Sandbox | None = None,
        repairer: Repairer | None = None,
        replay: Sequence[ReplayCase] = (),
    ) -> None:
        self.catalogue = dict(catalogue)
        self._sandbox = sandbox or Sandbox()
        self._repairer = repairer
        self._replay = tuple(replay)

    def admit(self, tool: Tool, admitted: Sequence[Tool]) -> Admission:
        """The ruling on a tool."""
        registry = ToolRegistry(tuple(admitted))
        return admit(tool, registry, self.catalogue, self._sandbox, self._repairer, replay=self._replay)

    def fingerprints(self, tool: Tool) -> dict[str, str]:
        """Digests of what the catalogue says of the tool's functions."""
        return fingerprints(tool, self.catalogue)
