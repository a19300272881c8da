"""A sandbox for generated tools."""

from refork.sandbox.result import Layer, Limits, SandboxResult, UnconfinedWarning
from refork.sandbox.runner import Call, Sandbox
from refork.sandbox.screen import refusal

__all__ = ["Call", "Layer", "Limits", "Sandbox", "SandboxResult", "UnconfinedWarning", "refusal"]
