"""A local search engine and what can be found with it."""
