"""Tools and lessons for use elsewhere: a Python package, skill folders, an MCP server."""

from ramify.operate.memory.export.mcp_folder import export_mcp
from ramify.operate.memory.export.package import export_package
from ramify.operate.memory.export.recording import Recording, record
from ramify.operate.memory.export.skills import export_skills

__all__ = ["Recording", "export_mcp", "export_package", "export_skills", "record"]
