"""What the tests of the diagnosis share: a machine that was not measured, and benches on small kernels."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from refork_methods.kernel.bench import Bench, Calibration
from refork_methods.kernel.problem import read_problem

#: Figures of no machine: tests compare with them, and measure no ceilings.
KNOWN = Calibration(
    fingerprint="none", machine={}, flops=64e9, flops64=32e9, bandwidth=10e9, ordinary=10e9, cached=100e9,
    triad_bytes=1 << 25, cache_bytes=1 << 20, noise=1.1, made="never",
)  # fmt: skip

needs_gcc = pytest.mark.skipif(
    any(shutil.which(one) is None for one in ("gcc", "objcopy", "objdump")),
    reason="gcc or binutils are not installed",
)
needs_valgrind = pytest.mark.skipif(shutil.which("valgrind") is None, reason="valgrind is not installed")


@pytest.fixture
def known() -> Calibration:
    return KNOWN


@pytest.fixture
def opened(tmp_path: Path) -> Iterator[Callable[[str], Bench]]:
    """Opens a bench on a C text."""
    with ExitStack() as stack:

        def make(text: str) -> Bench:
            source = tmp_path / "kernel.c"
            source.write_text(text)
            problem = read_problem(source, name="kernel")
            return stack.enter_context(Bench(problem, tmp_path / "bench", calibration=KNOWN))

        yield make
