"""Changed files of a format: places of its JSON, rows, entries or values made odd, or its bytes.

A change is a pure function of the file and of the dice, so a number names an input for good.
"""

from __future__ import annotations

import contextlib
import gzip
import io
import json
import pickle
import random
import sqlite3
import struct
import zipfile
import zlib
from collections.abc import Callable
from functools import lru_cache
from typing import Any

import zstandard

#: Texts that stand for what ``json.dumps`` cannot write; they are put in afterwards.
RAW = {
    "@raw:vast@": "1e999", "@raw:nan@": "NaN", "@raw:inf@": "-Infinity", "@raw:digits@": "9" * 5000,
    "@raw:deep@": "[" * 1100 + "]" * 1100, "@raw:open@": '{"a":' * 1100, "@raw:half@": '"\\ud800"',
    "@raw:nul@": '"\\u0000"', "@raw:tiny@": "1e-400", "@raw:minus@": "-0",
}  # fmt: skip
ODD: tuple[Any, ...] = (
    None, 0, -1, 1, 0.5, 1e308, -1e-300, "", "x", "\0", "\ud83d\ude00", [], {}, [1], {"a": 1}, [[]], [{}],
    [None], "\u2028", 10**30, -(10**350), 2**31, 2**63, -(2**63) - 1, True, False, "9" * 400, "a" * 5000,
    "null", "[", "{", "[1]", '{"a": [1]}', "{'a': 1}", "1e5", "2026-13-45T99:99:99Z", "0001-01-01", "nan",
    "assistant", "system", "tool", {"role": "user"},
    {"role": "assistant", "content": [{"type": "text", "text": 1}]},
    "../../etc/passwd", "sk-ant-" + "aB3" * 12, "password=hx7-Plover-22", list(range(300)), *RAW,
)  # fmt: skip
TOKENS = (
    b"[", b"{", b'"', b"\\", b"]", b"}", b",", b":", b"\n", b"\r", b"\0", b"\xff", b"\xef\xbb\xbf",
    b"\xff\xfe", b"null", b"-", b"1e999", b"NaN", b"\xed\xa0\x80", b"\\ud800", b"PK\x03\x04", b"PK\x05\x06",
    b"\x7f" * 4, b"\xff" * 4, b"\xff" * 8, b"\0" * 8, b"SQLite format 3\0", b"PAR1", b"\x1f\x8b\x08",
    b'{"a":', b" " * 300,
)  # fmt: skip
HOSTILE = (
    b"\x80\x02cos\nsystem\nX\x02\0\0\0id\x85R.", b"\x80\x02]r\xff\xff\xff\x7f.",
    b"\x80\x05\x8e" + b"\xff" * 8,
    b"\x80\x02cbuiltins\nbytearray\nJ\xff\xff\xff\x7f\x85R.", b"\x80\x02]q\0h\0a.", b"\x80\x02}q\0h\0K\x01s.",
    b"\x80\x04\x8c\x08builtins\x8c\x04eval\x93.", b"\x80\x02(" + b"(" * 3000 + b"t" * 3000 + b".",
)  # fmt: skip
Dice = random.Random


def changed(dice: Dice, data: bytes, words: tuple[Any, ...] = ()) -> bytes:
    """A file made of another; ``words`` are keys and values that its format knows."""
    how = dice.random()
    if how < 0.03:
        return dice.choice((b"[", b'{"a":', b"\xff\xfe", b"\0", b"\n", b"{}\n", b'"')) * dice.randrange(
            1, 4000
        )
    if how < 0.75 and (made := _structured(dice, data, words)) is not None:
        return _bytes(dice, made) if how < 0.08 else made
    return _bytes(dice, data)


def _structured(dice: Dice, data: bytes, words: tuple[Any, ...]) -> bytes | None:
    """A change within what a file is made of; None where that is not known."""
    for mark, made in _KINDS.items():
        if data.startswith(mark):
            try:
                return made(dice, data, words)
            except Exception:  # an earlier change broke it
                return None
    return _text(dice, data, words)


