"""What a tool answered, as text: two answers that differ never read the same.

Text stands as it is. What is no text is named by its kind, MIME type, size and the first digits of its
sha256. A linked resource is named so where its contents were read.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import json
from collections.abc import Mapping, Sequence
from typing import Any

from refork_worlds.tools.call import compact

#: Hex digits of a digest that are shown.
DIGITS = 16
_UNTYPED = "no MIME type"


def result_text(answer: Any, linked: Mapping[str, bytes]) -> str:
    """The blocks of a result as lines, then structured content that no block says.

    ``linked``: the bytes of linked resources by their URI, as far as they were read.
    """
    lines: list[str] = []
    texts: list[str] = []
    for block in answer.content:
        if block.type == "text":
            texts.append(block.text)
            lines.append(block.text)
        elif block.type == "resource":
            lines.append(_embedded(block.resource))
        elif block.type == "resource_link":
            lines.append(_link(block, linked.get(block.uri)))
        else:
            lines.append(f"[{block.type} {_line(block.mime_type)}, {_encoded(block.data)}]")
    structured = answer.structured_content
    if structured is not None and not _repeated_in(structured, texts):
        lines.append(compact(structured))
    return "\n".join(lines)


def contents_bytes(contents: Sequence[Any]) -> bytes:
    """The bytes of a resource that was read, one part after the other."""
    return b"".join(
        one.text.encode() if getattr(one, "text", None) is not None else _decoded(one.blob)[0]
        for one in contents
    )


def _embedded(inner: Any) -> str:
    head = f"resource {_line(inner.uri)}, {_line(inner.mime_type or _UNTYPED)}"
    text = getattr(inner, "text", None)
    return f"[{head}, {_encoded(inner.blob)}]" if text is None else f"[{head}]\n{text}"


def _link(block: Any, data: bytes | None) -> str:
    parts = [f"resource link {_line(block.uri)}", _line(block.name), _line(block.mime_type or _UNTYPED)]
    if data is not None:
        parts.append(_sized(data))
    elif block.size is not None:
        parts.append(f"{block.size} bytes as the server says")
    return f"[{', '.join(parts)}]"


def _encoded(text: str) -> str:
    data, whole = _decoded(text)
    return _sized(data) if whole else f"{_sized(data)} of what is no base64"


def _decoded(text: str) -> tuple[bytes, bool]:
    """The bytes that base64 stands for; the text itself and False where it is none."""
    try:
        return base64.b64decode("".join(text.split()), validate=True), True
    except (binascii.Error, ValueError):
        return text.encode(), False


def _sized(data: bytes) -> str:
    return f"{len(data)} bytes, sha256 {hashlib.sha256(data).hexdigest()[:DIGITS]}"


def _line(text: str) -> str:
    """On one line, so that a name cannot pass for what follows it."""
    return " ".join(text.split())


def _repeated_in(structured: Any, texts: Sequence[str]) -> bool:
    """Whether text blocks say it already, as servers are asked to; SDKs wrap what is no object in result."""
    inside = structured["result"] if isinstance(structured, dict) and set(structured) == {"result"} else None
    if isinstance(inside, list) and 0 < len(inside) == len(texts) and all(map(_says, texts, inside)):
        return True
    return any(_says(text, structured) or (inside is not None and _says(text, inside)) for text in texts)


def _says(text: str, value: Any) -> bool:
    if text == value:
        return True
    try:
        return bool(json.loads(text) == value)
    except (ValueError, RecursionError):
        return False
