"""Go back to any token of a recorded rollout, change one thing, run on many times, and compare."""

__version__ = "0.1.0"
