"""Tiny models trained from scratch by recipes in this folder."""

from ramify.learn.organism.build import build, describe
from ramify.learn.organism.registry import find, names, organism_for, path

__all__ = ["build", "describe", "find", "names", "organism_for", "path"]
