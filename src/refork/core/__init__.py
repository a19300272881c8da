"""The tree and the one operation; knows nothing of the wings."""
