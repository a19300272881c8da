"""Simulated worlds as what they add to a server: chat models, MCP endpoints, plain HTTP."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, final

from refork.serve.served import Served
from refork.serve.settings import ServerSettings
from refork_methods.simulate.serve.http import WorldServed, add_worlds
from refork_methods.simulate.serve.mcp import McpEndpoints
from refork_methods.simulate.serve.sessions import Worlds
from refork_methods.simulate.world import SimulatedWorld

if TYPE_CHECKING:
    from fastapi import FastAPI


@final
class ServedWorlds:
    """Simulated worlds by name, under a server's settings."""

    def __init__(self, worlds: Mapping[str, SimulatedWorld], settings: ServerSettings) -> None:
        self._worlds = Worlds(worlds, settings)
        self._mcp = McpEndpoints(self._worlds)

    @property
    def models(self) -> dict[str, Served]:
        """Each world as a chat model."""
        slots = self._worlds.settings.width
        return {f"world/{name}": WorldServed(one, slots) for name, one in self._worlds.worlds.items()}

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """While the server runs; what is under way then ends."""
        async with self._mcp.running():
            yield
        await self._worlds.stop()

    def add_to(self, app: FastAPI) -> None:
        """Put the worlds' routes into the application."""
        app.router.routes.extend(self._mcp.routes())
        add_worlds(app, self._worlds)
