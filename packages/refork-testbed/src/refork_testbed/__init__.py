"""Planted worlds, scripted agents, tiny models, the demo: for tests, benchmarks and documentation."""
