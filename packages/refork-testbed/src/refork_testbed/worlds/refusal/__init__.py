"""Planted worlds where a refusal is decided at the prompt, by thinking, or by one visible word."""
