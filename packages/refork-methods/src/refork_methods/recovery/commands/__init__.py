"""The verbs of mazes and of recovery."""
