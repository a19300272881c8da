"""Comparison, layout, drawn inputs, wider sources, object files, the screen, the speed-up: each alone."""

from __future__ import annotations

import shutil
import subprocess
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from refork.errors import BadInput
from refork_methods.kernel.bench.bench import speedup
from refork_methods.kernel.bench.check import compare
from refork_methods.kernel.bench.original import in_higher_precision
from refork_methods.kernel.bench.process import (
    ALIGN,
    PAGE,
    RESULT,
    Memory,
    draw_batch,
    draw_offsets,
    layout_of,
)
from refork_methods.kernel.bench.program import call_source
from refork_methods.kernel.bench.result import Candidate, Evaluated, Limits
from refork_methods.kernel.bench.screen import RefusedError, read_object, screen_object, screen_source
from refork_methods.kernel.problem import Argument, Problem

needs_gcc = pytest.mark.skipif(shutil.which("gcc") is None, reason="gcc is not installed")
needs_parser = pytest.importorskip("tree_sitter_c", reason="the extra 'languages' is not installed")


def problem(n: int = 5, returns: str | None = "double", **fills: str) -> Problem:
    arguments = (
        Argument(name="n", ctype="int", length=None, role="size"),
        Argument(name="s", ctype="float", length=None, role="scalar", fill=fills.get("s", "uniform")),
        Argument(name="a", ctype="float", length="n*n", role="in", fill=fills.get("a", "uniform")),
        Argument(name="i", ctype="int64_t", length="n", role="in", fill=fills.get("i", "index:n")),
        Argument(name="o", ctype="double", length="n", role="out"),
        Argument(name="b", ctype="uint8_t", length="2*n", role="inout"),
    )
    return Problem(
        name="p", entry="f", source="", suffix=".c", arguments=arguments, sizes={"n": n}, rtol=1e-4, atol=0,
        returns=returns,
    )  # fmt: skip


def two(*values: float) -> Any:
    return np.array([values], float)


def test_errors_are_relative_and_not_finite_ones_fail() -> None:
    same = compare(two(1, 2, 0), two(1, 2, 0), 1e-3, 0)
    assert (same.error, same.passed) == (0, True)
    off = compare(two(1, 2.02), two(1, 2), 1e-3, 0)
    assert off.error == pytest.approx(0.01)
    assert (off.slot, off.element, off.got, off.expected) == (0, 1, 2.02, 2)
    assert not compare(two(1e-9, 1), two(0, 1), 1e-3, 0).passed
    assert compare(two(1e-9, 1), two(0, 1), 1e-3, 1e-6).passed
    # One number whose terms cancel: of 20 as a rule, now .01 and off by what rounds at 20.
    assert not compare(two(0.01001), two(0.01), 1e-4, 1e-6).passed
    assert compare(two(0.01001), two(0.01), 1e-4, 1e-6, scale=20).passed
    assert not compare(two(0.0101), two(0.01), 1e-4, 1e-6, scale=20).passed
    # Off by as much as another program is.
    assert compare(two(1.02), two(1), 1e-4, 0, beside=two(0.99)).passed
    assert not compare(two(1.03), two(1), 1e-4, 0, beside=two(0.99)).passed
    for bad in (np.nan, np.inf):
        found = compare(two(1, bad), two(1, 2), 1e9, 1e9)
        assert (found.passed, found.error, found.element) == (False, np.inf, 1)
    ints = compare(np.array([[3, 4]]), np.array([[3, 8]]), 9.0, 9.0)
    assert (ints.passed, ints.error, ints.element) == (False, 0.5, 1)
    assert compare(np.array([[3, 4]]), np.array([[3, 4]]), 0, 0).passed


