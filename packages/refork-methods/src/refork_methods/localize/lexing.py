"""Names in a file's lines, by symbol and by what they stand in: code, comments, literals, documentation."""

from __future__ import annotations

import keyword
import re
from array import array
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import final

from refork_methods.localize.facts import FileFacts
from refork_methods.localize.languages.reading import Layout

FIELDS = ("name", "signature", "doc", "comment", "string", "body", "path")
"""The fields of a symbol's words: its name as qualified, identifiers of its signature, documentation,
comments, string literals, identifiers of its own body (the lines of no symbol inside it), its file's path."""

_NAME, _SIGNATURE, _DOC, _COMMENT, _STRING, _BODY, _PATH = range(7)
#: The names that words are made of, in prose and in code alike.
NAME = re.compile(r"[^\W\d]\w*|\d+")

_PYTHON = re.compile(
    r"(#[^\n]*)"
    r"|(?:[rRbBuUfF]{1,2}(?=[\"']))?(\"\"\"(?:[^\"\\]|\\.|\"(?!\"\"))*\"\"\"|'''(?:[^'\\]|\\.|'(?!''))*'''"
    r"|\"(?:[^\"\\\n]|\\.)*\"|'(?:[^'\\\n]|\\.)*')"
    r"|([^\W\d]\w*)",
    re.DOTALL,
)
_BRACES = re.compile(
    r"(//[^\n]*|/\*.*?\*/)"
    r"|(\"(?:[^\"\\\n]|\\.)*\"|'(?:[^'\\\n]|\\.){1,8}'|'(?:[^'\\\n]|\\.)*'|`(?:[^`\\]|\\.)*`)"
    r"|([^\W\d]\w*)",
    re.DOTALL,
)
# Two empty groups, so that a match has the parts of the other lexers'.
_PROSE = re.compile(r"()()([^\W\d]\w*)")
_WORDS_OF_LANGUAGES = frozenset({
    "break", "case", "catch", "class", "const", "continue", "default", "do", "else", "enum", "extends",
    "false", "final", "finally", "for", "func", "function", "go", "if", "implements", "import", "in",
    "instanceof", "interface", "let", "mod", "mut", "new", "nil", "null", "package", "private", "protected",
    "pub", "public", "return", "static", "struct", "super", "switch", "this", "throw", "throws", "trait",
    "true", "try", "type", "typedef", "typeof", "use", "var", "void", "while", "with", "impl", "fn", "crate",
    "self", "unsafe", "using", "namespace", "template", "typename", "int", "char", "float", "double", "long",
    "short", "unsigned", "signed", "bool", "boolean", "string", "String", "auto", "include", "define",
    "endif", "ifdef", "ifndef",
})  # fmt: skip
_KEYWORDS = {"python": frozenset(keyword.kwlist) | {"self", "cls"}}


@final
@dataclass(slots=True)
class Names:
    """Counts of names by symbol and field, as parallel arrays.

    Entry i: ``symbols[i]`` holds the vocabulary's name ``names[i]`` in ``fields[i]``, ``counts[i]`` times.
    """

    vocabulary: dict[str, int] = field(default_factory=dict)
    symbols: array[int] = field(default_factory=lambda: array("i"))
    fields: array[int] = field(default_factory=lambda: array("b"))
    names: array[int] = field(default_factory=lambda: array("i"))
    counts: array[int] = field(default_factory=lambda: array("i"))

    def add(self, symbol: int, where: int, result: Counter[str]) -> None:
        """Count the names that a symbol holds in one field."""
        number = self.vocabulary.setdefault
        for name, count in result.items():
            self.symbols.append(symbol)
            self.fields.append(where)
            self.names.append(number(name, len(self.vocabulary)))
            self.counts.append(count)


def add_names(
    names: Names, first: int, facts: FileFacts, layouts: tuple[Layout, ...], lines: list[str]
) -> None:
    """Count the names of one file; its symbols are numbered from ``first``."""
    lexer = _PYTHON if facts.language == "python" else _BRACES if facts.language else _PROSE
    dropped = _KEYWORDS.get(facts.language or "", _WORDS_OF_LANGUAGES)
    path = Counter(NAME.findall(facts.path.rsplit(".", 1)[0]))
    gathered: list[tuple[list[str], ...]] = [([], [], [], [], []) for _ in facts.symbols]
    for symbol, where, text in pieces(facts, layouts, lines):
        _gather(gathered[symbol], where, text, lexer)
    for number, named in enumerate(facts.symbols):
        names.add(first + number, _NAME, Counter(NAME.findall(named.qualified)))
        names.add(first + number, _PATH, path)
        for where, found in enumerate(gathered[number], _SIGNATURE):
            counted = Counter(found)
            for name in dropped & counted.keys() if where in (_BODY, _SIGNATURE) else ():
                del counted[name]
            names.add(first + number, where, counted)


def _gather(into: tuple[list[str], ...], where: int, text: str, lexer: re.Pattern[str]) -> None:
    """Add the names of a text to its symbol's signature, documentation, comments, literals and body."""
    signature, doc, comments, strings, body = into
    if where == _DOC:
        doc += NAME.findall(text)
        return
    for comment, literal, name in lexer.findall(text):
        if name:
            (signature if where == _SIGNATURE else body).append(name)
        elif comment:
            comments += NAME.findall(comment)
        elif literal:
            strings += NAME.findall(literal)


def pieces(facts: FileFacts, layouts: tuple[Layout, ...], lines: list[str]) -> Iterator[tuple[int, int, str]]:
    """(symbol, field, text) of a file: every line once, with the innermost symbol that holds it.

    The field is the signature, the documentation, or the body, whose comments and literals are not yet apart.
    """
    # Outer symbols come first, so the innermost one is written last and stays. Each slice is given exactly
    # as many marks as it has lines: a longer list would make `marks` grow.
    marks: list[tuple[int, int]] = [(0, _BODY)] * len(lines)
    for number, (symbol, layout) in enumerate(zip(facts.symbols, layouts, strict=True)):
        if number:
            marks[symbol.start - 1 : symbol.end] = [(number, _BODY)] * (
                min(symbol.end, len(lines)) - symbol.start + 1
            )
            header = min(layout.header, symbol.end)
            if header >= symbol.start and symbol.kind != "variable":
                marks[symbol.start - 1 : header] = [(number, _SIGNATURE)] * (header - symbol.start + 1)
        start, end = layout.doc_lines
        if start:
            marks[start - 1 : end] = [(number, _DOC)] * (min(end, len(lines)) - start + 1)
    begin = 0
    for at in range(1, len(lines) + 1):
        if at == len(lines) or marks[at] != marks[begin]:
            number, where = marks[begin]
            yield number, where, "\n".join(lines[begin:at])
            begin = at
