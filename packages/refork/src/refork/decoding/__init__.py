"""Many continuations of many points as one batch."""
