"""Which point to fork next."""
