"""Foreign text where people read it: what would act on a terminal or a page is shown as a sign instead.

A text of a log, of a model or of a server may hold sequences that move the cursor, set the title, answer for
the keyboard or turn the direction of what follows. :func:`visible` is the one place that decides which
characters these are. Pages call it; everything that a command prints passes :class:`VisibleStream`.
"""

from __future__ import annotations

import io
import json
import re
import sys
from typing import Any, Final, TextIO, final

#: What acts or is not seen, in the form of a character class that Python and JavaScript both read: controls
#: but line feed and tab, directions, what has no width, line and paragraph separators, halves of pairs, tags.
#: Joiners (200C, 200D) and the selectors of emoji stay: scripts and emoji are written with them.
ACTS: Final = (
    r"\u0000-\u0008\u000b-\u001f\u007f-\u009f\u00ad\u034f\u061c\u115f\u1160\u17b4\u17b5\u180e\u200b\u200e\u200f"
    r"\u2028-\u202e\u2060-\u206f\u3164\ud800-\udfff\ufeff\uffa0\ufff0-\ufffb\ufffe\uffff"
)
_ACTS: Final = re.compile(f"[{ACTS}\U000e0000-\U000e0fff]")
#: What a library that draws in colour writes: styles, the cursor hidden, lines gone over again.
_STYLE: Final = re.compile(r"\x1b\[[\d;:]*m")
_DRAWN: Final = re.compile(r"(\x1b\[[\d;:]*m|\x1b\[\?25[hl]|\x1b\[\d*[ABCDGJK]|\r)")


def visible(text: str) -> str:
    """A text with signs for what would act or hide: ``␛`` for escape, ``�`` where there is no picture.

    Every character becomes one character; line feeds and tabs stay.
    """
    return _ACTS.sub(_sign, text)


def _sign(match: re.Match[str]) -> str:
    code = ord(match[0])
    return chr(0x2400 + code) if code < 0x20 else "␡" if code == 0x7F else "\ufffd"


def json_text(value: Any, indent: int | None = None) -> str:
    """The JSON text of a value: the same data, with what would act on a terminal as JSON escapes."""
    return _ACTS.sub(_escape, json.dumps(value, indent=indent, ensure_ascii=False))


def _escape(match: re.Match[str]) -> str:
    code = ord(match[0])
    return f"\\u{code:04x}" if code < 0x10000 else json.dumps(match[0])[1:-1]


class _Stream(io.TextIOBase):
    """A text stream over another one."""

    def __init__(self, under: TextIO) -> None:
        self.under = under

    @property
    def encoding(self) -> str:  # type: ignore[override]
        """As the stream under it."""
        return self.under.encoding

    @property
    def errors(self) -> str | None:  # type: ignore[override]
        """As the stream under it."""
        return self.under.errors

    def isatty(self) -> bool:
        """As the stream under it."""
        return self.under.isatty()

    def writable(self) -> bool:
        """Always."""
        return True

    def fileno(self) -> int:
        """As the stream under it."""
        return self.under.fileno()

    def flush(self) -> None:
        """As the stream under it."""
        if not self.under.closed:
            self.under.flush()


@final
class DrawnStream(_Stream):
    """For writers that have made their texts visible and draw with styles: nothing else acts."""

    def write(self, text: str) -> int:
        """Write a text; what is neither a style nor a move of the drawing is made visible."""
        # The pattern is one group: the texts come at even places, the sequences between them at odd ones.
        parts = _DRAWN.split(text)
        self.under.write("".join(one if at % 2 else visible(one) for at, one in enumerate(parts)))
        return len(text)


@final
class VisibleStream(_Stream):
    """What people read: nothing that is written through it acts.

    Styles are left out, for whoever writes them may have them from a foreign text; ``drawn`` is for writers
    of ours. ``beside`` takes the lines while something is drawn under them.
    """

    def __init__(self, under: TextIO) -> None:
        super().__init__(under)
        self.drawn = DrawnStream(under)
        self.beside: TextIO | None = None

    def write(self, text: str) -> int:
        """Write a text, made visible."""
        (self.beside or self.under).write(visible(_STYLE.sub("", text)))
        return len(text)


def show_only() -> None:
    """From now on all that this process prints is made visible, an error's traceback at its end too."""
    for name in ("stdout", "stderr"):
        stream = getattr(sys, name)
        if stream is None or isinstance(stream, VisibleStream):
            continue
        if isinstance(stream, io.TextIOWrapper) and stream.errors == "strict":
            stream.reconfigure(errors="backslashreplace")  # a sign that the terminal has no letter for
        setattr(sys, name, VisibleStream(stream))


def drawn(*, err: bool = False) -> DrawnStream:
    """Standard output or error for a writer that draws with styles."""
    stream = sys.stderr if err else sys.stdout
    return stream.drawn if isinstance(stream, VisibleStream) else DrawnStream(stream)
