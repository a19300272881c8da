"""One file per organism; each holds one ``RECIPE``."""
