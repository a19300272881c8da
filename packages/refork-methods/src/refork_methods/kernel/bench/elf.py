"""Sections and symbols of a 64-bit little-endian object file, read without trusting it."""

from __future__ import annotations

import struct
from dataclasses import dataclass
from typing import final

from refork.errors import BadInput

_SYMBOLS = 2  # SHT_SYMTAB
LOCAL, INDIRECT, UNDEFINED = 0, 10, 0
#: Of sections and symbols, and bytes of a name: names may lie in each other, so that a small file tells much.
_MOST, _LONGEST = 1 << 16, 4096


@final
@dataclass(frozen=True, slots=True)
class Symbol:
    """A symbol: its name, whether it is defined here, seen outside, and resolved by code (an ifunc)."""

    name: str
    defined: bool
    outside: bool
    indirect: bool


def read_object(data: bytes) -> tuple[list[str], list[Symbol]]:
    """Names of the sections, and the symbols.

    Raises:
        BadInput: it is no such file.
    """
    try:
        if data[:6] != b"\x7fELF\x02\x01":
            raise ValueError("it is no 64-bit ELF file")
        (start,) = struct.unpack_from("<Q", data, 40)
        size, count, names = struct.unpack_from("<HHH", data, 58)
        if size < 64:
            raise ValueError("its section headers are too short")
        if count == 0 or names == 0xFFFF:  # more sections than the header can count: in the first of them
            (many,) = struct.unpack_from("<Q", data, start + 32)
            (link,) = struct.unpack_from("<I", data, start + 40)
            count, names = (many or count), (link if names == 0xFFFF else names)
        if count > _MOST:
            raise ValueError(f"over {_MOST} sections")
        heads = [struct.unpack_from("<IIQQQQIIQQ", data, start + size * n) for n in range(count)]
        table = _content(data, heads[names])
        sections = [_text(table, head[0]) for head in heads]
        symbols: list[Symbol] = []
        for head in heads:
            if head[1] == _SYMBOLS:
                if head[5] > 24 * _MOST or len(symbols) > _MOST:
                    raise ValueError(f"over {_MOST} symbols")
                symbols += _symbols(_content(data, head), _content(data, heads[head[6]]))
    except (struct.error, IndexError, ValueError) as error:
        raise BadInput(f"this object file cannot be read: {error}", where="kernel build") from None
    return sections, symbols


def _content(data: bytes, head: tuple[int, ...]) -> bytes:
    return data[head[4] : head[4] + head[5]]


def _symbols(table: bytes, names: bytes) -> list[Symbol]:
    found = []
    for name, info, _, section, _, _ in struct.iter_unpack("<IBBHQQ", table[: len(table) // 24 * 24]):
        if name:
            found.append(
                Symbol(_text(names, name), section != UNDEFINED, info >> 4 != LOCAL, info & 15 == INDIRECT)
            )
    return found


def _text(table: bytes, start: int) -> str:
    end = table.find(b"\0", start, start + _LONGEST + 1)
    if end < 0:
        raise ValueError(f"a name that does not end, or is over {_LONGEST} bytes")
    return table[start:end].decode(errors="replace")
