"""Texts that act on a terminal: what of them is left in the output of every command that is told them."""

from __future__ import annotations

import contextlib
import os
import sys
import tempfile
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "tests"))

from support.hostile_text import (
    READ,
    SERVING,
    WORD,
    hostile_files,
    hostile_server,
    left,
    told,
    verbs,
    whole,
    words_for,
)  # fmt: skip


def text(quick: bool) -> dict[str, int]:
    """Places in outputs that would act, and outputs looked at (a command's two streams are two).

    Every verb that reads a file is told a hostile one of each kind (``quick``: a tree, and none), what reads
    a tree reads it to its end on a terminal and off it, and a server refuses with hostile texts.
    """
    escapes = checked = 0
    command = whole()
    with tempfile.TemporaryDirectory() as name, contextlib.chdir(name):
        before = os.environ.get("REFORK_HOME")
        os.environ["REFORK_HOME"] = str(Path(name) / "home")
        try:
            (Path(name) / "files").mkdir()
            files, step = hostile_files(Path(name) / "files")
            lines: list[tuple[list[str], bool]] = []
            for path, verb in verbs(command):
                for kind in ("db", "missing") if quick else files:
                    words = None if path in SERVING else words_for(path, verb, files[kind], step)
                    lines += [] if words is None else [(words, True)]
            for line in READ:
                words = [part.format(**files, step=step) for part in line.split()]
                lines += [(words, True)] + ([] if line.startswith("tree export") else [(words, False)])
            with hostile_server() as address:
                for where in (f"/v1#{WORD}", "/raw#m"):
                    lines += [(["policy", "probe", f"openai:{address}{where}"], True)]
                for words, terminal in lines:
                    _, out, err = told(command, *words, terminal=terminal)
                    escapes += len(left(out)) + len(left(err))
                    checked += 2
        finally:
            if before is None:
                del os.environ["REFORK_HOME"]
            else:
                os.environ["REFORK_HOME"] = before
    return {"escapes": escapes, "escape_outputs_checked": checked}
