"""Research systems on rollout trees, a folder each."""
