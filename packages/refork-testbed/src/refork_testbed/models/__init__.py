"""Tiny models trained from scratch by recipes in this folder."""

from refork.learn.organism.build import build, describe
from refork.learn.organism.registry import find, names, organism_for, path

__all__ = ["build", "describe", "find", "names", "organism_for", "path"]
