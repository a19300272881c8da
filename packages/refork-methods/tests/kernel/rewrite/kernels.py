"""Kernels that rewrites are tried on, and a runner that compares variants with the original."""

from __future__ import annotations

import ctypes
import subprocess
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

Arrays = dict[str, Any]
FLAGS = ("-O3", "-march=native")
SIZES = (1, 2, 7, 33, 67)
EDGE = 64
#: What rewrites bring along, once for each variant in a library.
HELPERS = (
    "refork_expf",
    "refork_lead",
    "refork_on_line",
    "refork_stream_end",
    *(f"refork_{does}_{kind}" for does in ("gather", "stream") for kind in ("f32x16", "f64x8", "i32x16")),
)


@dataclass(frozen=True)
class Kernel:
    name: str
    source: str
    #: From the size and a generator: arguments in order (arrays and integers).
    inputs: Callable[[int, np.random.Generator], list[Any]]
    result: type[ctypes._SimpleCData[Any]] | None = None


def _f(*shape: int) -> Callable[[np.random.Generator], Any]:
    return lambda rng: rng.uniform(-1, 1, shape).astype(np.float32)


def _square(count: int) -> Callable[[int, np.random.Generator], list[Any]]:
    return lambda n, rng: [n, *(_f(n * n)(rng) for _ in range(count))]


def _line(count: int) -> Callable[[int, np.random.Generator], list[Any]]:
    return lambda n, rng: [n, *(_f(n)(rng) for _ in range(count))]


def _csr(n: int, rng: np.random.Generator) -> list[Any]:
    lengths = rng.integers(0, 2 * n + 1, n)
    start = np.concatenate([[0], np.cumsum(lengths)]).astype(np.int32)
    count = int(start[-1])
    columns = rng.integers(0, n, count).astype(np.int32)
    return [n, start, columns, _f(count)(rng), _f(n)(rng), _f(n)(rng)]


