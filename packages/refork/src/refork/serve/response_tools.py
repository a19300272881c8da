"""Tools of ``/v1/responses`` that are no plain functions, as the functions that a model is told of, and back.

What a client runs itself (shells, patches, free text, searches in its own list) is a function with the
arguments that its call has, and the answer holds the call of that kind. What only a provider can run is left
out.
"""

from __future__ import annotations

import json
import logging
import re
import uuid
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, final

from refork.serve.api import FlatAllowedTools, FlatNamedTool
from refork.serve.refusal import BadParameter
from refork.types import Json, Message

_log = logging.getLogger("refork.server")
#: Kinds that a client runs, with the name under which a model is told of them.
_OWN = {
    "local_shell": "local_shell",
    "shell": "shell",
    "apply_patch": "apply_patch",
    "tool_search": "tool_search",
}
_STRING, _NUMBER = {"type": "string"}, {"type": "integer", "minimum": 0}


def _parameters(required: Sequence[str], **properties: Json) -> Json:
    return {
        "type": "object",
        "properties": properties,
        "required": list(required),
        "additionalProperties": False,
    }


_INPUT = _parameters(["input"], input=_STRING)
_LOCAL_SHELL: Json = {
    "name": "local_shell",
    "description": "Runs a command on the user's machine: the program and its arguments, one by one.",
    "parameters": _parameters(
        ["command"],
        command={"type": "array", "items": _STRING, "minItems": 1},
        working_directory=_STRING,
        timeout_ms=_NUMBER,
    ),
}
_SHELL: Json = {
    "name": "shell",
    "description": "Runs shell commands on the user's machine, each on its own.",
    "parameters": _parameters(
        ["commands"],
        commands={"type": "array", "items": _STRING, "minItems": 1},
        timeout_ms=_NUMBER,
        max_output_length=_NUMBER,
    ),
}
_PATCH: Json = {
    "name": "apply_patch",
    "description": "Creates, updates or deletes one file; diff is a V4A diff, and empty to delete.",
    "parameters": _parameters(
        ["type", "path", "diff"],
        type={"enum": ["create_file", "update_file", "delete_file"]},
        path=_STRING,
        diff=_STRING,
    ),
}


@final
@dataclass(frozen=True, slots=True)
class OfferedTool:
    """One tool: its kind, the client's names for it, the function that stands for it, and where it stands."""

    kind: str
    name: str
    namespace: str | None
    function: Json
    where: str


