"""Which statements an SQL text would run, and on which database.

sqlglot parses; several dialects are tried, for the call does not name its server. What a parser leaves as
an opaque command is read by its tokens, in which strings, quoted names and comments are told apart too.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any, cast

import sqlglot
from sqlglot import exp
from sqlglot.errors import SqlglotError
from sqlglot.tokens import Token, TokenType  # type: ignore[attr-defined]

from refork_methods.pin.checks.base import CannotJudge

DIALECTS = ("postgres", "mysql", "tsql", "sqlite", "oracle", "snowflake")
#: Statement kinds that can be asked for.
KINDS: dict[str, tuple[type[exp.Expression], ...]] = {
    "drop": (exp.Drop,),
    "delete": (exp.Delete,),
    "truncate": (exp.TruncateTable,),
    "update": (exp.Update,),
    "insert": (exp.Insert,),
    "alter": (exp.Alter,),
    "create": (exp.Create,),
    "merge": (exp.Merge,),
    "grant": (exp.Grant,),
    "select": (exp.Select,),
}
#: Statements that may run SQL given as a string, and what stands between EXECUTE and such a string.
_RUNS_STRINGS = ("EXECUTE", "EXEC", "DO", "CALL", "PREPARE")
_RUNNERS = ("IMMEDIATE", "SP_EXECUTESQL")
#: After these a verb is part of a clause, not a statement: ON DELETE CASCADE, AFTER DELETE ON.
_CLAUSE = ("ON", "AFTER", "BEFORE", "OF", "OR", "FOR", ".")
_STRINGS = (
    TokenType.STRING, TokenType.HEREDOC_STRING, TokenType.RAW_STRING, TokenType.NATIONAL_STRING,
    TokenType.UNICODE_STRING,
)  # fmt: skip
#: Commands whose rest the tokenizer leaves as one string.
_WHOLE = (TokenType.COMMAND, TokenType.EXECUTE, TokenType.FETCH, TokenType.SHOW, TokenType.RENAME)
_RUN_COMMENT = re.compile(r"'(?:[^']|'')*'|\"(?:[^\"]|\"\")*\"|/\*!\d*(?P<run>.*?)\*/", re.DOTALL)


@dataclass(frozen=True, slots=True)
class Statement:
    """One statement: the kinds it performs, the database names it mentions, and what USE chose before it."""

    kinds: frozenset[str]
    names: frozenset[str]
    chosen: str | None = None


def statements(sql: str) -> tuple[Statement, ...]:
    """The statements of an SQL text, those inside it that it would run included.

    Raises: CannotJudge where the text is no SQL in any known dialect.
    """
    if not sql.strip():
        raise CannotJudge("the SQL is empty")
    return _statements(sql, 0)


@lru_cache(maxsize=1024)
def _statements(sql: str, depth: int) -> tuple[Statement, ...]:
    # MySQL runs what stands in /*! ... */.
    sql = _RUN_COMMENT.sub(lambda m: m["run"] if m["run"] is not None else m[0], sql)
    found: list[Statement] = []
    chosen: str | None = None
    for tree, tokens in _parsed(sql):
        if isinstance(tree, exp.Use) and tree.this is not None:
            chosen = str(tree.this.name).casefold()
        here = _of_tokens(tokens, depth) if tree is None else _of_tree(tree)
        if depth < 3:
            here += [inner for text in run_by(tokens) for inner in _statements(text, depth + 1)]
        found += [replace(one, chosen=one.chosen or chosen) for one in here]
    return tuple(found)


def _parsed(sql: str) -> list[tuple[exp.Expression | None, list[Token]]]:
    """Statements with their tree (None: opaque) and tokens, by the dialect that understands most of them."""
    best: list[tuple[exp.Expression | None, list[Token]]] | None = None
    for dialect in DIALECTS:
        try:
            pieces = split(sql, dialect)
        except SqlglotError:
            continue
        try:
            read = [(_tree(sql[p[0].start : p[-1].end + 1], dialect), words_of(p, dialect)) for p in pieces]
        except SqlglotError:
            continue
        if best is None or _opaque(read) < _opaque(best):
            best = read
        if not _opaque(best):
            break
    if best is None:
        raise CannotJudge("this is no SQL: a quote or comment is not closed")
    return best


def _opaque(read: Sequence[tuple[exp.Expression | None, list[Token]]]) -> int:
    return sum(tree is None for tree, _ in read)


def split(sql: str, dialect: str) -> list[list[Token]]:
    """Tokens of each statement. Raises SqlglotError where the text cannot be cut into tokens."""
    found: list[list[Token]] = [[]]
    for token in sqlglot.tokenize(sql, read=dialect):
        if token.token_type == TokenType.SEMICOLON:
            found.append([])
        else:
            found[-1].append(token)
    return [piece for piece in found if piece]


def words_of(tokens: Sequence[Token], dialect: str) -> list[Token]:
    """The tokens of a statement; those of EXECUTE and its like, whose rest is one token, cut up too."""
    if len(tokens) > 1 and tokens[-2].token_type in _WHOLE and tokens[-1].token_type == TokenType.STRING:
        return [*tokens[:-1], *sqlglot.tokenize(tokens[-1].text, read=dialect)]
    return list(tokens)


def _tree(sql: str, dialect: str) -> exp.Expression | None:
    with _quiet():
        try:
            trees: list[Any] = [t for t in sqlglot.parse(sql, read=dialect) if t is not None]
        except (SqlglotError, RecursionError):
            return None
    if len(trees) != 1 or trees[0].find(exp.Command) or not isinstance(trees[0], _KNOWN):
        return None
    return cast("exp.Expression", trees[0])


_KNOWN = (
    *(kind for kinds in KINDS.values() for kind in kinds), exp.Query, exp.Use, exp.Set, exp.Transaction,
    exp.Commit, exp.Rollback, exp.Describe, exp.Show, exp.Pragma, exp.Comment, exp.Analyze, exp.With,
)  # fmt: skip


@contextmanager
def _quiet() -> Iterator[None]:
    """Without the parser's log line about every opaque command."""
    log = logging.getLogger("sqlglot")
    before, log.disabled = log.disabled, True
    try:
        yield
    finally:
        log.disabled = before


