"""A real shell in a folder of its own."""
