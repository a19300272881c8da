"""Walls: code from models, files from strangers, pages in browsers; attacks on each, told by their effects.

Every part attacks with a list that its tests share: disguises and bombs for the compiler, commands that try
to outlive their episode, pages of another origin and of a rebound name in Chromium, tree files that run SQL
of their own or have a bit flipped, texts that act on a terminal. ``--no-namespaces`` holds commands and
compilers by Landlock and seccomp alone, as where there are no namespaces. Each part is a process of its own.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import time
from pathlib import Path

PARTS = ("compiler", "shell", "pages", "trees", "text")


def measured(part: str, quick: bool, namespaces: bool) -> dict[str, int]:
    """The figures of one part; none where the machine lacks what it needs, which it says."""
    found: dict[str, int] | None
    if part == "compiler":
        from parts.walls_compiler import compiler

        found = compiler(quick, ("namespaces", "landlock") if namespaces else ("landlock",))
    elif part == "shell":
        from parts.walls_shell import shell

        found = shell(quick, namespaces)
    elif part == "pages":
        from parts.walls_pages import pages

        found = pages(quick)
    elif part == "trees":
        from parts.walls_trees import trees

        found = trees(quick)
    else:
        from parts.walls_text import text

        found = text(quick)
    return found or {}


def main() -> None:
    """Run the parts, and print all figures as the last line."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--quick", action="store_true", help="shorter lists where they are long")
    parser.add_argument("--no-namespaces", action="store_true", help="hold by Landlock and seccomp alone")
    parser.add_argument("--part", choices=PARTS, help="only this one, in this process")
    asked = parser.parse_args()
    if asked.part is not None:
        print(json.dumps(measured(asked.part, asked.quick, not asked.no_namespaces)))
        return
    figures: dict[str, int] = {"namespaces": int(not asked.no_namespaces)}
    options = ["--quick"] * asked.quick + ["--no-namespaces"] * asked.no_namespaces
    for part in PARTS:
        began = time.monotonic()
        command = [sys.executable, str(Path(__file__)), "--part", part, *options]
        done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True)
        found = json.loads(done.stdout.strip().splitlines()[-1])
        print(f"{part}: {json.dumps(found)}, {time.monotonic() - began:.0f} s", flush=True)
        figures |= found
    print(json.dumps(figures))


if __name__ == "__main__":
    main()
