"""Recipes, resumable runs and live progress."""
