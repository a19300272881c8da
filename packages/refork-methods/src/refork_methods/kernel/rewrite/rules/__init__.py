"""The rules, in one file for each kind."""