def _bytes(dice: Dice, data: bytes) -> bytes:
    """Bytes put in, changed, taken out, moved; now and then the end cut off."""
    made = bytearray(data)
    for _ in range(dice.choice((1, 1, 1, 2, 4, 16))):
        at, how = dice.randrange(len(made) + 1), dice.randrange(6)
        if how == 0 and at < len(made):
            made[at] ^= 1 << dice.randrange(8)
        elif how == 1 and at < len(made):
            made[at] = dice.randrange(256)
        elif how == 2:
            made[at:at] = dice.choice(TOKENS)
        elif how == 3:
            del made[at : at + dice.choice((1, 1, 2, 4, 30))]
        elif how == 4:
            token = dice.choice(TOKENS)
            made[at : at + len(token)] = token
        else:
            start = dice.randrange(len(made) + 1)
            made[at:at] = made[start : start + dice.randrange(64)]
    if dice.random() < 0.2:
        del made[dice.randrange(len(made) + 1) :]
    return bytes(made)


def value(dice: Dice, body: Any, words: tuple[Any, ...] = ()) -> Any:
    """A document with a few places changed, in place."""
    holder = [body]
    for _ in range(dice.choice((1, 1, 1, 2, 3, 6))):
        _change(dice, holder, words)
    return holder[0]


def _place(dice: Dice, top: list[Any]) -> tuple[Any, Any]:
    """A holder and one of its keys; deep places are as likely as shallow ones."""
    holder: Any = top
    key: Any = 0
    while True:
        inner = holder[key]
        if not inner or not isinstance(inner, (dict, list)) or dice.random() < 0.15:
            return holder, key
        holder = inner
        key = dice.choice(list(holder)) if isinstance(holder, dict) else dice.randrange(len(holder))


def _change(dice: Dice, top: list[Any], words: tuple[Any, ...]) -> None:  # noqa: C901  (a list of changes)
    holder, key = _place(dice, top)
    how, old = dice.randrange(12), holder[key]
    if how == 0 and holder is not top:
        del holder[key]
    elif how == 1:
        other, at = _place(dice, top)
        # A copy: what holds itself is no JSON.
        holder[key] = _copy(other[at])
    elif how == 2 and isinstance(old, list):
        old.insert(dice.randrange(len(old) + 1), _copy(dice.choice(old)) if old else _odd(dice))
    elif how == 3 and isinstance(old, dict):
        name = dice.choice(words) if words else "x"
        old[str(name)] = _odd(dice) if dice.random() < 0.6 else dice.choice(words or ODD)
    elif how == 4:
        holder[key] = _other_kind(dice, old)
    elif how == 5 and isinstance(old, str) and old[:1] in ("{", "["):
        try:
            holder[key] = json.dumps(value(dice, json.loads(old), words))
        except (ValueError, RecursionError):
            holder[key] = old[:-1]
    elif how == 6 and isinstance(old, str):
        at = dice.randrange(len(old) + 1)
        holder[key] = old[:at] + str(_odd(dice))[:300] + old[at:]
    elif how == 7 and isinstance(holder, dict):
        holder[str(dice.choice(words) if words else _odd(dice))[:60]] = holder.pop(key)
    elif how == 8 and words:
        holder[key] = _copy(dice.choice(words))
    else:
        holder[key] = _odd(dice)


def _odd(dice: Dice) -> Any:
    return _copy(dice.choice(ODD))


def _copy(one: Any) -> Any:
    return json.loads(json.dumps(one)) if isinstance(one, (dict, list)) else one


def _other_kind(dice: Dice, old: Any) -> Any:
    """The same as a text, in a list, as a number, without its list or its names."""
    how = dice.randrange(4)
    if how == 0:
        return json.dumps(old)
    if how == 1:
        return [old]
    if how == 2 and isinstance(old, dict):
        return list(old.values())
    if isinstance(old, list):
        return old[0] if old else {str(at): one for at, one in enumerate(old)}
    return {"0": old} if how == 2 else len(str(old))


def _written(body: Any, indent: int | None = None) -> str:
    text = json.dumps(body, indent=indent)
    if "@raw:" in text:
        for mark, raw in RAW.items():
            text = text.replace(f'"{mark}"', raw)
    return text


@lru_cache(maxsize=4096)
def _parts(data: bytes) -> tuple[str, ...]:
    """The lines of a file of JSON lines, or the one document that it is; empty where it is neither."""
    try:
        lines = [line for line in data.decode("utf-8").split("\n") if line.strip()]
        for line in lines:
            json.loads(line)
        return tuple(lines)
    except (ValueError, RecursionError):
        pass
    try:
        return (json.dumps(json.loads(data)),)
    except (ValueError, RecursionError):
        return ()


