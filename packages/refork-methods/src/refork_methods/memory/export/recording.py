"""A tool's run on a real or replayed environment, kept so that an export can be tested without one."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from refork.errors import BadInput
from refork.sandbox import Call, Sandbox
from refork.types import Json
from refork_methods.memory.registry import ToolRegistry, invoke
from refork_methods.memory.runtime import Secrets, filled, from_environment


@dataclass(frozen=True, slots=True)
class Recording:
    """One run: which tool, its arguments, each call of the environment with its answer, and the value."""

    tool: str
    arguments: Json
    calls: tuple[tuple[str, Json, Any], ...]
    value: Any

    def to_json(self) -> Json:
        """Plain fields."""
        calls = [{"name": name, "arguments": given, "answer": answer} for name, given, answer in self.calls]
        return {"tool": self.tool, "arguments": self.arguments, "calls": calls, "value": self.value}

    def told_calls(self) -> list[tuple[str, Json]]:
        """Its calls with the arguments that no earlier answer held."""
        seen: set[str] = set()
        found = []
        for name, given, answer in self.calls:
            found.append((name, {k: v for k, v in given.items() if json.dumps(v) not in seen}))
            seen |= set(re.findall(r'"[^"\\]*"|[\d.]+', json.dumps(answer)))
        return found


def record(
    registry: ToolRegistry,
    sandbox: Sandbox,
    name: str,
    arguments: Mapping[str, Any],
    call: Call,
    secrets: Secrets | None = from_environment,
) -> Recording:
    """Run a tool in the sandbox and keep what it asked the environment and what it gave; secrets by name.

    Raises:
        BadInput: the run gave no value.
    """
    calls: list[tuple[str, Json, Any]] = []

    def kept(asked: str, given: Json) -> Any:
        answer = call(asked, filled(asked, given, secrets))
        calls.append((asked, given, answer))
        return answer

    result = invoke(registry, sandbox, name, arguments, kept, secrets=None)
    if not result.ok:
        raise BadInput(f"{name} gave no value ({result.kind}): {result.error}", where="recording")
    return Recording(registry.tool(name).name, dict(arguments), tuple(calls), result.value)
