"""From outcomes to per-step credit."""
