"""Stores past the caches, gathers, tables of few entries, far prefetches: legality and results."""

from __future__ import annotations

import shutil
from pathlib import Path

import numpy as np
import pytest

from kernel.rewrite.kernels import BY_NAME, FLAGS, Kernel, build, call
from refork.errors import BadInput
from refork_methods.kernel.bench.screen import screen_source
from refork_methods.kernel.rewrite import Move, apply, moves
from refork_methods.kernel.rewrite.syntax import Assign, Loop, Unary, statements
from refork_methods.kernel.rewrite.unit import read_unit

needs_gcc = pytest.mark.skipif(shutil.which("gcc") is None, reason="gcc is not installed")
AXPY = """
void run(int n, float s, const float *restrict x, const float *restrict y, float *restrict z) {
    for (int i = 0; i < n; i++)
        z[i] = s * x[i] + y[i];
}
"""
COUNT = """
void run(int n, int bins, const int *restrict x, int *restrict h) {
    for (int b = 0; b < bins; b++)
        h[b] = 0;
    for (int i = 0; i < n; i++)
        h[x[i]]++;
}
"""
PRODUCT = """
void run(int n, const int *restrict at, const float *restrict v, const float *restrict x, float *restrict y) {
    float sum = 0.0f;
    for (int k = 0; k < n; k++)
        sum += v[k] * x[at[k]];
    y[0] = sum;
}
"""
STREAM = Move("stream", {"loop": "i", "rows": 1, "beyond": 0})


def _ids(source: str, *kinds: str) -> list[str]:
    return [one.id for one in moves(source, "run", FLAGS) if one.name in kinds]


def _made(source: str, move: Move) -> str:
    return apply(source, "run", FLAGS, move)[0]


def test_a_stream_is_offered_where_results_are_written_once() -> None:
    (found,) = [one for one in moves(AXPY, "run", FLAGS) if one.name == "stream"]
    assert found.id == "stream(i,1,1024,8)"
    assert not found.reassociates
    assert found.assumes == "z is not read again soon: it has left the caches"
    assert "BandwidthRoof" in found.answers


@pytest.mark.parametrize(
    "body",
    [
        "for (int i = 0; i < n; i++) z[i] += x[i];",
        "for (int i = 0; i < n; i++) z[i] = x[i] + z[i];",
        "for (int i = 1; i < n; i++) z[i] = x[i] + z[i - 1];",
        "for (int i = 0; i < n; i++) z[2 * i] = x[i];",
        "for (int i = 0; i < n; i++) z[i] = 0.0f;",
        "for (int i = 0; i < n; i++) z[0] = x[i];",
        "for (int i = 0; i < n; i++) { z[i] = x[i]; if (x[i] > 0) z[i] = 1.0f; }",
        # Written anew by every turn of the loop around, or read by what follows.
        "for (int t = 0; t < n; t++) for (int i = 0; i < n; i++) z[i] = x[i] + y[t];",
        "for (int i = 0; i < n; i++) z[i] = x[i]; z[0] = z[1];",
        # How much is written is not known before the first row.
        "for (int r = 0; r < n; r++) for (int i = 0; i < r; i++) z[r * n + i] = x[i];",
        "float t[64]; for (int i = 0; i < 64; i++) t[i] = x[i]; z[0] = t[3];",
    ],
)
def test_no_stream_where_results_are_read_or_not_in_order(body: str) -> None:
    head = "void run(int n, const float *restrict x, const float *restrict y, float *restrict z)"
    assert _ids(f"{head} {{ {body} }}", "stream") == []


def test_no_stream_where_arrays_may_overlap() -> None:
    assert _ids(AXPY.replace("restrict", ""), "stream") == []
    with pytest.raises(BadInput):
        apply(AXPY.replace("restrict", ""), "run", FLAGS, STREAM)


def test_a_streamed_loop_is_read_back_as_stores_and_not_streamed_again() -> None:
    source = _made(AXPY, STREAM)
    for vectors in (0, 65):
        with pytest.raises(BadInput, match="vectors from 1 to 64"):
            _made(AXPY, Move("stream", {**STREAM.parameters, "vectors": vectors}))
    unit = read_unit(source, "run", FLAGS)
    main = [s for s in statements(unit.body) if isinstance(s, Loop) and s.step > 1]
    assert [isinstance(one, Assign) and isinstance(one.target, Unary) for one in main[0].body] == [True]
    assert unit.render() == source
    assert _ids(source, "stream") == []
    assert _ids(source, "prefetch")[:1] == ["prefetch(all,i,16)"]
    assert not any("prefetch" in one and "z" in one for one in _ids(source, "prefetch"))
    screen_source(source)


@needs_gcc
@pytest.mark.parametrize("kind", ["float", "double", "int"])
def test_a_stream_writes_what_the_loop_wrote_at_any_alignment(kind: str, tmp_path: Path) -> None:
    source = f"""
void run(int n, int o, const {kind} *restrict x, const {kind} *restrict y, {kind} *restrict z) {{
    for (int i = 0; i < n; i++)
        z[o + i] = 3 * x[o + i] - y[i];
}}
"""
    runs = Move("stream", {**STREAM.parameters, "vectors": 3})
    library = build([source, _made(source, STREAM), _made(source, runs)], tmp_path)
    dtype = {"float": np.float32, "double": np.float64, "int": np.int32}[kind]
    kernel, rng = Kernel("offset", source, lambda n, rng: []), np.random.default_rng(0)
    for offset in (0, 1, 3, 15):
        for n in (0, 1, 15, 16, 17, 100, 1000):
            given = [n, offset, *(rng.uniform(-9, 9, n + offset).astype(dtype) for _ in range(3))]
            wanted = call(library, 0, kernel, given)[1][2]
            for made in (1, 2):
                assert np.allclose(call(library, made, kernel, given)[1][2], wanted, rtol=1e-6, atol=1e-5)
            assert n == 0 or not np.array_equal(wanted, given[-1])


