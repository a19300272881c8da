"""Words of code and of issues: identifiers split into their parts, and what an issue points at."""

from __future__ import annotations

import builtins
import keyword
import re
from dataclasses import dataclass
from functools import lru_cache
from typing import final

_NAME = re.compile(r"[^\W\d]\w*|\d+")
#: Parts of one identifier: parseHTTPBody2 -> parse, HTTP, Body, 2.
_PART = re.compile(r"[A-Z]+(?=[A-Z][a-z])|[A-Z]?(?:(?![A-Z])[^\W\d_])+|[A-Z]+|\d+")
_FENCE = re.compile(r"^(?:```|~~~)[^\n]*\n(.*?)^(?:```|~~~)", re.DOTALL | re.MULTILINE)
_CODE = re.compile(r"`([^`\n]+)`")
_QUOTED = re.compile(r"\"([^\"\n]{2,120})\"|(?<![\w])'([^'\n]{2,120})'(?![\w])|“([^”\n]{2,120})”")
_PATH = re.compile(
    r"(?<![\w/.])(?:[\w.-]+/)*[\w-]+\.(?:py|pyi|js|jsx|mjs|cjs|ts|tsx|go|rs|java|c|h|cc|cpp|cxx|hpp|hh)\b"
)
_DOTTED = re.compile(r"\b[A-Za-z_]\w*(?:(?:\.|::)[A-Za-z_]\w*)+\b")
_IDENTIFIER = re.compile(
    r"\b(?:[A-Za-z]\w*_\w+|_+[A-Za-z]\w*|[a-z][a-z0-9]*[A-Z]\w*"
    r"|(?:[A-Z][a-z0-9]+){2,}|[A-Z][A-Z0-9]+[a-z]\w*)\b"
)
_CALLED = re.compile(r"\b([A-Za-z_]\w*)\s?\(")
_MASKED = re.compile(r"⟦\w+ \d+⟧")
_ERROR = re.compile(r"\b[A-Z]\w*(?:Error|Exception|Warning|Interrupt|Exit|Panic)\b")
#: The words of two public forms for reports: GitHub's default `bug_report.md` and Bugzilla's fields. Nothing
#: else is known of how reports are worded; what else is common shows in the repository's own word counts.
_FORMS = """
describe the bug a clear and concise description of what the bug is to reproduce steps to reproduce the
behavior behaviour go to click on scroll down to see error expected behavior a clear and concise description
of what you expected to happen screenshots if applicable add screenshots to help explain your problem please
complete the following information version additional context add any other context about the problem here
summary what happened actual results expected results what should have happened
"""
#: The end of an issue's first statement, which sums it up.
_FIRST = re.compile(r"[.!?:](?=\s|$)|\n|$")
#: Words of Python's grammar, which a code span holds beside names.
_NO_NAMES = frozenset([*keyword.kwlist, "self", "cls"])


@lru_cache(maxsize=1)
def _english() -> frozenset[str]:
    from bm25s.stopwords import STOPWORDS_EN_PLUS  # type: ignore[import-untyped]

    return frozenset(STOPWORDS_EN_PLUS)


@lru_cache(maxsize=1)
def _form_stems() -> frozenset[str]:
    return frozenset(_stem(word) for word in _FORMS.split())


def words(text: str) -> list[str]:
    """Search words of a text, in order: each identifier's parts in lower case and without plural endings.

    An identifier of several parts is also a word of its own, whole.
    """
    found: list[str] = []
    for name in _NAME.findall(text):
        found += name_words(name)
    return found


@lru_cache(maxsize=200_000)
def name_words(name: str) -> tuple[str, ...]:
    """Search words of one identifier."""
    parts = tuple(_stem(part.lower()) for part in _PART.findall(name))
    if len(parts) < 2:
        return parts
    return (*parts, name.lower().strip("_"))


def spelled(text: str) -> dict[str, str]:
    """Search word -> how a text first spells it: stems are compared, but a reader is shown words."""
    told: dict[str, str] = {}
    for name in _NAME.findall(text):
        parts = _PART.findall(name)
        for word, part in zip(name_words(name), parts, strict=False):
            told.setdefault(word, part.lower())
    return told


def plain_words(text: str) -> list[str]:
    """Search words of a text without the commonest of English, as any retrieval would take them."""
    common = _english()
    return [word for name in _NAME.findall(text) if name.lower() not in common for word in name_words(name)]


def query_words(text: str) -> list[str]:
    """Search words of prose: not the commonest of English and of report forms, nor small numbers."""
    kept: list[str] = []
    for name in _NAME.findall(_MASKED.sub(" ", text)):
        lower = name.lower()
        if lower in _english() or _stem(lower) in _form_stems() or (name.isdigit() and len(name) < 3):
            continue
        kept += name_words(name)
    return kept


