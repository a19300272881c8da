"""Tools as a folder that ``python -m refork_methods.memory.export.mcp_server`` serves."""

from __future__ import annotations

import json
import sys
from pathlib import Path

from refork.errors import BadInput
from refork_methods.memory.export.folder import write_files
from refork_methods.memory.registry import ToolRegistry
from refork_methods.memory.runtime import variable
from refork_methods.memory.secrets import names_in, refuse_secrets

TOOLS = "tools.json"
MODULE = "refork_methods.memory.export.mcp_server"


def export_mcp(
    registry: ToolRegistry,
    folder: str | Path,
    *,
    call: str | None = None,
    name: str = "memory-tools",
    allow_secrets: bool = False,
) -> list[Path]:
    """Write what an MCP server of a registry's tools needs, and the entry for a client's settings.

    ``call`` is "module:function": the function of (name, arguments) that answers for the environment.

    Raises:
        BadInput: no tools, or a folder that is not empty.
        CannotDo: something looks like a secret, unless ``allow_secrets``.
    """
    if not registry.tools:
        raise BadInput("there is no tool to export")
    if not allow_secrets:
        refuse_secrets(registry.tools)
    folder = Path(folder)
    arguments = ["-m", MODULE, str(folder.resolve() / TOOLS)]
    arguments += ["--call", call or "MODULE:FUNCTION"] if environment_needs(registry) else []
    entry = {"mcpServers": {name: {"command": sys.executable, "args": arguments}}}
    files = {
        TOOLS: registry.to_bytes().decode() + "\n",
        "mcp.json": json.dumps(entry, indent=1) + "\n",
        "README.md": _readme(registry, name, call),
    }
    return write_files(folder, files)


def environment_needs(registry: ToolRegistry) -> list[str]:
    """The environment functions that the tools call."""
    return sorted({need for tool in registry.tools for need in tool.functions})


def _readme(registry: ToolRegistry, name: str, call: str | None) -> str:
    needs = environment_needs(registry)
    lines = [
        f"# {name}",
        "",
        f"An MCP server of {len(registry.tools)} tools: {', '.join(registry.names)}.",
        "",
    ]
    lines += ["Every call runs in Refork's sandbox. `mcp.json` is the entry for a client's settings.", ""]
    if needs:
        target = f"`{call}`" if call else "the function you name after `--call` (module:function)"
        lines += [f"The tools ask {target} for: {', '.join(needs)}.", ""]
        lines += [
            "It is called as `function(name, arguments)`; its module must be importable: set PYTHONPATH.",
            "",
        ]
    named = sorted({variable(name) for tool in registry.tools for name in names_in(tool)})
    if named:
        lines += [f"Secrets are taken from the server's environment: {', '.join(named)}.", ""]
    return "\n".join(lines)
