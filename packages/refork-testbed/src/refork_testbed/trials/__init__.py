"""Methods tried on planted worlds: what a command, a benchmark or a test of a method opens by name."""