def _stem(word: str) -> str:
    """A word without the endings of English inflection, so that "parsing", "parsed" and "parses" are one.

    Plurals after Harman's S-stemmer (1991); then -ed, -ing and a final -e where four letters are left. Stems
    are compared, never shown.
    """
    if len(word) < 4:
        return word
    if word.endswith("ies") and not word.endswith(("eies", "aies")):
        word = word[:-3] + "y"
    elif word.endswith(("ches", "shes", "sses", "xes", "zes")):
        word = word[:-2]
    elif word.endswith("s") and not word.endswith(("ss", "us", "is")):
        word = word[:-1]
    for ending in ("ing", "ed"):
        if word.endswith(ending) and len(word) - len(ending) >= 4:
            word = word[: -len(ending)]
            # "stopped" is "stop"; of "called" and "passed" the doubled letter is their own.
            if word[-1] == word[-2] and word[-1] not in "ls":
                word = word[:-1]
            break
    if word.endswith("e") and len(word) >= 5:
        word = word[:-1]
    return word


def split_data(text: str) -> tuple[str, str]:
    """A text without its data, and the data: what is in brackets, and quoted text of one or two words.

    Values that somebody put in or got out say what the code was given, seldom where it is wrong. Brackets
    that are left open end with their line.
    """
    prose: list[str] = []
    data: list[str] = []
    depth = 0
    for letter in text:
        if letter in "([{":
            depth += 1
        (data if depth else prose).append(letter)
        if letter in ")]}" and depth:
            depth -= 1
            if depth == 0:
                prose.append(" ")
                data.append(" ")
        if letter == "\n":
            depth = 0

    def short(hit: re.Match[str]) -> str:
        if len(hit.group().split()) > 2:
            return hit.group()
        data.append(f" {hit.group()} ")
        return " "

    return _QUOTED.sub(short, "".join(prose)), "".join(data)


@final
@dataclass(frozen=True, slots=True)
class IssueTerms:
    """What an issue names: ``code`` spans and blocks, ``identifiers``, ``paths``, ``errors``, ``quoted``.

    Each in the order of first mention, once; ``text`` is the whole issue.
    """

    text: str
    code: tuple[str, ...]
    identifiers: tuple[str, ...]
    paths: tuple[str, ...]
    errors: tuple[str, ...]
    quoted: tuple[str, ...]

    def weights(self, identifier: float = 1.0, data: float = 0.05, rest: float = 0.5) -> dict[str, float]:
        """Search words and weights: the root of the count of mentions, and what identifiers earn beside.

        A mention counts 1 in the first statement and ``rest`` after it. Words that stand only in data, and
        names of Python's own errors, count ``data``.
        Source: Saha et al. (2013) for reading a report's summary apart; the weights are ours.
        """
        prose, values = split_data(self.text)
        prose = prose.lstrip()
        first = _FIRST.search(prose)
        cut = first.end() if first else len(prose)
        counts: dict[str, float] = {}
        for part, worth in ((prose[:cut], 1.0), (prose[cut:], rest)):
            for word in query_words(part):
                counts[word] = counts.get(word, 0.0) + worth
        told = {word: count**0.5 for word, count in counts.items()}
        for error in self.errors:
            if hasattr(builtins, error):
                told |= dict.fromkeys(name_words(error), data)
        for word in query_words(values):
            told.setdefault(word, data)
        for word in {word for text in self.identifiers for word in words(text)}:
            told[word] = told.get(word, 0.0) + identifier
        return told


def issue_terms(text: str) -> IssueTerms:
    """Find what an issue's text points at."""
    text = _MASKED.sub(" ", text)
    blocks = [block.strip() for block in _FENCE.findall(text)]
    prose = _FENCE.sub("\n", text)
    spans = _CODE.findall(prose)
    paths = _PATH.findall(text)
    bare = _PATH.sub(" ", text)
    names = [*_DOTTED.findall(bare), *_IDENTIFIER.findall(bare), *_CALLED.findall(bare)]
    for span in spans:
        names += re.findall(r"[A-Za-z_]\w*", _PATH.sub(" ", span))
    quoted = ["".join(groups) for groups in _QUOTED.findall(prose)]
    names = [name for name in names if name not in _NO_NAMES and len(name) > 1]
    names = [name for name in names if not (_ERROR.fullmatch(name) and hasattr(builtins, name))]
    return IssueTerms(
        text,
        tuple(dict.fromkeys([*spans, *blocks])),
        tuple(dict.fromkeys(names)),
        tuple(dict.fromkeys(paths)),
        tuple(dict.fromkeys(_ERROR.findall(text))),
        tuple(dict.fromkeys(quoted)),
    )
