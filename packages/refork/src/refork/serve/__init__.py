"""An OpenAI-compatible server: local models token by token, and any chat model, routed pools among them."""

from refork.serve.serve import create_app, serve, serving
from refork.serve.settings import ServerSettings

__all__ = ["ServerSettings", "create_app", "serve", "serving"]
