"""What a tool's source says of itself: function, parameters, docstring and calls, read without running it."""

from __future__ import annotations

import ast
import inspect
from collections.abc import Iterator
from dataclasses import dataclass

from refork.types import Json
from refork_methods.memory.tool import Tool

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
        yield f"the function takes {_told(names)}, the parameters say {_told(sorted(properties))}"
        return
    needed = [
        one.arg for one, value in zip(given.kwonlyargs, given.kw_defaults, strict=True) if value is None
    ]
    if sorted(needed) != sorted(tool.parameters.get("required", [])):
        required = sorted(tool.parameters.get("required", []))
        yield f"without default are {_told(needed)}, required are {_told(required)}"
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
    except ValueError:
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
            regular.add(id(value))
            name = ".".join(reversed(parts)) if value.id == "apis" else f"tools.{parts[0]}"
            keywords = tuple(one.arg for one in node.keywords if one.arg is not None)
            opened = len(keywords) != len(node.keywords)
            sites.append(CallSite(name, keywords, bool(node.args), opened, node.lineno))
    names = [node for node in ast.walk(tree) if isinstance(node, ast.Name) and node.id in _FIRST]
    return sites, sorted(node.lineno for node in names if id(node) not in regular)


def _told(names: list[str]) -> str:
    return ", ".join(names) or "nothing"
