"""The recorded rollout tree."""
