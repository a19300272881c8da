"""Tools and lessons for use elsewhere: a Python package, skill folders, an MCP server."""

from refork_methods.memory.export.mcp_server import export_mcp
from refork_methods.memory.export.package import Recording, export_package, record
from refork_methods.memory.export.skills import export_skills

__all__ = ["Recording", "export_mcp", "export_package", "export_skills", "record"]
