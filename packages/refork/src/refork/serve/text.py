"""Text of tokens while they come: whole characters, and nothing that a stop string may still take back."""

from __future__ import annotations

import codecs
from collections.abc import Callable, Collection, Sequence
from typing import Protocol, TypeAlias, final

from refork.policies.chat import Codec
from refork.types import IntArray

#: Text of tokens, and where each ends in it (characters).
Pieces: TypeAlias = Callable[[Sequence[int]], tuple[str, IntArray]]

_INCOMPLETE = "\ufffd"
#: Tokens kept as left context: those of one UTF-8 character, and the neighbour that some decoders look at.
_CONTEXT = 5
_LONGEST = 16


class TextReader(Protocol):
    """Characters of a stream of tokens, each given out once it is whole.

    What all calls together return is what the codec's ``pieces`` gives of all tokens.
    """

    def put(self, token: int) -> str:
        """The text that has become certain with one token more."""
        ...

    def end(self) -> str:
        """What is left when no token follows."""
        ...


def reader_of(codec: Codec) -> TextReader:
    """A reader of a codec's tokens."""
    table = codec.token_bytes
    if table is not None:
        return BytesReader(table, codec.special_ids)
    return WindowReader(codec.pieces, codec.special_ids)


@final
class BytesReader:
    """For tokens that are bytes, whatever stands beside them. ``silent`` ones add no text."""

    def __init__(self, table: Sequence[bytes], silent: Collection[int] = ()) -> None:
        self._table = table
        self._silent = silent
        self._decode = codecs.getincrementaldecoder("utf-8")("replace").decode

    def put(self, token: int) -> str:
        """The text that has become certain with one token more."""
        return "" if token in self._silent else self._decode(self._table[token])

    def end(self) -> str:
        """What is left when no token follows."""
        return self._decode(b"", True)


@final
class WindowReader:
    """For decoders that look at neighbours: the last tokens are decoded again with each new one."""

    def __init__(self, pieces: Pieces, silent: Collection[int] = ()) -> None:
        self._pieces = pieces
        self._silent = silent
        self._window: list[int] = []
        self._given = 0

    def put(self, token: int) -> str:
        """The text that has become certain with one token more."""
        if token in self._silent:
            return ""
        self._window.append(token)
        text = self._pieces(self._window)[0]
        # Last characters that cannot be decoded may be bytes of one that can.
        certain = len(text.rstrip(_INCOMPLETE))
        full = len(self._window) >= (_LONGEST if certain == len(text) else 4 * _LONGEST)
        if full:
            # Decoding all that was said again for every token would be quadratic.
            self._window, kept = self._end_of(text)
            certain = max(certain, len(text) - len(kept))
        new = text[self._given : certain]
        self._given = max(certain, self._given)
        if full:
            self._given -= len(text) - len(kept)
        return new

    def _end_of(self, text: str) -> tuple[list[int], str]:
        """The last tokens and their text; from the beginning of a character, where one begins there."""
        tails = [self._window[-size:] for size in range(_CONTEXT, 0, -1)]
        ends = [(tail, self._pieces(tail)[0]) for tail in tails]
        return next((one for one in ends if text.endswith(one[1])), ends[0])

    def end(self) -> str:
        """What is left when no token follows."""
        if not self._window:
            return ""
        new = self._pieces(self._window)[0][self._given :]
        self._given += len(new)
        return new


@final
class Speech:
    """Text of one answer as it may be sent.

    ``stops`` end it: the text ends before the one that begins first, or behind it with ``keep_stop``. Text
    that may be the beginning of a stop string is held back until it is known not to be. ``ends`` has the end
    of every token in the whole text (characters), ``stopped`` the stop string that was met.
    """

    def __init__(self, reader: TextReader, stops: Sequence[str] = (), *, keep_stop: bool = False) -> None:
        self._reader = reader
        self._stops = tuple(stops)
        self._keep = keep_stop
        self._held = ""
        self._read = 0
        self.ends: list[int] = []
        self.stopped: str | None = None

    def put(self, tokens: Sequence[int], *, last: bool = False) -> str:
        """The text that may be sent now; ``last``: no token follows."""
        sent = []
        for token in tokens:
            sent.append(self._offer(self._reader.put(token)))
            self.ends.append(self._read)
        # What the reader still holds when all is said belongs to the last token.
        if last:
            sent.append(self._offer(self._reader.end()))
            if self.ends:
                self.ends[-1] = self._read
            if self.stopped is None:
                sent.append(self._held)
                self._held = ""
        return "".join(sent)

    def _offer(self, text: str) -> str:
        self._read += len(text)
        if not self._stops or not text:
            return text
        if self.stopped is not None:
            return ""
        text = self._held + text
        found = [(at, stop) for stop in self._stops if (at := text.find(stop)) >= 0]
        if found:
            # Of those that begin together the longest, so that the answer does not hang on their order.
            at, self.stopped = min(found, key=lambda pair: (pair[0], -len(pair[1])))
            return text[: at + len(self.stopped) if self._keep else at]
        kept = max(begun(text, stop) for stop in self._stops)
        self._held = text[len(text) - kept :]
        return text[: len(text) - kept]


def begun(text: str, mark: str) -> int:
    """How many last characters of a text may be the beginning of a mark."""
    sizes = range(min(len(mark) - 1, len(text)), 0, -1)
    return next((size for size in sizes if text.endswith(mark[:size])), 0)
