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
    "CallLog": "langchain_log",
    "FrameworkChatClient": "agent_framework_client",
    "LangChainChat": "langchain_messages",
    "LangChainMiddlewareCompactor": "langchain",
    "LangGraphNodeCompactor": "langgraph",
    "LangMemCompactor": "langmem",
    "PinnedCompaction": "agent_framework",
    "PinnedContext": "autogen",
    "PinningMiddleware": "langchain",
    "RecordedCall": "autogen_state",
    "checkpoint_calls": "langgraph",
    "from_langchain": "langchain_messages",
    "pinned_hook": "langgraph",
    "pinned_messages": "langchain_messages",
    "pinned_model": "langchain_model",
    "pinned_node": "langmem",
    "pinned_subagents": "deepagents",
    "read_autogen_state": "autogen_state",
    "summary_context": "langgraph",
    "summary_graph": "langgraph",
    "to_langchain": "langchain_messages",
}

__all__ = list(_HOME)


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_HOME[name]}"), name)


def __dir__() -> list[str]:
    return sorted(_HOME)
