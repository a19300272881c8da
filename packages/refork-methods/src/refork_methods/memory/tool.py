"""What the memory keeps as code: one function that was built from a plan."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from refork.errors import BadInput
from refork.plain import from_json, to_json
from refork.types import Json

_IDENTIFIER = re.compile(r"[A-Za-z_][A-Za-z0-9_]*\Z")
_NEED = re.compile(r"[A-Za-z_][A-Za-z0-9_]*\.[A-Za-z_][A-Za-z0-9_]*\Z")


@dataclass(frozen=True, slots=True)
class Tool:
    """A function in the one calling convention of generated tools.

    ``source`` defines ``def NAME(apis, tools, *, parameter: type, ...) -> ...`` with a docstring; environment
    functions are ``apis.app.function(keyword=...)``, other tools ``tools.name(keyword=...)``.
    ``parameters`` is the JSON schema of its keywords. ``needs`` are the names that it calls: "app.function"
    and "tools.name". ``plan`` is the id of the plan, ``queries`` those that the tool was built from.
    """

    id: str
    name: str
    source: str
    doc: str
    parameters: Json
    needs: tuple[str, ...]
    plan: str
    queries: tuple[str, ...]

    def __post_init__(self) -> None:
        # ASCII only: another alphabet's letters can look like a name that is already there.
        if not _IDENTIFIER.match(self.name):
            raise BadInput(f"{self.name!r} cannot name a tool", hint="ASCII letters, digits and _")
        for need in self.needs:
            if not _NEED.match(need):
                raise BadInput(f"{need!r} is no name of a function", where=f"tool {self.name!r}")

    @property
    def dependencies(self) -> tuple[str, ...]:
        """Names of other tools that it calls."""
        return tuple(need.removeprefix("tools.") for need in self.needs if need.startswith("tools."))

    @property
    def functions(self) -> tuple[str, ...]:
        """Environment functions that it calls, "app.function"."""
        return tuple(need for need in self.needs if not need.startswith("tools."))

    @property
    def digest(self) -> str:
        """Sha256 (hex) of all that makes the tool what it is."""
        return hashlib.sha256(json.dumps(self.to_json(), sort_keys=True).encode()).hexdigest()

    def to_json(self) -> Json:
        """Plain fields."""
        return dict(to_json(self))

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Tool:
        """Inverse of :meth:`to_json`. Raises BadInput for a field that is missing."""
        return from_json(cls, dict(data))
