"""Tiny models trained from scratch by recipes in this folder."""

from refork_testbed.models.build import build, describe
from refork_testbed.models.registry import find, names, path, tiny_model_for

__all__ = ["build", "describe", "find", "names", "path", "tiny_model_for"]
