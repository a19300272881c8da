"""Pinning inside agent frameworks: adapters that drive the real packages, and one-line adoptions.

A name is imported when it is asked for, since each needs its own package (the extra ``harness``).
"""

from __future__ import annotations

from importlib import import_module
from typing import Any

_HOME = {
    "AgentFrameworkCompactor": "agent_framework",
    "AutoGenChatClient": "autogen_client",
    "AutoGenContextCompactor": "autogen",
    "FrameworkChatClient": "agent_framework_client",
    "PinnedCompaction": "agent_framework",
    "PinnedContext": "autogen",
    "RecordedCall": "autogen_state",
    "read_autogen_state": "autogen_state",
}

__all__ = sorted(_HOME)


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_HOME[name]}"), name)


def __dir__() -> list[str]:
    return __all__