@final
@dataclass(slots=True)
class ResponseTools:
    """All tools of a request: ``offered`` by the names that a model knows, ``left_out`` by kind."""

    offered: dict[str, OfferedTool] = field(default_factory=dict)
    left_out: dict[str, None] = field(default_factory=dict)

    @classmethod
    def of(cls, tools: Sequence[Json], items: str | Sequence[Json]) -> ResponseTools:
        """Those of a request, with those that its items add; of two of one name the later one counts.

        Raises: BadParameter for what is no tool.
        """
        found = cls()
        found.add(tools, "tools")
        for number, item in enumerate([] if isinstance(items, str) else items):
            if item.get("type") in ("additional_tools", "tool_search_output"):
                found.add(item.get("tools") or [], f"input.{number}.tools")
        if found.left_out:
            _log.warning("tools that only a provider runs are left out: %s", found.left_out_words)
        return found

    def add(self, tools: object, where: str, namespace: str | None = None) -> None:
        """Add a list of tools that stands at ``where``. Raises BadParameter for what is no tool."""
        if not isinstance(tools, list):
            raise BadParameter(where, f"{where}: this is no list of tools")
        for number, tool in enumerate(tools):
            at = f"{where}.{number}"
            kind = tool.get("type") if isinstance(tool, dict) else None
            if not isinstance(kind, str):
                raise BadParameter(at, f"{at}: a tool has a type")
            if kind == "namespace":
                self.add(tool.get("tools"), f"{at}.tools", _name(tool, at))
                continue
            function = _function(tool, kind, at)
            if function is None:
                self.left_out[kind] = None
                continue
            name = _OWN.get(kind) or str(function["name"])
            told = flat_name(name, namespace)
            self.offered[told] = OfferedTool(kind, name, namespace, {**function, "name": told}, at)

    @property
    def functions(self) -> list[Json]:
        """What a model is told of."""
        return [tool.function for tool in self.offered.values()]

    def parameters_at(self, number: int) -> str:
        """Where a request has the parameters of a function, by its number."""
        return f"{list(self.offered.values())[number].where}.parameters"

    def named(self, choice: FlatNamedTool) -> str:
        """The function that a request names. Raises BadParameter where only a provider runs it."""
        if choice.type not in ("function", "custom", *_OWN):
            raise BadParameter("tool_choice", f"tool_choice: {choice.type!r} cannot be had here"[:200])
        return flat_name(choice.name or choice.type, choice.namespace)

    def some(self, choice: FlatAllowedTools) -> list[str]:
        """The functions that a request allows; of kinds that only a provider runs it may name others besides.

        Raises: BadParameter where one of those must be called.
        """
        ours = [tool for tool in choice.tools if tool.type not in self.left_out]
        must = not ours and choice.mode == "required"
        return [self.named(tool) for tool in (choice.tools if must else ours)]

    @property
    def left_out_words(self) -> str:
        """Kinds of tools that the model was not told of."""
        told = [kind if re.fullmatch(r"\w{1,40}", kind, re.ASCII) else "..." for kind in self.left_out]
        return ", ".join(told[:50])

    @property
    def header(self) -> dict[str, str]:
        """The header ``refork-tools-left-out``, where there are such tools."""
        return {"refork-tools-left-out": self.left_out_words} if self.left_out else {}

    def call_items(self, message: Message) -> list[Json]:
        """The calls of a message as items of the answer, each of its tool's kind."""
        return [self._item(call["id"], call["function"]) for call in message.get("tool_calls") or []]

    def _item(self, call_id: str, function: Json) -> Json:
        told, said = str(function["name"]), str(function["arguments"])
        tool = self.offered.get(told) or OfferedTool("function", told, None, {}, "")
        space = {} if tool.namespace is None else {"namespace": tool.namespace}
        given = _object(said)
        if tool.kind == "custom":
            made: Json = {"type": "custom_tool_call", "name": tool.name, "input": _free(given, said), **space}
        elif tool.kind in _CALLS and (content := _CALLS[tool.kind](given)) is not None:
            made = {"type": f"{tool.kind}_call", **content}
        else:
            # Arguments that do not make a call of the kind are the client's to refuse, as what was said.
            made = {"type": "function_call", "name": tool.name, "arguments": said, **space}
        short = {"function_call": "fc", "custom_tool_call": "ctc"}.get(str(made["type"]), "call")
        return {"id": f"{short}_{uuid.uuid4().hex}", "status": "completed", "call_id": call_id, **made}


def flat_name(name: str, namespace: str | None) -> str:
    """A tool's name as a model knows it."""
    return f"{namespace}__{name}" if namespace else name


def _name(tool: Json, at: str) -> str:
    name = tool.get("name")
    if not isinstance(name, str) or not name:
        raise BadParameter(at, f"{at}: a tool of type {tool.get('type')!r} has a name"[:200])
    return name


def _function(tool: Json, kind: str, at: str) -> Json | None:
    """The function that stands for a tool; None where only a provider runs it."""
    if kind == "function":
        _name(tool, at)
        return {key: tool[key] for key in ("name", "description", "parameters", "strict") if key in tool}
    if kind == "custom":
        name, told = _name(tool, at), str(tool.get("description") or "")
        form = _dict(tool.get("format"))
        grammar = f"It follows this {form.get('syntax')} grammar:\n{form.get('definition')}"
        parts = [told, "Its whole input is the text of the argument `input`."]
        parts += [grammar] if form.get("type") == "grammar" else []
        return {
            "name": name,
            "description": "\n\n".join(part for part in parts if part),
            "parameters": _INPUT,
        }
    if kind == "local_shell":
        return _LOCAL_SHELL
    if kind == "shell" and _dict(tool.get("environment")).get("type", "local") == "local":
        return _SHELL
    if kind == "apply_patch":
        return _PATCH
    if kind == "tool_search" and tool.get("execution") == "client":
        return {
            "name": "tool_search",
            "description": str(tool.get("description") or "Searches for tools."),
            "parameters": tool.get("parameters") or {"type": "object"},
        }
    return None


