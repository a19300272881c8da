"""The page of a study, served to people."""
