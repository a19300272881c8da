"""The verbs of credit and of collapse."""
