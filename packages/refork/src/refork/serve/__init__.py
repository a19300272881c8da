"""An OpenAI-compatible server: local models token by token, and any chat model, routed pools among them."""

from refork.app.server.build import create_app
from refork.app.server.serve import serve, serving
from refork.app.server.settings import ServerSettings

__all__ = ["ServerSettings", "create_app", "serve", "serving"]