@given(
    places=st.lists(st.sampled_from([0.0, 1e-6, 0.02, -0.5, np.nan, np.inf]), min_size=2, max_size=24),
    block=st.integers(1, 7),
    near=st.booleans(),
)
def test_comparing_in_blocks_finds_what_all_at_once_finds(
    places: list[float], block: int, near: bool
) -> None:
    errors = np.array(places[: len(places) // 2 * 2]).reshape(2, -1)
    expected = np.linspace(-2, 3, errors.size).reshape(errors.shape)
    beside = expected * 1.01 if near else None
    with pytest.MonkeyPatch.context() as patch:
        found = []
        for size in (errors.size, block):
            patch.setattr("refork_methods.kernel.bench.check.BLOCK", size)
            found.append(compare(expected + errors, expected, 1e-3, 1e-6, beside=beside))
    whole, parts = found
    assert (parts.slot, parts.element) == (whole.slot, whole.element)
    assert parts.error == pytest.approx(whole.error, rel=1e-9)
    bad = ~np.isfinite(errors)
    if bad.any():
        assert (parts.slot, parts.element) == tuple(np.argwhere(bad)[0])


@given(
    st.floats(-1e3, 1e3), st.floats(1e-6, 1e-2), st.floats(1e-6, 1e-2), st.floats(-2, 2), st.floats(0.1, 9)
)
def test_the_tolerance_is_what_it_says(
    e: float, rtol: float, atol: float, share: float, scale: float
) -> None:
    expected = two(e, 3.0)
    allowed = rtol * abs(e) + atol * float(np.sqrt((e * e + 9) / 2))
    got = two(e + share * allowed, 3.0)
    found = compare(got, expected, rtol, atol)
    if abs(abs(share) - 1) > 1e-6:
        assert found.passed == (abs(share) < 1)
    both = compare(got * scale, expected * scale, rtol, atol)
    assert both.error == pytest.approx(found.error, rel=1e-6, abs=1e-9)


@settings(max_examples=30)
@given(st.integers(1, 2000), st.sampled_from(["random", "low", "high"]), st.integers(0, 99))
def test_arrays_lie_apart_aligned_and_between_guards(n: int, at: str, seed: int) -> None:
    layout = layout_of(problem(n))
    placed = draw_offsets(layout, np.random.default_rng(seed), at)
    guards = [range(g, g + PAGE) for g in layout.guards]
    edges = [0]
    for one in layout.regions:
        assert one.start == edges[-1] + PAGE
        assert one.start % PAGE == one.room % PAGE == 0
        offset = placed.offsets[one.name]
        assert offset % ALIGN == 0
        assert 0 <= offset <= one.room - one.size
        assert (at != "low") or offset == 0
        assert (at != "high") or one.room - one.size - offset < ALIGN
        assert placed.canaries[one.name].size == one.room - one.size
        edges.append(one.start + one.room)
    assert [g.start for g in guards] == edges
    assert layout.stride == edges[-1] + PAGE
    assert layout.regions[-1].name == RESULT


def test_what_is_written_is_read_and_changes_beside_are_seen() -> None:
    layout = layout_of(problem())
    memory = Memory(layout, data := np.zeros(layout.slots + 3 * layout.stride, np.uint8))
    rng = np.random.default_rng(0)
    batch, placed = draw_batch(problem(), 3, rng), draw_offsets(layout, rng)
    memory.write(batch, placed)
    found = memory.read(3, placed)
    alone = memory.read(1, placed)
    before = alone["a"].copy()
    data[layout.slots :] ^= 255
    assert (alone["a"] == before).all(), "what was read stays, whoever writes to the memory later"
    data[layout.slots :] ^= 255
    for name in ("a", "i", "b"):
        assert (found[name] == batch.arrays[name]).all()
    assert np.isnan(found["o"]).all()
    assert np.isnan(found[RESULT]).all()
    assert memory.overwritten(3, placed) is None
    row = data[layout.row : 2 * layout.row]
    offsets, scalars = row[: 8 * 5].view(np.uint64), row[8 * 5 :]
    first = layout.slots + layout.stride + layout.regions[0].start + placed.offsets["a"]
    assert offsets[0] == first
    assert (data[first : first + 100].view(np.float32) == batch.arrays["a"][1]).all()
    assert scalars[:4].view(np.int32)[0] == 5
    assert scalars[16:20].view(np.float32)[0] == batch.scalars["s"][1]
    data[first - 1 if placed.offsets["a"] else first + 100] ^= 1
    assert memory.overwritten(3, placed) in ("before the start of a", "past the end of a")
    assert layout.whose(layout.slots + layout.regions[1].start - 1) == "before the start of i"
    assert layout.whose(layout.slots + layout.stride - 1) == f"past the end of {RESULT}"
    assert layout.whose(3) == "far from its arrays"


def test_inputs_are_fresh_and_as_asked_for() -> None:
    rng = np.random.default_rng(1)
    one, other = (draw_batch(problem(50), 2, rng) for _ in range(2))
    assert not (one.arrays["a"][0] == one.arrays["a"][1]).any()
    assert not (one.arrays["a"] == other.arrays["a"]).any()
    assert np.abs(one.arrays["a"]).max() <= 1
    assert set(one.arrays["i"].ravel()) <= set(range(50))
    fills = {
        "sorted-index:7": lambda x: (np.diff(x) >= 0).all() and x.max() < 7 and x.min() >= 0,
        "skewed-index:7": lambda x: x.min() == 0 and x.max() < 7 and (x == 0).sum() > (x == 6).sum(),
        "offsets:9": lambda x: (np.diff(x) >= 0).all() and x[0] == 0 and x[-1] == 9,
        "permutation": lambda x: sorted(x) == list(range(50)),
        "const:3": lambda x: (x == 3).all(),
        "positive": lambda x: x.min() >= 1 and x.max() <= 100,
        "uniform": lambda x: x.min() < 0 and np.abs(x).max() <= 100,
    }
    for fill, holds in fills.items():
        drawn = draw_batch(problem(50, i=fill), 2, rng).arrays["i"]
        assert drawn.dtype == np.int64
        assert all(holds(row) for row in drawn), fill
    assert draw_batch(problem(4, a="positive"), 1, rng).arrays["a"].min() >= 0.1
    with pytest.raises(BadInput, match="no index below 0"):
        draw_batch(problem(4, i="index:0"), 1, rng)
    numbers = draw_batch(problem(4), 1, rng, "number").poison["o"]
    assert np.isfinite(numbers).all()


def test_a_wider_source_changes_types_and_calls_only() -> None:
    source = """#include <math.h>
#define T float
typedef float real;
/* a float */
static double half(double x) { return x * 0.5; }
real f(int n, const float *a, float round) {
    float s = 0.1f; T t = (float)n; char *float_name = "float";
    s += sqrtf(a[0]) + round + fabs((double)t) + FLT_EPSILON;
    return s;
}
"""
    wide = in_higher_precision(source, ".c")
    for said in (
        "#define T double", "typedef double real;", "/* a float */", "static long double half(long double x)",
        "const double *a, double round)", "double s = 0.1f; T t = (double)n;", '"float"', "sqrt(a[0]) +",
        "fabsl((long double)t)", "DBL_EPSILON", "float_name", "* 0.5;",
    ):  # fmt: skip
        assert said in wide, said
    for bad in (
        "__m256 x;",
        "union { float f; int i; } x;",
        "typedef float v __attribute__((vector_size(32)));",
    ):
        with pytest.raises(BadInput, match="depends on the width"):
            in_higher_precision(bad, ".c")


def test_calls_of_every_kind() -> None:
    said = call_source(problem(), "f")
    assert "double refork_entry(int, float, float *, int64_t *, double *, uint8_t *)" in said
    assert (
        "*(double *)(base + row[4]) = refork_entry(*(const int *)(row + 5), *(const float *)(row + 7)" in said
    )
    wide = call_source(problem(returns=None), "_Zf", precise=True)
    assert (
        'void refork_entry(int, double, double *, int64_t *, long double *, uint8_t *) __asm__("_Zf")' in wide
    )


@needs_gcc
def test_object_files_are_read_and_screened(tmp_path: Path) -> None:
    def built(source: str, suffix: str = ".c") -> Path:
        path = tmp_path / f"k{suffix}"
        path.write_text(source)
        flags = ["-O1", "-w", "-c", str(path), "-o", str(tmp_path / "k.o")]
        subprocess.run(["gcc" if suffix == ".c" else "g++", *flags], check=True)
        return tmp_path / "k.o"

    good = built("#include <math.h>\nstatic int t;\nfloat f(float x) { return sinf(x) + t++; }")
    sections, symbols = read_object(good.read_bytes())
    assert ".text" in sections
    by_name = {one.name: one for one in symbols}
    assert (by_name["f"].defined, by_name["f"].outside, by_name["t"].outside) == (True, True, False)
    assert not by_name["sinf"].defined
    assert screen_object(good, "f") == "f"
    for cheat, source in {
        "imports": "int fork(void); int f(void) { return fork(); }",
        "runs-outside": "int f(void) { return 0; } int x; __attribute__((constructor)) void g(void) { x++; }",
        "system-call": 'int f(void) { __asm__("syscall"); return 0; }',
    }.items():
        if cheat == "system-call" and not shutil.which("objdump"):
            continue
        with pytest.raises(RefusedError) as found:
            screen_object(built(source), "f")
        assert found.value.cheat == cheat
    for source, said in (
        ("int g(void) { return 0; }", "no function f"),
        ("static int f(void) { return 0; } int g(void) { return (long)&f; }", "f is static"),
    ):
        with pytest.raises(BadInput, match=said):
            screen_object(built(source), "f")
    if shutil.which("g++"):
        assert screen_object(built("void f(float *x) { *x = 0; }", ".cpp"), "f") == "_Z1fPf"
        with pytest.raises(BadInput, match="2 overloads"):
            screen_object(built("void f(int) {} void f(float) {}", ".cpp"), "f")
    with pytest.raises(BadInput, match="cannot be called main"):
        screen_object(good, "main")
    whole = good.read_bytes()
    for cut in (b"", b"\x7fELF", whole[:70], b"MZ" + whole[2:], whole[:-200]):
        with pytest.raises(BadInput, match="cannot be read"):
            read_object(cut)


def test_sources_that_read_other_files_are_refused() -> None:
    screen_source("#include <math.h>\n#  include <immintrin.h> // x\n#include <stdint.h>\nint f;")
    for bad in (
        '#include "/etc/passwd"', "#include <../../etc/passwd>", "#include </etc/passwd>", "#include NAME",
        "#include <linux/bpf.h>", "#inc\\\nlude <x.h>", "/**/ #include <unistd.h>", '# include_next <math.h>',
        '__asm__(".incbin \\"x\\"");', '__asm__(".inc" "bin \\"x\\"");', "%:include <unistd.h>",
    ):  # fmt: skip
        with pytest.raises(RefusedError, match=r"reads|includes"):
            screen_source(bad)


def test_speedups_and_their_intervals() -> None:
    rng = np.random.default_rng(0)
    point, low, high = speedup([2.0, 2.2, 2.1], [1.0, 1.0, 1.0], rng)
    assert (point, low) == (2.0, 2.0)
    assert high <= 2.2
    for bad in (([1.0, 2.0], [1.0, 2.0]), ([1.0, 1.0, 0.0], [1.0, 1.0, 1.0]), ([1.0] * 3, [1.0] * 4)):
        with pytest.raises(BadInput, match="samples"):
            speedup(*bad, rng)
    # Both sides of the same distribution, 15 samples with one-sided noise as of a busy machine. A claim needs
    # the low end above 1 and the ratio above the noise: false in at most 1 of 400 for this seed (0 are
    # found).
    claims = 0
    for _ in range(400):
        a, b = 1 + rng.exponential(0.02, (2, 15))
        point, low, _ = speedup(a, b, rng)
        claims += low > 1 and point > 1.02
    assert claims <= 1


def test_evaluations_go_to_json_and_back() -> None:
    for one in (
        Evaluated(ok=False, stage="build", why="no"),
        Evaluated(ok=False, stage="check", error=float("inf"), cheat="wrong-later"),
        Evaluated(ok=True, stage="done", error=0.0, seconds=1.0, reference_seconds=2.0, speedup=2.0,
                  samples=(1.0, 2.0), low=1.5, high=2.5, noise=1.1, calls=3),
    ):  # fmt: skip
        assert Evaluated.from_json(one.to_json()) == one
    assert one.faster
    assert not Evaluated(ok=True, stage="done", speedup=1.05, low=1.01, high=1.1, noise=1.06).faster
    with pytest.raises(BadInput, match="Evaluated stage"):
        Evaluated.from_json({"ok": True})
    assert Candidate("a", ("b",)).digest != Candidate("a", ("b", "c")).digest
    with pytest.raises(BadInput, match="limit seconds is 0"):
        Limits(seconds=0)


@pytest.mark.parametrize(
    ("kind", "fill", "fits"),
    [
        ("int8_t", "index:128", True), ("int8_t", "index:129", False), ("char", "sorted-index:1000", False),
        ("uint8_t", "skewed-index:256", True), ("uint8_t", "skewed-index:257", False),
        ("int8_t", "offsets:127", True), ("int8_t", "offsets:128", False), ("char", "permutation", False),
        ("uint8_t", "permutation", True), ("uint8_t", "const:300", False), ("uint8_t", "const:-1", False),
        ("int8_t", "const:-128", True), ("float", "const:300", True), ("int", "index:5", True),
    ],
)  # fmt: skip
def test_what_a_type_does_not_hold_is_not_drawn(kind: str, fill: str, fits: bool) -> None:
    one = Argument(name="i", ctype=kind, length="200", role="in", fill=fill)
    given = replace(problem(), arguments=(one, problem().arguments[4]))
    rng = np.random.default_rng(0)
    if fits:
        assert draw_batch(given, 1, rng).arrays["i"].size == 200
    else:
        with pytest.raises(BadInput, match=r"holds no .*fill of i"):
            draw_batch(given, 1, rng)
