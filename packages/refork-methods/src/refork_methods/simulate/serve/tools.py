"""The tools of a simulated task: what may be done in it, as function schemas, and calls as actions."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, final, runtime_checkable

from refork.errors import BadInput
from refork.types import Json
from refork.worlds.base import Task
from refork.worlds.environment import Brief, DomainName, Environment
from refork_worlds.tools.call import call_text
from refork_worlds.tools.world import ToolsWorld, goal_of

_SIGNATURE = re.compile(r"^\s*([A-Za-z_][\w.-]*)\(([^()]*)\)\s*$", re.MULTILINE)
_ARGUMENT = re.compile(r"\[\s*([A-Za-z_]\w*)\s*\]|([A-Za-z_]\w*)")
_COMMAND: dict[str, tuple[str, str]] = {
    "terminal": ("shell", "command"),
    "swe": ("shell", "command"),
}


@runtime_checkable
class ListsTools(Protocol):
    """A world that says its tasks' tools itself."""

    def tool_schemas(self, task: Task) -> Sequence[Json]:
        """Each with ``name``, ``description`` and ``parameters`` (a JSON schema)."""
        ...


@final
@dataclass(frozen=True, slots=True)
class ActionTool:
    """A tool, and how its call is written as an action: canonical JSON, or the text of its ``argument``."""

    name: str
    description: str
    schema: Json
    argument: str | None = None

    def action(self, arguments: Mapping[str, Any]) -> str:
        """The call as the world's action. Raises BadInput where the one argument is missing or no text."""
        if self.argument is not None:
            text = arguments.get(self.argument)
            if not isinstance(text, str):
                raise BadInput(f"{self.name} needs its argument {self.argument}, a text", where=self.name)
            return text
        return call_text(self.name, arguments)


def tools_for(world: Environment, task: Task, brief: Brief) -> list[ActionTool]:
    """The tools of a task: those the world lists, or its action space spells as ``name(argument [option])``.

    Any other action space is one tool that takes the action as text.
    """
    listed = _listed(world, task)
    if not listed:
        listed = [_spelled(*found) for found in _SIGNATURE.findall(brief.action_space)]
    if listed:
        return [
            ActionTool(str(one["name"]), str(one.get("description", "")), _object(one.get("parameters")))
            for one in listed
        ]
    return [_one_tool(world.domain, brief.action_space)]


def _listed(world: Environment, task: Task) -> list[Json]:
    if isinstance(world, ListsTools):
        return list(world.tool_schemas(task))
    if isinstance(world, ToolsWorld):
        return _of_database(task)
    given = task.data.get("tools")
    functions = [one.get("function", one) for one in given if isinstance(one, dict)] if given else []
    return [one for one in functions if isinstance(one.get("name"), str)]


def _of_database(task: Task) -> list[Json]:
    """Schemas of the typed tools, from the models that check their arguments."""
    from refork_worlds.tools.actors import SUBMIT
    from refork_worlds.tools.service import tools_of

    found: list[Json] = []
    for name, tool in tools_of(goal_of(task).database).items():
        said = f"{tool.doc}: {tool.signature}"
        found.append({"name": name, "description": said, "parameters": tool.parameters})
    answer = {"type": "object", "properties": {"answer": {"type": "string"}}}
    found.append(
        {"name": SUBMIT, "description": "The task is done; the answer, if asked.", "parameters": answer}
    )
    return found


def _object(schema: Any) -> Json:
    return {"type": "object", "properties": {}, **(schema if isinstance(schema, dict) else {})}


def _spelled(name: str, inside: str) -> Json:
    """A signature as a schema; the types of arguments are not known."""
    properties: Json = {}
    required: list[str] = []
    for optional, needed in _ARGUMENT.findall(inside):
        properties[optional or needed] = {}
        required += [needed] if needed else []
    return {
        "name": name,
        "description": f"{name}({inside})",
        "parameters": {"type": "object", "properties": properties, "required": required},
    }


def _one_tool(domain: DomainName, space: str) -> ActionTool:
    name, argument = _COMMAND.get(domain, ("act", "action"))
    schema: Json = {
        "type": "object",
        "properties": {argument: {"type": "string"}},
        "required": [argument],
    }
    return ActionTool(name, space or f"One {argument}, as text.", schema, argument)
