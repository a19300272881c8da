"""The language of a text, offline and deterministic.

Character n-grams decide (py3langid, a naive Bayes model of 4 MB that ships with the package), among
:data:`LANGUAGES`; letters of another script than Latin decide alone. A text so short that no language is
likely is undecided, which is neither a violation nor its absence.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Collection
from functools import cache, lru_cache
from typing import Any

from refork.errors import BadInput

LANGUAGES = (
    "ar", "bg", "ca", "cs", "da", "de", "el", "en", "es", "fa", "fi", "fr", "he", "hi", "hr", "hu", "id",
    "it", "ja", "ko", "nl", "no", "pl", "pt", "ro", "ru", "sk", "sv", "th", "tr", "uk", "vi", "zh",
)  # fmt: skip
#: Written in another script than Latin.
OTHER_SCRIPTS = frozenset(("ar", "bg", "el", "fa", "he", "hi", "ja", "ko", "ru", "th", "uk", "zh"))
#: Least probability at which a whole text, or one line of it, counts as being in a language.
WHOLE, LINE = 0.5, 0.9
#: Words of a line that is judged for itself.
LINE_WORDS = 5
#: Share of letters of another script from which the script decides.
FOREIGN = 0.3

_NOISE = re.compile(r"https?://\S+|\S+@\S+|[#/\\]?\w*\d[\w./-]*|[^\w\s'’]", re.UNICODE)


@cache
def _identifier() -> Any:
    from py3langid.langid import MODEL_FILE, LanguageIdentifier

    identifier = LanguageIdentifier.from_model_file(MODEL_FILE, norm_probs=True)
    identifier.set_languages(list(LANGUAGES))
    return identifier


@lru_cache(maxsize=4096)
def _probabilities(text: str) -> dict[str, float]:
    return {name: float(chance) for name, chance in _identifier().rank(text)}


def outside(text: str, allowed: Collection[str]) -> bool | None:
    """Whether a text, or one of its longer lines, is in no allowed language; None: too short to tell.

    Raises: BadInput for a language that is not in :data:`LANGUAGES`.
    """
    unknown = sorted(set(allowed) - set(LANGUAGES))
    if unknown:
        raise BadInput(f"unknown language {unknown[0]!r}", hint="known: " + " ".join(LANGUAGES))
    lines = [line for line in text.splitlines() if len(_words(line)) >= LINE_WORDS]
    if len(lines) > 1 and any(_judge(line, allowed, LINE) for line in lines):
        return True
    return _judge(text, allowed, WHOLE)


def _words(text: str) -> list[str]:
    return [word for word in _NOISE.sub(" ", text).split() if any(c.isalpha() for c in word)]


def _judge(text: str, allowed: Collection[str], least: float) -> bool | None:
    letters = [c for c in text if c.isalpha()]
    if not letters:
        return None
    # A letter without a name counts as Latin: it is no evidence of another script.
    other = sum("LATIN" not in unicodedata.name(c, "LATIN") for c in letters) / len(letters)
    if other >= FOREIGN and not set(allowed) & OTHER_SCRIPTS:
        return True
    words = _words(text) if other < FOREIGN else [text]
    # Capitals and numbers say little of a language, and names mislead.
    chances = _probabilities(" ".join(words).lower())
    inside = sum(chances[name] for name in dict.fromkeys(allowed))
    if inside >= least:
        return False
    return True if 1 - inside >= least and max(chances.values()) >= WHOLE else None
