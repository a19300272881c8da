"""Worlds of other packages."""
