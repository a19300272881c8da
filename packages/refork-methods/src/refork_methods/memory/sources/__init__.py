"""Where trajectories come from: OpenAI messages, our tree, OpenTelemetry spans, or our own JSON lines."""

from refork_methods.memory.sources.read import read_runs

__all__ = ["read_runs"]
