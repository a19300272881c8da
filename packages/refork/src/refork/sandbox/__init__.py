"""A sandbox for generated tools."""

from refork.core.sandbox.result import Layer, Limits, SandboxResult, UnconfinedWarning
from refork.core.sandbox.runner import Call, Sandbox
from refork.core.sandbox.screen import refusal

__all__ = ["Call", "Layer", "Limits", "Sandbox", "SandboxResult", "UnconfinedWarning", "refusal"]
