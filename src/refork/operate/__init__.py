"""Parts for agents at run time."""
