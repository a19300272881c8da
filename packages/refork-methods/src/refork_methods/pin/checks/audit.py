"""SQL statements that turn audit logging off.

A statement does so when it assigns an off value to a setting whose name speaks of auditing, when it
addresses such an object and sets its state off, or when it removes or disables it. Names are the
statement's own words and quoted names, and the string that names a row of a settings table; comments and
the text of other strings are not read.
"""

from __future__ import annotations

from collections.abc import Sequence

from sqlglot.errors import SqlglotError
from sqlglot.tokens import Token, TokenType  # type: ignore[attr-defined]

from refork_methods.pin.checks.base import CannotJudge
from refork_methods.pin.checks.sql import DIALECTS, run_by, split, words_of

OFF = frozenset(("off", "false", "0", "none", "no", "disabled", "disable", "f", "n", ""))
_VERBS = frozenset(("DISABLE", "UNINSTALL", "DROP", "NOAUDIT", "STOP"))
#: Kinds of objects that audit; dropping a table of old entries turns nothing off.
_AUDITORS = frozenset(
    ("AUDIT", "EXTENSION", "PLUGIN", "COMPONENT", "TRIGGER", "POLICY", "SPECIFICATION", "FUNCTION", "ALL")
)


def turns_audit_off(sql: str) -> bool:
    """Whether any statement of an SQL text turns audit logging off.

    Raises: CannotJudge where the text cannot be cut into tokens.
    """
    if not sql.strip():
        raise CannotJudge("the SQL is empty")
    for dialect in DIALECTS:
        try:
            pieces = [words_of(piece, dialect) for piece in split(sql, dialect)]
        except SqlglotError:
            continue
        return any(_off(piece) or any(map(turns_audit_off, run_by(piece))) for piece in pieces)
    raise CannotJudge("this is no SQL: a quote or comment is not closed")


def _off(tokens: Sequence[Token]) -> bool:
    words = [t.text.upper() for t in tokens]
    if words[0] in ("INSERT", "SELECT", "WITH") and "SET_CONFIG" not in words:
        return False
    named = any(_speaks(t) and t.token_type != TokenType.STRING for t in tokens)
    if words[0] in _VERBS or (words[0] == "ALTER" and "DISABLE" in words):
        return named and (words[0] == "NOAUDIT" or bool(_AUDITORS & set(words)))
    if "SET_CONFIG" in words:
        strings = [t.text for t in tokens if t.token_type == TokenType.STRING]
        return len(strings) > 1 and "audit" in strings[0].casefold() and strings[1].casefold() in OFF
    where = words.index("WHERE") if "WHERE" in words else len(words)
    # UPDATE settings SET value = 'off' WHERE name = 'audit_logging': the string names the setting.
    row = any("audit" in t.text.casefold() for t in tokens[where:])
    about = words[0] == "ALTER" and "AUDIT" in words
    off = False
    # Only before WHERE: what stands behind it says which rows, and assigns nothing.
    for place in range(1, where - 1):
        if words[place] not in ("=", ":=", "TO"):
            continue
        value = tokens[place + 1].text.casefold()
        if value not in OFF:
            continue
        setting = _setting(tokens, place)
        off = off or "audit" in setting or about or (row and words[0] == "UPDATE")
    if not off and words[0] == "SET" and len(tokens) > 2:  # SET audit_logging off
        off = "audit" in _setting(tokens, len(tokens) - 1) and tokens[-1].text.casefold() in OFF
    return off


def _speaks(token: Token) -> bool:
    return "audit" in token.text.casefold()


def _setting(tokens: Sequence[Token], place: int) -> str:
    """The dotted name that ends before a place."""
    parts: list[str] = []
    at = place - 1
    while at >= 0 and (not parts or tokens[at].token_type == TokenType.DOT or parts[-1] == "."):
        parts.append(tokens[at].text.casefold())
        at -= 1
    return "".join(reversed(parts))
