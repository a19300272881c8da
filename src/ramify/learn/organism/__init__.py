"""Tiny models trained from scratch by recipes in this folder."""
