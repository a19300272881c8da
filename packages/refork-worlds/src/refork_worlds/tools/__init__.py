"""Typed tools over databases and servers."""
