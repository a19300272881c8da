"""Losses and short training loops."""
