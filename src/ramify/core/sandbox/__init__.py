"""A sandbox for generated tools."""

from ramify.core.sandbox.result import Layer, Limits, SandboxResult, UnconfinedWarning
from ramify.core.sandbox.runner import Call, Sandbox
from ramify.core.sandbox.screen import refusal

__all__ = ["Call", "Layer", "Limits", "Sandbox", "SandboxResult", "UnconfinedWarning", "refusal"]
