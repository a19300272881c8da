"""An OpenAI-compatible server: local models token by token, and any chat model, routed pools among them."""

from ramify.app.server.build import create_app
from ramify.app.server.serve import serve, serving
from ramify.app.server.settings import ServerSettings

__all__ = ["ServerSettings", "create_app", "serve", "serving"]