# -- calls, as the items that answers have -----------------------------------------------------------


def _object(said: str) -> Json | None:
    try:
        given = json.loads(said)
    except ValueError:
        return None
    return given if isinstance(given, dict) else None


def _free(given: Json | None, said: str) -> str:
    """The free text of a call: its argument, or all that was said where it has no such one."""
    found = (given or {}).get("input")
    return found if isinstance(found, str) else said


def _local_shell_call(given: Json | None) -> Json | None:
    command = (given or {}).get("command")
    if given is None or not _texts(command):
        return None
    more = {key: given[key] for key in ("working_directory", "timeout_ms") if given.get(key) is not None}
    return {"action": {"type": "exec", "command": command, "env": {}, **more}}


def _shell_call(given: Json | None) -> Json | None:
    commands = (given or {}).get("commands")
    if given is None or not _texts(commands):
        return None
    more = {key: given.get(key) for key in ("timeout_ms", "max_output_length")}
    return {"action": {"commands": commands, **more}, "environment": {"type": "local"}}


def _apply_patch_call(given: Json | None) -> Json | None:
    kind, path, diff = ((given or {}).get(key) for key in ("type", "path", "diff"))
    if kind not in _PATCH["parameters"]["properties"]["type"]["enum"] or not isinstance(path, str):
        return None
    return {
        "operation": {"type": kind, "path": path} | ({"diff": diff or ""} if kind != "delete_file" else {})
    }


def _tool_search_call(given: Json | None) -> Json | None:
    return None if given is None else {"arguments": given, "execution": "client"}


_CALLS: Mapping[str, Callable[[Json | None], Json | None]] = {
    "local_shell": _local_shell_call,
    "shell": _shell_call,
    "apply_patch": _apply_patch_call,
    "tool_search": _tool_search_call,
}


def _dict(given: object) -> Json:
    return given if isinstance(given, dict) else {}


def _texts(given: object) -> bool:
    return isinstance(given, list) and bool(given) and all(isinstance(one, str) for one in given)


# -- calls and outputs of earlier turns, as a chat has them -------------------------------------------


def call_of_item(item: Json) -> Json | None:
    """A call among a request's items, as a message has it; None: it is none that can be read."""
    kind, name, given = item.get("type"), item.get("name"), None
    if kind in ("function_call", "custom_tool_call") and not isinstance(name, str):
        return None
    if kind == "function_call":
        given = str(item.get("arguments") or "{}")
    elif kind == "custom_tool_call":
        given = json.dumps({"input": str(item.get("input") or "")}, ensure_ascii=False)
    elif kind in ("local_shell_call", "shell_call", "apply_patch_call"):
        name = str(kind).removesuffix("_call")
        inner = _dict(item.get("action") or item.get("operation"))
        dropped = {"env"} | ({"type"} if kind == "local_shell_call" else set())
        kept = {key: value for key, value in inner.items() if value is not None and key not in dropped}
        given = json.dumps(kept, ensure_ascii=False)
    elif kind == "tool_search_call" and item.get("execution") == "client":
        name, given = "tool_search", json.dumps(item.get("arguments") or {}, ensure_ascii=False)
    if given is None:
        return None
    function = {"name": flat_name(str(name), item.get("namespace")), "arguments": given}
    return {"id": str(item.get("call_id") or item.get("id") or ""), "type": "function", "function": function}


def output_of_item(item: Json, text: Callable[[Any], str]) -> tuple[str, str] | None:
    """Which call an item answers, and what came out; ``text`` reads content. None: it is no output."""
    kind, output = item.get("type"), item.get("output")
    # An output of `local_shell` may name its call as its own id.
    call = str(item.get("call_id") or item.get("id") or "")
    if kind in ("function_call_output", "custom_tool_call_output", "local_shell_call_output"):
        return call, text(output)
    if kind == "shell_call_output":
        return call, json.dumps(output, ensure_ascii=False)
    if kind == "apply_patch_call_output":
        return call, "\n".join(str(part) for part in (item.get("status"), output) if part)
    if kind == "tool_search_output" and item.get("execution") == "client":
        found = ResponseTools()
        found.add(item.get("tools") or [], "tools")
        return call, "found: " + (", ".join(found.offered) or "none")
    return None
