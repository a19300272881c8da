"""Simulated worlds behind the server: as chat, as an MCP server, and as plain HTTP."""
