"""The verbs of judges and their evolution."""
