"""A real repository: git, tests and a task in it."""
