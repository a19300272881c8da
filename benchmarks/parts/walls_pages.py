"""Pages of strangers against really started servers, in real Chromium: what they read, and what they did."""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "tests"))

from refork_worlds.web import browser


def pages(quick: bool) -> dict[str, int] | None:
    """Attack ``serve`` and ``view`` from another origin and under a rebound name.

    ``cross_origin_reads``: tries in which a page saw something of an answer; ``cross_origin_writes``: answers
    of a model, nodes and forks that they led to; ``cross_origin_tried``: all tries. Quick:
    the machine has one name, else two. None where there is no Chromium; why is on standard error.
    """
    why = browser.missing()
    if why is not None:
        print(f"pages were not tried: {why}", file=sys.stderr)
        return None
    from support.hostile_pages import ATTACKS

    found = {"cross_origin_reads": 0, "cross_origin_writes": 0, "cross_origin_tried": 0}
    for name in ("127.0.0.1",) if quick else ("127.0.0.1", "localhost"):
        for attack in ATTACKS.values():
            with tempfile.TemporaryDirectory() as folder:
                got = attack(Path(folder), name)
            found["cross_origin_reads"] += len(got.read)
            found["cross_origin_writes"] += got.answered + got.written
            found["cross_origin_tried"] += len(got.tries)
    browser.close()
    return found
