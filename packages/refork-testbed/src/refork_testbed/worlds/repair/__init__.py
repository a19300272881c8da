"""A small Python repair world."""
