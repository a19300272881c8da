"""Logs of other people's environments."""
