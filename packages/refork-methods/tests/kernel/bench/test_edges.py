"""Versions that are right at one size alone, or only where arrays are apart; warm caches."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from kernel.bench.test_bench import KNOWN, LIMITS, made
from refork.errors import BadInput
from refork_methods.kernel.bench import Bench, Candidate, Evaluated
from refork_methods.kernel.bench.edges import free_sizes, other_sizes, overlapping
from refork_methods.kernel.bench.result import chance
from refork_methods.kernel.problem import read_problem

ADD = "void add(int n, const float *a, const float *b, float *c) { %s }"
LOOP = "for (int i = 0; i < n; i++) c[i] = a[i] + b[i];"
TOLD: dict[str, Any] = {"a": "n", "b": "n", "c": "n:out"}


def test_sizes_are_neighbours_and_small_ones_of_all_and_of_each(tmp_path: Path) -> None:
    one = made(tmp_path, ADD % LOOP, n=40, **TOLD)
    assert [found["n"] for found in other_sizes(one)] == [39, 41, 7, 1, 0]
    source = "void f(int n, int m, float *x) { for (int i = 0; i < n * m; i++) x[i] += 1; }"
    two = other_sizes(made(tmp_path, source, n=8, m=1, x="n*m"))
    assert two[0] == {"n": 7, "m": 0}
    assert {"n": 8, "m": 7} in two
    assert {"n": 0, "m": 1} in two
    assert {"n": 8, "m": 1} not in two
    assert len(two) == len({str(found) for found in two})


def test_sizes_that_are_compiled_in_or_fixed_or_no_length_stay(tmp_path: Path) -> None:
    source = (
        "#define N 6\nvoid f(int n, int steps, float x[N][n]) {"
        " for (int t = 0; t < steps * N; t++) x[0][0] += t; }"
    )
    assert free_sizes(made(tmp_path, source, n=5, steps=3)) == ("n",)
    assert free_sizes(made(tmp_path, source, n=5, steps=3, fixed="n")) == ()
    with pytest.raises(BadInput, match="fixed=k"):
        made(tmp_path, source, n=5, steps=3, fixed="k")


@pytest.mark.parametrize(
    ("body", "said"),
    [
        ("for (int i = 0; i < n / 8 * 8; i++) c[i] = a[i] + b[i];", "at n=39: c["),
        ("if (n < 4) return; " + LOOP, "at n=1: c[0] was not written"),
        ("c[0] = a[0] + b[0]; for (int i = 1; i < n; i++) c[i] = a[i] + b[i];", "at n=0: it reached past"),
        ("for (int i = 0; i < 40; i++) c[i] = a[i] + b[i];", "at n=39: it wrote past the end of c"),
    ],
)  # fmt: skip
def test_a_version_that_is_right_at_one_size_alone_is_refused(tmp_path: Path, body: str, said: str) -> None:
    problem = made(tmp_path, ADD % LOOP, n=40, **TOLD)
    with Bench(problem, tmp_path / "b", limits=LIMITS, calibration=KNOWN) as bench:
        found = bench.check(Candidate(ADD % body, problem.flags))
        assert not found.ok
        assert found.why.startswith(said)
        assert found.cheat in ("wrong-size", "out-of-bounds")
        right = bench.check(bench.original)
        assert right.ok
        assert right.sizes == ("n=39", "n=41", "n=7", "n=1", "n=0")
    fixed = made(tmp_path, ADD % LOOP, n=40, fixed="n", **TOLD)
    with Bench(fixed, tmp_path / "f", limits=LIMITS, calibration=KNOWN) as bench:
        assert bench.check(Candidate(ADD % body, problem.flags)).ok


def test_sizes_that_the_original_does_not_fit_are_left_out_and_told(tmp_path: Path) -> None:
    source = (
        "float f(int n, const float *x) { float s = x[0]; for (int i = 1; i < n; i++) s += x[i]; return s; }"
    )
    problem = made(tmp_path, source, n=16, x="n")
    with Bench(problem, tmp_path / "b", limits=LIMITS, calibration=KNOWN) as bench:
        assert bench.check(bench.original).sizes == ("n=15", "n=17", "n=7", "n=1")
        assert "reached past the end of x" in bench.left_out["n=0"]


def test_arrays_that_may_be_one_are_tried_as_one_and_others_told(tmp_path: Path) -> None:
    source = (
        "void f(int n, const float *x, float *y) { for (int i = 0; i < n; i++) y[i] = 2 * x[i ? i - 1 : 0]; }"
    )
    from_end = source.replace("int i = 0; i < n; i++", "int i = n - 1; i >= 0; i--")
    problem = made(tmp_path, source, n=12, x="n", y="n:out")
    assert overlapping(problem) == [("y", "x")]
    with Bench(problem, tmp_path / "b", limits=LIMITS, calibration=KNOWN) as bench:
        assert bench.check(bench.original).overlaps == ()
        told = bench.check(Candidate(from_end, problem.flags))
        assert told.ok
        assert told.overlaps == ("x and y",)
    one = made(tmp_path, source, n=12, x="n", y="n:out", alias="y:x")
    assert one.digest != problem.digest
    with Bench(one, tmp_path / "a", limits=LIMITS, calibration=KNOWN) as bench:
        assert bench.check(bench.original).ok
        refused = bench.check(Candidate(from_end, problem.flags))
        assert refused.cheat == "aliasing"
        assert refused.why.startswith("where y is x: element")
    with pytest.raises(BadInput, match="alias y:n"):
        made(tmp_path, source, n=12, x="n", y="n:out", alias="y:n")


def test_an_empty_array_is_no_size_to_time_at(tmp_path: Path) -> None:
    (tmp_path / "k.c").write_text(ADD % LOOP)
    with pytest.raises(BadInput, match="a has 0 elements"):
        read_problem(tmp_path / "k.c", n=0, **TOLD)


def test_faster_is_faster_cold_and_not_slower_warm() -> None:
    def done(cold: float, warm: float | None, high: float | None = None) -> Evaluated:
        return Evaluated(
            ok=True, stage="done", speedup=cold, low=cold, high=cold, noise=1.1, warm=warm, warm_low=warm,
            warm_high=high or warm,
        )  # fmt: skip

    assert done(1.5, 1.3).faster
    assert done(1.5, None).faster
    assert done(1.5, 0.95, 1.02).faster
    assert not done(1.5, 0.84).faster
    assert not done(1.5, 0.95, 0.97).faster
    assert done(1.5, 0.84).slower_warm
    # Within the noise by its ratio, but not if its interval may reach 1: that is the noise's own doubt.
    assert not done(1.5, 0.8, 1.3).faster
    assert done(1.5, 1.3).least == 1.3
    assert done(1.2, 1.3).least == 1.2
    assert done(1.5, None).least == 1.5
    assert Evaluated.from_json(done(1.5, 0.9).to_json()) == done(1.5, 0.9)


def test_one_lucky_sample_makes_nothing_faster() -> None:
    def done(ahead: int, turns: int = 9) -> Evaluated:
        return Evaluated(
            ok=True, stage="done", speedup=1.4, low=1.01, high=1.4, noise=1.1, samples=(1.0,) * turns,
            ahead=ahead,
        )  # fmt: skip

    assert chance(9, 9) == 1 / 512
    assert chance(0, 9) == 1
    # One in 512 and ten in 512 by chance; 8 of 9 is below one in twenty, 7 of 9 is not.
    assert [done(ahead).faster for ahead in (9, 8, 7, 5)] == [True, True, False, False]
    assert done(12, 15).faster
    assert not done(11, 15).faster


def test_calls_on_the_same_arrays_are_timed_and_judged_too(tmp_path: Path) -> None:
    problem = made(tmp_path, ADD % LOOP, n=300, **TOLD)
    # It is right until it finds the same inputs again.
    cheat = "#include <string.h>\nstatic float kept; " + ADD % (
        "if (n && a[0] == kept) { memset(c, 0, 4 * n); return; } if (n) kept = a[0]; " + LOOP
    )
    with Bench(problem, tmp_path / "b", limits=LIMITS, calibration=KNOWN) as bench:
        same = bench.evaluate(bench.original)
        assert same.ok
        assert same.warm is not None
        assert same.warm_low is not None
        assert same.sizes
        found = bench.evaluate(Candidate(cheat, problem.flags))
        assert not found.ok
        assert found.cheat == "wrong-later"
