"""Smaller sizes for the simulated run, and the least traffic of a problem."""

from __future__ import annotations

from pathlib import Path

import pytest

from refork_methods.kernel.diagnose import CACHE, array_bytes, simulated_problem, with_bytes
from refork_methods.kernel.problem import Problem, read_problem
from refork_methods.kernel.roofline import Work

MATMUL = """
// refork: entry=f n=512 k=3 a=n*n b=n*n c=n*n:inout {work}
void f(int n, int k, const float *a, const float *b, float *c) {{
    for (int i = 0; i < n * n; i++) c[i] += k * a[i] * b[i];
}}
"""


def problem(tmp_path: Path, work: str = "flops=2*n*n*n bytes=16*n*n") -> Problem:
    path = tmp_path / "f.c"
    path.write_text(MATMUL.format(work=work))
    return read_problem(path)


def test_what_is_read_and_written_counts_twice(tmp_path: Path) -> None:
    assert array_bytes(problem(tmp_path)) == 4 * 4 * 512**2
    assert array_bytes(problem(tmp_path), "out") == 4 * 512**2


def test_undeclared_bytes_are_assumed_and_said(tmp_path: Path) -> None:
    found, notes = with_bytes(problem(tmp_path, "flops=n"))
    assert found.bytes == 16 * 512**2
    assert "not declared" in notes[0]
    declared = problem(tmp_path)
    assert with_bytes(declared) == (declared, [])
    bare = problem(tmp_path, "")
    assert with_bytes(bare) == (bare, [])


def test_a_quick_kernel_is_simulated_at_its_size(tmp_path: Path) -> None:
    given = problem(tmp_path)
    assert simulated_problem(given, 1e-3) == (given, [])
    assert simulated_problem(given, None) == (given, [])


@pytest.mark.parametrize(("seconds", "n"), [(0.2, 256), (3.0, 128), (1e6, 128)])
def test_a_slow_one_is_halved_until_it_is_quick_or_small(tmp_path: Path, seconds: float, n: int) -> None:
    given = problem(tmp_path)
    small, notes = simulated_problem(given, seconds)
    # Widths such as k stay.
    assert small.sizes == {"n": n, "k": 3}
    assert small.flops == 2 * n**3
    assert array_bytes(small) >= CACHE
    assert notes[0].startswith(f"simulated at n={n}, k=3")


@pytest.mark.parametrize(
    ("work", "expected"),
    [
        ("flops=2*n*n*n", (2 * 256**3, 16 * 256**2)),
        ("flops=2*n*n*n bytes=4194304", (2 * 256**3, 16 * 256**2)),
        ("flops=0 bytes=16*n*n", (0, 16 * 256**2)),
        # A number says nothing of other sizes.
        ("flops=268435456 bytes=16*n*n", None),
        ("flops=268435456", None),
    ],
)
def test_a_smaller_problem_has_its_own_work_or_none(
    tmp_path: Path, work: str, expected: tuple[float, float] | None
) -> None:
    full, _ = with_bytes(problem(tmp_path, work))
    small, notes = simulated_problem(full, 0.1)
    assert small.sizes["n"] == 256
    assert small.work == (None if expected is None else Work(*expected))
    assert any("values per flop are absent" in note for note in notes) == (expected is None)


def test_what_cannot_be_halved_is_left(tmp_path: Path) -> None:
    path = tmp_path / "g.c"
    path.write_text(
        "// refork: entry=g a=4096:out\nvoid g(float *a) { for (int i = 0; i < 4096; i++) a[i] = i; }\n"
    )
    given = read_problem(path)
    small, notes = simulated_problem(given, 10.0)
    assert small is given
    assert "no smaller sizes" in notes[0]
