"""A sandbox for generated tools."""

from ramify.operate.memory.sandbox.result import Layer, Limits, SandboxResult
from ramify.operate.memory.sandbox.runner import Call, Sandbox
from ramify.operate.memory.sandbox.screen import refusal

__all__ = ["Call", "Layer", "Limits", "Sandbox", "SandboxResult", "refusal"]
