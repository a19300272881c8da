"""The few names and words that folders of the terminal world are made of."""

from __future__ import annotations

FOLDERS = ("docs", "data", "logs", "work", "old", "new", "box", "shop")
STEMS = ("list", "notes", "plan", "items", "names", "costs", "tasks", "report", "draft", "index")
ENDINGS = ("txt", "md", "csv")
WORDS = (
    "apple", "pear", "plum", "fig", "lemon", "grape", "red", "blue", "green", "black", "white", "brown",
    "cat", "dog", "fox", "owl", "cow", "bee", "oak", "pine", "elm", "rose", "iron", "salt",
)  # fmt: skip
#: Names that are never there: what an actor that errs asks for.
MISSING = ("lost", "none", "gone", "miss")
#: Misspelt commands.
TYPOS = ("caat", "sl", "grpe", "mkdri", "sotr", "ehco", "wcc", "mvv")
