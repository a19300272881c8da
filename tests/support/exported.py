"""What a tree holds, as the bytes of its export, times aside."""

from __future__ import annotations

import io
import json

from refork.formats.native import Native
from refork.tree.tree import Tree


def exported(tree: Tree) -> bytes:
    out = io.StringIO()
    Native().write(tree.records(), out)
    lines = []
    for line in out.getvalue().splitlines():
        body = json.loads(line)
        body.pop("created", None)
        body.get("cost", {}).pop("seconds", None)
        lines.append(json.dumps(body))
    return "\n".join(lines).encode()


def unordered(export: bytes) -> list[bytes]:
    return sorted(export.split(b"\n"))
