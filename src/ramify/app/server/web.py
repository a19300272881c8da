"""What the server takes of FastAPI and Starlette; importing it without them names the extra."""

from __future__ import annotations

from ramify.core.errors import MissingExtra

try:
    from fastapi import FastAPI
    from fastapi.exceptions import RequestValidationError
    from fastapi.routing import APIRoute
    from starlette.exceptions import HTTPException
    from starlette.requests import Request
    from starlette.responses import Response
except ImportError as error:
    raise MissingExtra("fastapi", "serve") from error

__all__ = ["APIRoute", "FastAPI", "HTTPException", "Request", "RequestValidationError", "Response"]
