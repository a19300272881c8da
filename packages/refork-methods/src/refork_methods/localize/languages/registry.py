"""Which language a file is in, and its reader."""

from __future__ import annotations

from refork_methods.localize.facts import FileFacts
from refork_methods.localize.languages.python import read_python
from refork_methods.localize.languages.reading import Layout, start_reading

LANGUAGES: dict[str, str] = {
    ".py": "python", ".pyi": "python", ".pyx": "python",
    ".js": "javascript", ".jsx": "javascript", ".mjs": "javascript", ".cjs": "javascript",
    ".ts": "typescript", ".mts": "typescript", ".cts": "typescript", ".tsx": "tsx",
    ".go": "go", ".rs": "rust", ".java": "java",
    ".c": "c", ".h": "cpp", ".cc": "cpp", ".cpp": "cpp", ".cxx": "cpp",
    ".hh": "cpp", ".hpp": "cpp", ".hxx": "cpp",
}  # fmt: skip
"""File suffix -> language. A ``.h`` file is read as C++, whose grammar holds C's declarations."""


def language_of(path: str) -> str | None:
    """The language of a file by its suffix; None for other text."""
    dot = path.rfind(".")
    return LANGUAGES.get(path[dot:].lower()) if dot > path.rfind("/") else None


def read_file(path: str, raw: bytes, lines: list[str]) -> tuple[FileFacts, tuple[Layout, ...]]:
    """A file's facts: by its language's reader, or as one plain text."""
    language = language_of(path)
    if language == "python":
        return read_python(path, raw, lines)
    if language is not None:
        from refork_methods.localize.languages.grammar import read_with_grammar

        return read_with_grammar(path, raw, lines, language)
    return start_reading(path, "", lines).facts("none")
