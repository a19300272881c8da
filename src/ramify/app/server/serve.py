"""Run the server until it is stopped."""

from __future__ import annotations

from collections.abc import Mapping

from ramify.app.server.build import create_app
from ramify.core.chat import ChatModel
from ramify.core.errors import MissingExtra


def serve(
    models: Mapping[str, ChatModel],
    *,
    host: str = "127.0.0.1",
    port: int = 8000,
    key: str | None = None,
    lanes: int = 1,
) -> None:
    """Answer OpenAI-compatible requests; Ctrl-C lets running answers end. Only this machine by default.

    Raises:
        MissingExtra: uvicorn is not installed (``pip install 'ramify[serve]'``).
    """
    try:
        import uvicorn
    except ImportError as error:
        raise MissingExtra("uvicorn", "serve") from error
    uvicorn.run(create_app(models, key=key, lanes=lanes), host=host, port=port, log_level="info")
