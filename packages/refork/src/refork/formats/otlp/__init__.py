"""Spans of the GenAI conventions as OTLP JSON: what other tools export, and what is written for them."""

from refork.formats.otlp.reader import OTLP

__all__ = ["OTLP"]
