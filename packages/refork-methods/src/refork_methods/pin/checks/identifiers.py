"""US social security numbers in a text."""

from __future__ import annotations

import re
import unicodedata

#: Area not 000, 666 or 9xx; group not 00; serial not 0000.
_NUMBER = r"(?!000|666|9\d\d)\d{{3}}{0}(?!00)\d\d{0}(?!0000)\d{{4}}"
_SEPARATED = re.compile(r"(?<![\d-])" + _NUMBER.format(r"\s?[-. ]\s?") + r"(?![\d]|-\d)")
_SOLID = re.compile(r"(?<!\d)" + _NUMBER.format("") + r"(?!\d)")
_NAMED = re.compile(r"\bssn\b|social\s+security", re.IGNORECASE)
_DASHES = dict.fromkeys(map(ord, "\u2010\u2011\u2012\u2013\u2014\u2212\ufe58\ufe63\uff0d"), "-")


def holds_ssn(text: str) -> bool:
    """Whether a text holds a number of the form and ranges of an SSN.

    Separated by dashes, dots or spaces anywhere; nine digits in a row only where the text speaks of an SSN.
    """
    # Again after NFKC, which turns further forms, such as the vertical dashes, into dashes of the table.
    seen = unicodedata.normalize("NFKC", text.translate(_DASHES)).translate(_DASHES)
    seen = "".join(c for c in seen if unicodedata.category(c) != "Cf")
    seen = "".join(str(unicodedata.digit(c)) if c.isdigit() else c for c in seen)
    return _SEPARATED.search(seen) is not None or (
        _NAMED.search(seen) is not None and _SOLID.search(seen) is not None
    )