@needs_gcc
def test_small_results_are_not_streamed(tmp_path: Path) -> None:
    source = _made(AXPY, Move("stream", {"loop": "i", "rows": 1, "beyond": 1024}))
    assert "4.0 * n > 1048576.0 && refork_on_line(&z[i_first])" in source
    rows = _made(
        BY_NAME["stencil"].source,
        next(m for m in moves(BY_NAME["stencil"].source, "run", FLAGS) if m.name == "restrict"),
    )
    several = _made(rows, Move("stream", {"loop": "j", "rows": 4, "beyond": 0}))
    assert several.count("refork_stream_f32x16(&") == 4
    runs = _made(rows, Move("stream", {"loop": "j", "rows": 2, "beyond": 0, "vectors": 3}))
    order = [line.split("], ")[0].strip() + "]" for line in runs.splitlines() if "_f32x16(&" in line]
    to = "refork_stream_f32x16(&b"
    assert order[:2] == [f"{to}[i * n + j]", f"{to}[i * n + (j + 16)]"]
    assert order[3:6] == [f"{to}[(i + 1) * n + {at}]" for at in ("j", "(j + 16)", "(j + 32)")]
    assert order[6:] == [f"{to}[i * n + j]", f"{to}[(i + 1) * n + j]"]
    assert several.count("refork_stream_end();") == 1


def test_sums_gather_what_an_index_array_points_to() -> None:
    source = _made(PRODUCT, Move("vector_sum", {"loop": "k", "vectors": 2}))
    assert "refork_gather_f32x16(x, *(const refork_i32x16 *)&at[k + 16])" in source
    assert read_unit(source, "run", FLAGS).render() == source
    assert "prefetch(all,k,512)" in _ids(source, "prefetch")
    # An index of another type, and one that is no number from memory.
    assert _ids(PRODUCT.replace("const int *restrict at", "const long *restrict at"), "vector_sum") == []
    assert _ids(PRODUCT.replace("at[k]", "2 * k"), "vector_sum") == []
    # What is gathered may not be what is written.
    assert _ids(PRODUCT.replace("y[0] = sum;", "").replace("sum +=", "y[0] +="), "vector_sum") == []


@needs_gcc
@pytest.mark.parametrize(
    ("kind", "dtype"), [("float", np.float32), ("double", np.float64), ("int", np.int32)]
)
def test_gathered_sums_are_the_same(kind: str, dtype: type, tmp_path: Path) -> None:
    source = PRODUCT.replace("float", kind).replace("0.0f", "0")
    made = _made(source, Move("vector_sum", {"loop": "k", "vectors": 2, "ahead": 512}))
    # Of each array every line once: eight indices take half a line, eight doubles one.
    assert made.count("__builtin_prefetch") == (3 if kind == "double" else 4)
    library = build([source, made], tmp_path)
    kernel, rng = Kernel("product", source, lambda n, rng: []), np.random.default_rng(1)
    for n in (1, 31, 32, 33, 200):
        at = rng.integers(0, n, n, dtype=np.int32)
        given = [n, at, *(rng.uniform(-9, 9, n).astype(dtype) for _ in range(3))]
        wanted, found = (call(library, number, kernel, given)[1][3][0] for number in (0, 1))
        assert abs(found - wanted) <= 1e-5 * n * 81


def test_lines_are_asked_for_once() -> None:
    source = """
void run(int n, const float *restrict a, float *restrict b) {
    for (int i = 1; i < n - 1; i++)
        b[i] = a[i - 1] + a[i] + a[i + 1];
}
"""
    made = _made(source, Move("prefetch", {"array": "a", "loop": "i", "ahead": 512}))
    assert made.count("__builtin_prefetch") == 1


def test_few_bins_are_for_integers_whose_number_is_known() -> None:
    assert _ids(COUNT, "few_bins") == ["few_bins(i,8)", "few_bins(i,4)"]
    assert _ids(COUNT.replace("int *restrict h", "float *restrict h"), "few_bins") == []
    assert _ids(COUNT.replace("h[x[i]]++", "h[x[i]] = 1"), "few_bins") == []
    assert _ids(COUNT.replace("h[x[i]]++", "h[x[i]] += h[0]"), "few_bins") == []
    assert _ids(COUNT.replace("restrict", ""), "few_bins") == []
    made = apply(COUNT, "run", FLAGS, Move("few_bins", {"loop": "i", "most": 8}))
    assert "-fopenmp-simd" in made[1]
    assert "omp simd reduction(+: h_count)" in made[0]


@needs_gcc
@pytest.mark.parametrize("step", ["h[x[i]]++", "h[x[i]] -= 3", "h[x[i] / 2] += x[i]"])
def test_few_bins_count_the_same(step: str, tmp_path: Path) -> None:
    source = COUNT.replace("h[x[i]]++", step)
    library = build([source, _made(source, Move("few_bins", {"loop": "i", "most": 8}))], tmp_path)
    kernel, rng = Kernel("count", source, lambda n, rng: []), np.random.default_rng(2)
    for bins in (1, 2, 8, 9):
        for n in (0, 1023, 1024, 2500):
            given = [n, bins, rng.integers(0, bins, n, dtype=np.int32), np.zeros(bins, np.int32)]
            wanted, found = (call(library, number, kernel, given)[1][1] for number in (0, 1))
            assert np.array_equal(wanted, found)
            assert n == 0 or "x[i]" in step[7:] or wanted.any()
