"""An OpenAI-compatible server: any chat model of Ramify, a routed pool among them, behind one model name."""

from ramify.app.server.build import create_app
from ramify.app.server.serve import serve, serving

__all__ = ["create_app", "serve", "serving"]
