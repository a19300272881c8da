"""A policy on an OpenAI-compatible server: its calls, what the server can do, and what it answers."""

from refork.policies.remote.policy import RemotePolicy

__all__ = ["RemotePolicy"]
