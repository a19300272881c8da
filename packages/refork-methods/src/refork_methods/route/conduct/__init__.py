"""Workflows that a model writes: plans, their execution, and conducting as a world to train in."""
