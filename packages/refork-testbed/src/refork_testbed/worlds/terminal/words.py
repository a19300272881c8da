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
COMMANDS = (
    "cat", "cd", "chmod", "cp", "cut", "echo", "find", "grep", "head", "ls", "mkdir", "mv", "pwd", "rm",
    "rmdir", "sed", "sort", "stat", "submit", "tail", "test", "touch", "tr", "uniq", "wc",
)  # fmt: skip
#: Misspelt commands.
TYPOS = ("caat", "sl", "grpe", "mkdri", "sotr", "ehco", "wcc", "mvv")
#: Words of the tools' own messages and of tasks.
PHRASES = (
    "accepted", "rejected", "No", "such", "file", "or", "directory", "not", "found", "cannot", "remove",
    "create",
    "access", "Is", "a", "Not", "File", "exists", "can", "t", "to", "sh", "of", "missing", "operand", "after",
    "Directory", "empty", "failed", "stat", "total", "open", "for", "reading", "read", "writing", "error",
    "nonexistent", "Syntax", "home", "agent", "folder", "holds", "in", "is", "omitting", "specified", "r",
    "Try", "help", "more", "information", "destination", "target", "task", "the", "and", "state", "mode",
)  # fmt: skip
MARKS = (
    "/", ".", ":", "|", ">", ">>", "-", "'", '"', "*", ";", "&&", ",", "$", "=", "_", "(", ")", "{", "}",
    "[", "]",
)  # fmt: skip


def vocabulary() -> tuple[str, ...]:
    """Every piece that texts are made of, sorted: words (``[A-Za-z]+``), digits and marks."""
    digits = tuple("0123456789")
    options = (
        "n",
        "l",
        "c",
        "u",
        "d",
        "f",
        "k",
        "i",
        "s",
        "w",
        "p",
        "x",
        "type",
        "name",
        "rf",
        "rl",
        "v",
        "e",
    )
    groups = (FOLDERS, STEMS, ENDINGS, WORDS, MISSING, COMMANDS, TYPOS, PHRASES, MARKS, digits, options)
    return tuple(sorted({word for group in groups for word in group}))
