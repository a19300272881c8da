"""Problems read from C: signatures, comment blocks, settings, and what is asked for."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from refork.errors import BadInput
from refork_methods.kernel.problem import Argument, Problem, names_in, parse_settings, read_problem, value

pytest.importorskip("tree_sitter_c", reason="the extra 'languages' is not installed")
MATMUL = """
void matmul(int n, const float *a, const float *restrict b, float *c) {
    for (int i = 0; i < n; i++)
        for (int j = 0; j < n; j++) {
            float s = 0.0f;
            for (int k = 0; k < n; k++) s += a[i * n + k] * b[k * n + j];
            c[i * n + j] = s;
        }
}
"""


LENGTHS = "a=n*n b=n*n c=n*n:out"


def read(tmp_path: Path, source: str, name: str = "k.c", **settings: object) -> Problem:
    (tmp_path / name).write_text(source)
    return read_problem(tmp_path / name, **settings)  # type: ignore[arg-type]


def lengths(problem: Problem) -> dict[str, str | None]:
    return {one.name: one.length for one in problem.arguments if one.array}


def test_a_matmul_says_its_sizes_lengths_and_work(tmp_path: Path) -> None:
    found = read(tmp_path, f"// refork: n=8 {LENGTHS} flops=2*n*n*n bytes=3*4*n*n\n{MATMUL}")
    assert found.entry == found.name == "matmul"
    assert [one.role for one in found.arguments] == ["size", "in", "in", "out"]
    assert lengths(found) == {"a": "n*n", "b": "n*n", "c": "n*n"}
    assert (found.flops, found.bytes, found.rtol, found.atol) == (1024, 768, 1e-4, 1e-5)
    work = found.work
    assert work is not None
    assert work.intensity == pytest.approx(4 / 3)
    other = found.resized({"n": 16})
    assert (other.flops, other.length(other.arguments[1])) == (8192, 256)
    assert other.digest != found.digest
    assert read(tmp_path, f"// refork: {LENGTHS}\n{MATMUL}", sizes={"n": 4}).work is None


def test_later_settings_win(tmp_path: Path) -> None:
    block = f"/* refork: n=3 rtol=1e-2\n * refork: atol=0.5 {LENGTHS}\n */{MATMUL}"
    found = read(tmp_path, block, n=5, b="n*n:positive")
    assert (found.sizes, found.rtol, found.atol) == ({"n": 5}, 1e-2, 0.5)
    assert found.arguments[2].fill == "positive"
    assert read(tmp_path, block, n="2*3", flags="-O2,-DX=1").sizes == {"n": 6}


def test_what_is_missing_is_asked_for_by_the_line_to_add(tmp_path: Path) -> None:
    asked = r"what is n, a, b, c\?.*\n.*// refork: n=NUMBER a=LENGTH b=LENGTH c=LENGTH:out or :inout"
    with pytest.raises(BadInput, match=asked):
        read(tmp_path, MATMUL)
    source = "void f(int n, const int *at, float *x) { for (int i = 0; i < n; i++) x[at[i]] = 1; }"
    found = read(tmp_path, source, n=4, x="n:inout", at="n:in:index:n")
    assert found.arguments[1] == Argument(name="at", ctype="int", length="n", role="in", fill="index:n")
    for settings, said in (
        ({"n": 4, "zz": 3}, "no parameter or setting zz"),
        ({"n": -1}, "size n is -1"),
        ({"n": 1.5}, "size n is 1.5"),
        ({"n": 0}, "has 0 elements"),
        ({"n": 4, "c": "m"}, "what is m"),
        ({"n": 4, "c": "n:scalar"}, "role scalar of the array c"),
        ({"n": 4, "c": "n:out:strange"}, "fill 'strange'"),
        ({"n": 4, "rtol": -1}, "tolerances"),
        ({"n": 4, "flags": "-fplugin=x"}, "flag"),
        ({"n": 4, "reference": "gone.c"}, "no reference gone.c"),
        ({"n": 4, "entry": "gone"}, "no function gone"),
    ):
        with pytest.raises(BadInput, match=said):
            read(tmp_path, f"// refork: {LENGTHS}\n{MATMUL}", **settings)  # type: ignore[arg-type]
    with pytest.raises(BadInput, match="no such file"):
        read_problem(tmp_path / "gone.c")
    with pytest.raises(BadInput, match="no C or C"):
        read(tmp_path, "", "k.f")


def test_declared_lengths_results_macros_and_types(tmp_path: Path) -> None:
    source = """
    #define N 12
    typedef double real;
    static int helper(int x) { return x; }
    real norm(const int n, const real a[N][N], real (*restrict w)[n], float out[static n + 1], float s) {
        for (int i = 0; i <= n; i++) out[i] = s;
        return a[0][0] + w[0][0];
    }
    """
    found = read(tmp_path, source, n=3, w="n*n")
    assert found.returns == "double"
    assert lengths(found) == {"a": "N*N", "w": "n*n", "out": "(n + 1)"}
    assert found.sizes == {"N": 12, "n": 3}
    assert [one.role for one in found.arguments] == ["size", "in", "inout", "inout", "scalar"]
    assert found.rtol == 1e-4
    with pytest.raises(BadInput, match=r"N is a macro, 12 here, not 13"):
        read(tmp_path, source, n=3, w="n*n", N=13)
    flagged = source.replace("#define N 12", "#ifndef N\n#define N 12\n#endif")
    assert read(tmp_path, flagged, n=3, w="n*n", flags="-O2,-DN=7").sizes["N"] == 7
    for bad, said in (
        ("void f(float **a) { a[0][0] = 1; }", "pointer to pointers"),
        ("void f(struct s *a) { }", "type"),
        ("float *f(float a[4]) { return a; }", "returns a pointer"),
        ("void f(const float a[4]) { }", "writes nothing and returns nothing"),
        ("void f(float a[4]) { a[0] = 0; }\nvoid g(float a[4]) { }", "which function is the kernel.*f, g"),
        ("int x;", "There are: none"),
    ):
        with pytest.raises(BadInput, match=said):
            read(tmp_path, bad)
    assert read(tmp_path, 'extern "C" void f(float a[4]) { a[0] = 0; }', "k.cpp").entry == "f"


def test_fills_and_arguments_are_checked() -> None:
    for fill in ("index", "uniform:3", "offsets", "other"):
        with pytest.raises(BadInput, match="fill"):
            Argument(name="a", ctype="int", length="n", role="in", fill=fill)
    with pytest.raises(BadInput, match="fill 'index:n' of float"):
        Argument(name="a", ctype="float", length="n", role="in", fill="index:n")
    with pytest.raises(BadInput, match="of type half"):
        Argument(name="a", ctype="half", length="n", role="in")


@given(st.integers(0, 99), st.integers(1, 99), st.integers(0, 9))
def test_arithmetic_as_in_c(a: int, b: int, c: int) -> None:
    names = {"a": a, "b": b, "c": c}
    assert value("2*a*b + c - a/b - a%b", names, "x") == 2 * a * b + c - a // b - a % b
    assert value("-(a+b)**2", names, "x") == -((a + b) ** 2)
    assert names_in("a*n + 2") == {"a", "n"}


def test_arithmetic_refuses_all_else() -> None:
    for bad in (
        "",
        "a +",
        "__import__('os')",
        "a.b",
        "a[0]",
        "9**9**9",
        "1/0",
        "a if a else a",
        "1" * 500,
        "'x'*9",
    ):
        with pytest.raises(BadInput, match="expression"):
            value(bad, {"a": 1}, "here")
    with pytest.raises(BadInput, match=r"'q' in 'q.*' is not known"):
        value("q*2", {}, "here")
    assert names_in("a +") == set()


def test_settings_from_the_command_line() -> None:
    assert parse_settings(["n=5", "c=n*n:out"]) == {"n": "5", "c": "n*n:out"}
    for bad in ("n", "=5", "n=", "a b=1", "sizes=3"):
        with pytest.raises(BadInput, match="setting"):
            parse_settings([bad])


def test_octal_macros_are_no_sizes(tmp_path: Path) -> None:
    source = "#define N 010\nvoid f(float *x) { for (int i = 0; i < N; i++) x[i] = 1; }"
    for text, flags in ((source, "-O2"), (source.split("\n", 1)[1], "-O2,-DN=010")):
        with pytest.raises(BadInput, match="what is"):
            read(tmp_path, text, x="N", flags=flags)


@pytest.mark.parametrize("text", ["(((2**64)**64)**16)%7", "((9**60)**60)**60", "((n**64)**64)%3"])
def test_powers_of_powers_are_refused_before_they_fill_the_memory(text: str) -> None:
    with pytest.raises(BadInput, match="too large a number"):
        value(text, {"n": 1 << 20}, "x")
