"""Run the server until it is stopped."""

from __future__ import annotations

import socket
from collections.abc import Callable, Mapping

from ramify.app.server.build import create_app
from ramify.core.chat import ChatModel
from ramify.core.errors import CannotDo, MissingExtra


def serve(
    models: Mapping[str, ChatModel],
    *,
    host: str = "127.0.0.1",
    port: int = 8000,
    key: str | None = None,
    lanes: int = 1,
    ready: Callable[[str], None] | None = None,
) -> None:
    """Answer OpenAI-compatible requests; Ctrl-C lets running answers end. Only this machine by default.

    Port 0 takes a free one. ``ready`` is told the address (``http://HOST:PORT/v1``) once it is taken.

    Raises:
        CannotDo: the address cannot be had.
        MissingExtra: uvicorn is not installed (``pip install 'ramify[serve]'``).
    """
    try:
        import uvicorn
    except ImportError as error:
        raise MissingExtra("uvicorn", "serve") from error
    config = uvicorn.Config(create_app(models, key=key, lanes=lanes), log_level="info")
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        listening = socket.create_server((host, port), family=family)
    except OSError as error:
        raise CannotDo(f"cannot listen on {host}:{port}: {error}", hint="name another --port or --host") from error
    with listening:
        name = f"[{host}]" if ":" in host else host
        if ready is not None:
            ready(f"http://{name}:{listening.getsockname()[1]}/v1")
        uvicorn.Server(config).run(sockets=[listening])