def _text(dice: Dice, data: bytes, words: tuple[Any, ...]) -> bytes | None:
    """Lines or a document of JSON, some of them changed, doubled, moved, or put into an array."""
    lines = list(_parts(data))
    if not lines:
        return None
    if len(lines) > 4 and dice.random() < 0.5:
        # Few at a time, so that an input costs little and one bad line does not hide behind others.
        first = lines[:1] if dice.random() < 0.5 else []
        start = dice.randrange(len(lines))
        lines = first + lines[start : start + dice.randrange(1, 4)]
    for _ in range(dice.choice((1, 1, 1, 2))):
        at = dice.randrange(len(lines))
        try:
            body = json.loads(lines[at])
        except (ValueError, RecursionError):
            continue
        lines[at] = _written(value(dice, body, words))
    how = dice.random()
    if how < 0.1:
        lines.insert(dice.randrange(len(lines) + 1), dice.choice(lines))
    elif how < 0.15:
        dice.shuffle(lines)
    elif how < 0.2:
        return ("[" + ",".join(lines) + "]").encode()
    elif how < 0.24:
        return lines[0].replace("{", "{\n ", 3).encode()
    elif how < 0.26:
        return "\n".join(lines).encode(dice.choice(("utf-16", "utf-32-le", "utf-8-sig")), errors="replace")
    return dice.choice(("\n", "\n", "\n", "\r\n", "\n\n")).join(lines).encode() + b"\n"


@lru_cache(maxsize=256)
def entries(data: bytes) -> tuple[tuple[str, bytes], ...]:
    """The files of an archive, Zstandard too, by the headers before them; as they are if damaged."""
    found, at = [], 0
    while data[at : at + 4] == b"PK\x03\x04" and at + 30 <= len(data):
        method, packed, named, more = struct.unpack("<8xH8xI4xHH", data[at : at + 30])
        body = data[at + 30 + named + more : at + 30 + named + more + packed]
        name = data[at + 30 : at + 30 + named].decode("utf-8", errors="replace")
        with contextlib.suppress(zstandard.ZstdError, zlib.error):
            if method == 93:
                body = zstandard.ZstdDecompressor().decompressobj().decompress(body)
            elif method == 8:
                body = zlib.decompress(body, -15)
        found.append((name, body))
        at += 30 + named + more + packed
    return tuple(found)


def _zip(dice: Dice, data: bytes, words: tuple[Any, ...]) -> bytes:
    """An archive with a file of it changed, renamed, doubled or left out, or with a header that lies."""
    files = [list(one) for one in entries(data)]
    at = dice.randrange(len(files))
    how = dice.random()
    if how < 0.75:
        files[at][1] = _text(dice, files[at][1], words) or _bytes(dice, files[at][1])
    elif how < 0.82:
        files[at][0] = dice.choice(
            ("../x", "/etc/x", "C:\\x", "a\0b", "header.json", "samples/1.json", "x" * 300)
        )
    elif how < 0.88:
        files.pop(at)
    elif how < 0.92:
        files.append(list(files[at]))
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", zipfile.ZIP_STORED) as packed:
        for name, body in files:
            packed.writestr(zipfile.ZipInfo(name or "?"), body)
    made = bytearray(out.getvalue())
    if how > 0.92:
        # Sizes, offsets, flags and methods of the directory's entries.
        start = made.rfind(b"PK\x01\x02") if dice.random() < 0.7 else made.rfind(b"PK\x05\x06")
        where = max(0, start) + dice.randrange(4, 46)
        made[where : where + 4] = dice.choice(
            (b"\xff\xff\xff\xff", b"\0\0\0\0", b"\1\0\0\0", dice.randbytes(4))
        )
    return bytes(made)


def _pickle(dice: Dice, data: bytes, words: tuple[Any, ...]) -> bytes:
    """A gzipped pickle of changed values, or of changed opcodes."""
    raw = gzip.decompress(data)
    how = dice.random()
    if how < 0.05:
        raw = dice.choice(HOSTILE)
    elif how < 0.6:
        raw = pickle.dumps(value(dice, _Plain(io.BytesIO(raw)).load(), words), protocol=dice.randrange(6))
    else:
        raw = _bytes(dice, raw)
    return gzip.compress(raw, 1)


class _Plain(pickle.Unpickler):
    """Reads what this file wrote: containers and texts, and no classes."""

    def find_class(self, module: str, name: str) -> Any:
        raise ValueError(f"{module}.{name}")