def _of_tree(tree: exp.Expression) -> list[Statement]:
    if isinstance(tree, exp.Create) and tree.args.get("kind") not in ("TABLE", "VIEW"):
        return [Statement(frozenset({"create"}), _names(tree))]  # what a body does later is not done now
    if isinstance(tree, exp.Describe) and not _analysed(tree):
        return [Statement(frozenset(), _names(tree))]
    kinds = {kind for kind, types in KINDS.items() if next(tree.find_all(*types), None) is not None}
    for when in tree.find_all(exp.When):
        then = when.args.get("then")
        if isinstance(then, exp.Var) and then.name.upper() == "DELETE":
            kinds.add("delete")
    return [Statement(frozenset(kinds), _names(tree))]


def _analysed(tree: exp.Expression) -> bool:
    return "ANALYZE" in str(tree.args.get("style") or "").upper()


def _names(tree: exp.Expression) -> frozenset[str]:
    names = {
        part.casefold() for table in tree.find_all(exp.Table) for part in (table.db, table.catalog) if part
    }
    if isinstance(tree, exp.Drop) and tree.args.get("kind") in ("DATABASE", "SCHEMA"):
        names |= {table.name.casefold() for table in tree.find_all(exp.Table)}
    return frozenset(names)


def _of_tokens(tokens: Sequence[Token], depth: int) -> list[Statement]:
    """An opaque statement by its words: a verb that stands where a statement may begin counts."""
    words = [t.text.upper() if _is_word(t) else "" for t in tokens]
    names = frozenset(
        t.text.casefold() for t in tokens if t.token_type in (TokenType.VAR, TokenType.IDENTIFIER)
    )
    if words[0] in ("CREATE", "GRANT", "REVOKE", "COMMENT", "SHOW", "HELP"):
        return [Statement(frozenset({words[0].lower()} & set(KINDS)), names)]
    if words[0] == "EXPLAIN" and "ANALYZE" not in words:
        return [Statement(frozenset(), names)]
    verbs = {
        word.lower()
        for place, word in enumerate(words)
        if word.lower() in KINDS
        and (place == 0 or words[place - 1] not in _CLAUSE)
        and not _is_dotted(tokens, place)
    }
    if not verbs and words[0] not in (*_RUNS_STRINGS, *_COMMANDS):
        raise (
            CannotJudge(f"{tokens[0].text!r} begins no SQL statement that is known")
            if depth == 0
            else CannotJudge("text that is run as SQL is none")
        )
    return [Statement(frozenset(verbs), names)]


#: Statements without a tree of their own that perform none of the kinds.
_COMMANDS = (
    "BEGIN", "END", "COMMIT", "ROLLBACK", "SAVEPOINT", "RELEASE", "START", "DECLARE", "IF", "ELSE",
    "LOOP", "SET", "RESET", "USE", "VACUUM", "ANALYZE", "EXPLAIN", "LOCK", "UNLOCK", "KILL", "FLUSH",
    "RENAME", "REPLACE", "COPY", "LOAD", "IMPORT", "REFRESH", "CLUSTER", "REINDEX", "CHECKPOINT",
    "DISCARD", "LISTEN", "NOTIFY", "AUDIT", "NOAUDIT", "INSTALL", "UNINSTALL", "ENABLE", "DISABLE", "GO",
    "PRINT", "FETCH", "CLOSE", "OPEN", "DEALLOCATE", "PURGE", "ATTACH", "DETACH", "PRAGMA", "SHUTDOWN",
    "CACHE", "VALUES", "WITH", "TABLE",
)  # fmt: skip


def _is_word(token: Token) -> bool:
    return token.token_type not in (*_STRINGS, TokenType.IDENTIFIER, TokenType.NUMBER)


def _is_dotted(tokens: Sequence[Token], place: int) -> bool:
    return any(0 <= i < len(tokens) and tokens[i].token_type == TokenType.DOT for i in (place - 1, place + 1))


def run_by(tokens: Sequence[Token]) -> list[str]:
    """Strings of a statement that it runs as SQL; what a procedure does with its arguments is not known."""
    words = [t.text.upper() if _is_word(t) else "" for t in tokens]
    starts = [0] if words[0] == "DO" else []
    if words[0] == "PREPARE" and "FROM" in words:
        starts.append(words.index("FROM"))
    for place, word in enumerate(words[:-1]):
        follower = tokens[place + 1]
        if word in ("EXECUTE", "EXEC") and (
            follower.token_type in (*_STRINGS, TokenType.L_PAREN) or words[place + 1] in _RUNNERS
        ):
            starts.append(place)
    first = min(starts, default=len(tokens))
    return [t.text for t in tokens[first:] if t.token_type in _STRINGS and " " in t.text.strip()]