MATMUL = """
void run(int n, const float *a, const float *b, float *c) {
    for (int i = 0; i < n; i++)
        for (int j = 0; j < n; j++) {
            float s = 0.0f;
            for (int k = 0; k < n; k++)
                s += a[i * n + k] * b[k * n + j];
            c[i * n + j] = s;
        }
}
"""
KERNELS = (
    Kernel("matmul", MATMUL, _square(3)),
    Kernel(
        "matmul_vla",
        """
void run(int n, const double a[n][n], const double b[n][n], double c[n][n]) {
    int i, j, k;
    for (i = 0; i < n; i++)
        for (k = 0; k < n; k++)
            for (j = 0; j < n; j++)
                c[i][j] += a[i][k] * b[k][j];
}
""",
        lambda n, rng: [n, *(rng.uniform(-1, 1, n * n) for _ in range(3))],
    ),
    Kernel(
        "stencil",
        """
void run(int n, const float *a, float *b) {
    for (int i = 1; i < n - 1; i++)
        for (int j = 1; j < n - 1; j++)
            b[i * n + j] = (a[i * n + j] + a[(i - 1) * n + j] + a[(i + 1) * n + j]
                            + a[i * n + j - 1] + a[i * n + j + 1]) / 5.0f;
}
""",
        _square(2),
    ),
    Kernel(
        "softmax",
        """
#include <math.h>
void run(int n, const float *x, float *y) {
    for (int i = 0; i < n; i++) {
        const float *row = x + i * n;
        float *out = &y[i * n];
        float top = row[0];
        for (int j = 1; j < n; j++)
            if (row[j] > top) top = row[j];
        for (int j = 0; j < n; j++)
            out[j] = expf(row[j] - top);
        float total = 0.0f;
        for (int j = 0; j < n; j++)
            total += out[j];
        for (int j = 0; j < n; j++)
            out[j] /= total;
    }
}
""",
        _square(2),
    ),
    Kernel(
        "histogram",
        """
// refork: entry=run h=64:inout
void run(int n, int bins, const int *x, int h[bins]) {
    for (int i = 0; i < n; i++)
        h[x[i]]++;
}
""",
        lambda n, rng: [n, n, rng.integers(0, n, n).astype(np.int32), rng.integers(0, 9, n).astype(np.int32)],
    ),
    Kernel(
        "csr",
        """
void run(int n, const int *start, const int *col, const float *val, const float *x, float *y) {
    for (int i = 0; i < n; i++) {
        float s = 0.0f;
        for (int k = start[i]; k < start[i + 1]; k++)
            s += val[k] * x[col[k]];
        y[i] = s;
    }
}
""",
        _csr,
    ),
    Kernel(
        "dot",
        """
float run(int n, const float *a, const float *b) {
    float s = 0;
    for (int i = 0; i < n; i++)
        s += a[i] * b[i];
    return s;
}
""",
        _line(2),
        ctypes.c_float,
    ),
    Kernel(
        "transpose",
        """
void run(int n, const float *a, float *b) {
    for (int i = 0; i < n; i++)
        for (int j = 0; j < n; j++)
            b[j * n + i] = a[i * n + j];
}
""",
        _square(2),
    ),
    Kernel(
        "saxpy",
        """
void run(size_t n, float p, const float *x, float *y) {
    for (size_t i = 0; i < n; i++) {
        // one line
        float t = p * x[i];
        y[i] = t + y[i];
    }
}
""".replace("void", "#include <stddef.h>\nvoid", 1)
        .replace("float p, ", "")
        .replace("p * x", "3.0f * x"),
        _line(2),
    ),
    Kernel(
        "strided",
        """
void run(int n, const float *a, float *sums) {
    for (int j = 0; j < n; j++) {
        sums[j] = 0.0f;
        for (int i = 0; i < n; i++)
            sums[j] += a[i * n + j];
    }
}
""",
        lambda n, rng: [n, _f(n * n)(rng), _f(n)(rng)],
    ),
    Kernel(
        "prefix",
        """
void run(int n, const float *x, float *y) {
    for (int i = 1; i < n; i++)
        y[i] = y[i - 1] + x[i];
}
""",
        _line(2),
    ),
    Kernel(
        "triangular",
        """
void run(int n, const float *a, const float *x, float *y) {
    for (int i = 0; i < n; i++) {
        float s = 0.0f;
        for (int j = 0; j <= i; j++)
            s += a[i * n + j] * x[j];
        y[i] = s;
    }
    for (int i = 0; i < n; i++)
        for (int j = i; j < n; j++)
            y[j] += a[i * n + j] * x[i];
}
""",
        lambda n, rng: [n, _f(n * n)(rng), _f(n)(rng), _f(n)(rng)],
    ),
    Kernel(
        "conv1d",
        """
void run(int n, int m, const float *restrict x, const float *restrict w, float *restrict y) {
    for (int i = 0; i < n - m + 1; i++) {
        float s = 0.0f;
        for (int k = 0; k < m; k++)
            s += x[i + k] * w[k];
        y[i] = s;
    }
}
""",
        lambda n, rng: [n, 1 + n // 3, _f(n)(rng), _f(1 + n // 3)(rng), _f(n)(rng)],
    ),
    Kernel(
        "seidel",
        """
void run(int n, float *a) {
    for (int i = 1; i < n - 1; i++)
        for (int j = 1; j < n - 1; j++)
            a[i * n + j] = 0.25f * (a[(i - 1) * n + j + 1] + a[i * n + j - 1]
                                    + a[i * n + j + 1] + a[(i + 1) * n + j]);
}
""",
        _square(1),
    ),
    Kernel(
        "two_passes",
        """
void run(int n, const float *restrict x, float *restrict y, float *restrict z) {
    float top = x[0], low = 1e30f;
    for (int i = 0; i < n; i++)
        y[i] = x[i] * 2.0f;
    for (int j = 0; j < n; j++) {
        z[j] = y[j] + 1.0f;
        top = y[j] > top ? y[j] : top;
        if (x[j] < low) { low = x[j]; }
    }
    for (int i = 0; i < n; i++)
        z[i] -= top * low;
}
""",
        _line(3),
    ),
)
KERNELS += (
    Kernel(
        "old_style",
        """
void run(int n, const double *restrict a, const double *restrict x, double *restrict y) {
    int i, j;
    double sum = 0.0;
    for (i = 0; i < n; ++i) {
        sum = 0.0;
        for (j = 0; j < n; ++j)
            sum = sum + a[i * n + j] * x[j];
        y[i] += sum;
    }
}
""",
        lambda n, rng: [n, rng.uniform(-1, 1, n * n), rng.uniform(-1, 1, n), rng.uniform(-1, 1, n)],
    ),
    Kernel(
        "box",
        """
void run(int n, const float *restrict x, const float *restrict w, float *restrict y) {
    for (int i = 0; i < n - 2; i++)
        for (int j = 0; j < n - 2; j++) {
            float s = 0.0f;
            for (int p = 0; p < 3; p++)
                for (int q = 0; q < 3; q++)
                    s += x[(i + p) * n + j + q] * w[p * 3 + q];
            y[i * n + j] = s;
        }
}
""",
        lambda n, rng: [n, _f(n * n)(rng), _f(9)(rng), _f(n * n)(rng)],
    ),
    Kernel(
        "cube",
        """
void run(int n, const float *restrict a, float *restrict b) {
    for (int z = 1; z < 3; z++)
        for (int i = 0; i < n; i++)
            for (int j = 0; j < n; j++)
                b[(z * n + i) * n + j] = b[((z - 1) * n + i) * n + j] + a[z * n * n + j * n + i];
}
""",
        lambda n, rng: [n, _f(3 * n * n)(rng), _f(3 * n * n)(rng)],
    ),
)
KERNELS += (
    Kernel(
        "walking",
        """
void run(int n, const float *a, const float *b, float *c) {
    for (int i = 0; i < n; i++)
        for (int j = 0; j < n; j++) {
            const float *x = a + i * n, *y = b + j;
            float s = 0;
            for (int k = 0; k < n; k++) {
                s += *x++ * *y;
                y += n;
            }
            *c++ = s;
        }
}
""",
        _square(3),
    ),
    Kernel(
        "in_memory",
        """
void run(int n, const float *restrict a, const float *restrict b, float *restrict c) {
    int i, j, k;
    for (i = 0; i < n; i++)
        for (j = 0; j < n; j++) {
            c[i * n + j] = 0;
            for (k = 0; k < n; k++)
                c[i * n + j] += a[i * n + k] * b[k * n + j];
        }
}
""",
        _square(3),
    ),
    Kernel(
        "two_of_a_name",
        """
void run(int n, const float *a, const float *b, float *c) {
    for (int i = 0; i < n; i++) {
        if (i > 2) {
            const float *row = a + i;
            c[i] = row[0];
        } else {
            const float *row = b + i;
            c[i] = row[0];
        }
        for (int j = 0; j < n; j++) ;
    }
}
""",
        _line(3),
    ),
)
BY_NAME = {kernel.name: kernel for kernel in KERNELS}


def build(
    sources: Sequence[str], folder: Path, flags: Sequence[str] = ("-O1", "-fopenmp-simd", "-march=native")
) -> Any:
    """All variants in one library, as run_0, run_1 and so on."""
    lines: list[str] = []
    for number, source in enumerate(sources):
        (folder / f"part{number}.c").write_text(source)
        names = ("run", *HELPERS)
        lines += [f"#define {name} {name}_{number}" for name in names]
        lines += [f'#include "part{number}.c"', *(f"#undef {name}" for name in names)]
    (folder / "all.c").write_text("\n".join(lines) + "\n")
    made = folder / f"all{len(list(folder.iterdir()))}.so"
    command = [
        "gcc",
        *flags,
        "-Wno-psabi",
        "-Werror=implicit-function-declaration",
        "-shared",
        "-fPIC",
        "-o",
        str(made),
    ]
    done = subprocess.run(
        [*command, str(folder / "all.c"), "-lm"], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr[:3000]
    return ctypes.CDLL(str(made))


def call(library: Any, number: int, kernel: Kernel, inputs: Sequence[Any]) -> tuple[float, list[Any]]:
    """The result and all arrays after a call, with the memory around each checked."""
    held: list[Any] = []
    given: list[Any] = []
    for one in inputs:
        if isinstance(one, np.ndarray):
            room = np.full(one.size + 2 * EDGE, 77, one.dtype)
            room[EDGE : EDGE + one.size] = one
            held.append(room)
            given.append(ctypes.c_void_p(room.ctypes.data + EDGE * one.itemsize))
        else:
            given.append(ctypes.c_size_t(one) if "size_t n" in kernel.source else ctypes.c_int(one))
    function = getattr(library, f"run_{number}")
    function.restype = kernel.result
    value = function(*given)
    for room in held:
        assert (room[:EDGE] == 77).all(), "wrote before an array"
        assert (room[-EDGE:] == 77).all(), "wrote behind an array"
    return (0.0 if value is None else float(value)), [room[EDGE:-EDGE] for room in held]


def same(library: Any, variants: Sequence[tuple[int, str]], kernel: Kernel, seed: int = 0) -> None:
    """Every variant does what run_0 does, on all sizes.

    Sums are of at most 134 terms of at most 1: another order moves them by less than 134 * 134 * 6e-8.
    """
    for n in SIZES:
        inputs = kernel.inputs(n, np.random.default_rng([seed, n]))
        value, wanted = call(library, 0, kernel, inputs)
        for number, name in variants:
            got, arrays = call(library, number, kernel, inputs)
            assert abs(got - value) <= 1e-3, (kernel.name, name, n)
            for left, right in zip(arrays, wanted, strict=True):
                assert np.allclose(left, right, rtol=1e-4, atol=1e-4), (kernel.name, name, n)
