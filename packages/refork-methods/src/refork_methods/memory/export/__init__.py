"""Tools and lessons for use elsewhere: a Python package, skill folders, an MCP server."""

from refork_methods.memory.export.mcp_folder import export_mcp
from refork_methods.memory.export.package import export_package
from refork_methods.memory.export.recording import Recording, record
from refork_methods.memory.export.skills import export_skills

__all__ = ["Recording", "export_mcp", "export_package", "export_skills", "record"]
