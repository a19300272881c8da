"""C functions like those of public benchmarks (PolyBench, Rodinia, loops of applications), written anew.

Each file is one problem for ``refork kernel``: its first line says sizes and lengths. They are written as
such code is: counters declared before, sums in memory, pointers that walk, loops without a body, early ends.
"""

from __future__ import annotations

from pathlib import Path


def functions() -> dict[str, Path]:
    """The files, by the name of their function."""
    return {one.stem: one for one in sorted(Path(__file__).parent.glob("*.c"))}