def _database(dice: Dice, data: bytes, words: tuple[Any, ...]) -> bytes:
    """A database with values, rows, columns or tables of it changed."""
    db = sqlite3.connect(":memory:", isolation_level=None)
    try:
        db.deserialize(data)
        db.execute("PRAGMA journal_mode = OFF")
        names = [row[0] for row in db.execute("SELECT name FROM sqlite_master WHERE type = 'table'")]
        for _ in range(dice.choice((1, 1, 2, 4))):
            _row(dice, db, dice.choice(names), words)
        return bytes(db.serialize())
    finally:
        db.close()


def _row(dice: Dice, db: sqlite3.Connection, table: str, words: tuple[Any, ...]) -> None:
    columns = [row[1] for row in db.execute(f'PRAGMA table_info("{table}")')]
    if not columns:
        return
    column, how = dice.choice(columns), dice.random()
    if how < 0.7:
        row = db.execute(f'SELECT rowid, "{column}" FROM "{table}" ORDER BY rowid').fetchall()
        if not row:
            return
        number, old = dice.choice(row)
        new = _cell(dice, old, words)
        db.execute(f'UPDATE "{table}" SET "{column}" = ? WHERE rowid = ?', (new, number))
    elif how < 0.78:
        db.execute(f'INSERT INTO "{table}" SELECT * FROM "{table}" LIMIT 1')
    elif how < 0.86:
        db.execute(f'DELETE FROM "{table}" WHERE rowid IN (SELECT rowid FROM "{table}" LIMIT 1)')
    elif how < 0.94:
        db.execute(
            f'ALTER TABLE "{table}" RENAME COLUMN "{column}" TO "{dice.choice(("id", "x", "content"))}"'
        )
    else:
        db.execute(f'DROP TABLE "{table}"')


def _cell(dice: Dice, old: Any, words: tuple[Any, ...]) -> Any:
    if isinstance(old, str) and old[:1] in ("{", "[") and dice.random() < 0.6:
        return (_text(dice, old.encode(), words) or b"").decode(errors="replace")
    new = _odd(dice)
    if isinstance(new, int) and abs(new) >= 2**63:
        return float(new)
    if isinstance(new, (dict, list)):
        return json.dumps(new)
    if isinstance(new, str):
        raw = RAW.get(new, new).encode(errors="replace")
        return b"\xff\xfe" + raw[:40] if dice.random() < 0.1 else raw.decode()
    return new


@lru_cache(maxsize=64)
def _rows(data: bytes) -> str:
    import pyarrow.parquet

    rows = pyarrow.parquet.read_table(io.BytesIO(data)).slice(0, 3).to_pylist()
    return json.dumps(rows, default=str)


def _parquet(dice: Dice, data: bytes, words: tuple[Any, ...]) -> bytes:
    """Parquet of changed rows."""
    import pyarrow
    import pyarrow.parquet

    rows = value(dice, json.loads(_rows(data)), words)
    out = io.BytesIO()
    try:
        table = pyarrow.Table.from_pylist([row for row in rows if isinstance(row, dict)])
        pyarrow.parquet.write_table(table, out, compression="none")
    except (pyarrow.lib.ArrowException, TypeError, AttributeError, UnicodeError) as error:
        raise ValueError("no such table") from error
    return out.getvalue()


_KINDS: dict[bytes, Callable[[Dice, bytes, tuple[Any, ...]], bytes]] = {
    b"PK\x03\x04": _zip,
    b"SQLite format 3\0": _database,
    b"PAR1": _parquet,
    b"\x1f\x8b": _pickle,
}


def words_of(seeds: list[bytes]) -> tuple[Any, ...]:
    """Keys and short values of the JSON in files, for changes that make sense to their format."""
    found: dict[str, Any] = {}
    todo: list[Any] = []
    for seed in seeds:
        texts = [body for _, body in entries(seed)] if seed.startswith(b"PK\x03\x04") else [seed]
        todo += [json.loads(line) for text in texts for line in _parts(text)]
    while todo:
        one = todo.pop()
        if isinstance(one, dict):
            found |= dict.fromkeys(one)
            todo.extend(one.values())
        elif isinstance(one, list):
            todo.extend(one)
        elif isinstance(one, str) and len(one) < 40:
            found[one] = None
    return tuple(sorted(found))
