"""Who acts: local, remote and scripted policies."""
