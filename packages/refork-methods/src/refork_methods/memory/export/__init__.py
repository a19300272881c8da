"""Tools and lessons for use elsewhere: a Python package, skill folders, an MCP server."""

from refork.operate.memory.export.mcp_folder import export_mcp
from refork.operate.memory.export.package import export_package
from refork.operate.memory.export.recording import Recording, record
from refork.operate.memory.export.skills import export_skills

__all__ = ["Recording", "export_mcp", "export_package", "export_skills", "record"]
