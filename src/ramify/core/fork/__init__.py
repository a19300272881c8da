"""Go back to a point, change one thing, run on many times, compare."""
