"""The admission seam: who says whether a tool may enter the memory."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Protocol, final, runtime_checkable

from refork.plain import content_hash
from refork.sandbox import Sandbox
from refork.types import Json
from refork_methods.memory.admission import Admission, ReplayCase, admit
from refork_methods.memory.registry import ToolRegistry
from refork_methods.memory.roles.code_by_model import Repairer
from refork_methods.memory.tool import Tool


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
