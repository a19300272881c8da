"""Which moves are offered and which are refused, on sources alone."""

from __future__ import annotations

import pytest

from kernel.rewrite.kernels import BY_NAME, FLAGS, KERNELS, MATMUL
from refork.errors import BadInput
from refork_methods.kernel.cpu.tools import cpu_tools
from refork_methods.kernel.rewrite import Move, apply, moves
from refork_methods.kernel.rewrite.moves import RULES

REORDERS = (
    "interchange",
    "tile",
    "jam",
    "simd",
    "ivdep",
    "register_tile",
    "accumulators",
    "vector_sum",
    "fuse",
    "split",
    "pack",
    "private_table",
)


def _ids(source: str, *kinds: str) -> list[str]:
    return [one.id for one in moves(source, "run", FLAGS) if not kinds or one.name in kinds]


def _after(source: str, *chain: str) -> str:
    flags = FLAGS
    for wanted in chain:
        move = next(one for one in moves(source, "run", flags) if one.id == wanted)
        source, flags = apply(source, "run", flags, move)
    return source


def test_loops_that_carry_dependences_are_left_alone() -> None:
    for name in ("prefix", "seidel"):
        source = _after(BY_NAME[name].source, *(["restrict()"] if name == "prefix" else []))
        assert _ids(source, *REORDERS) in ([], [f"tile(i,{size})" for size in (16, 32, 64, 128, 256)])
        assert "unroll(j,2)" in _ids(source) or "unroll(i,2)" in _ids(source)


def test_pointers_that_may_overlap_keep_the_order() -> None:
    for name in ("matmul", "stencil", "transpose"):
        open_ones = _ids(BY_NAME[name].source, "interchange", "register_tile", "jam", "fuse", "pack")
        assert open_ones == []
        promised = _after(BY_NAME[name].source, "restrict()")
        assert "interchange(i,j)" in _ids(promised)
    # Another type is other memory: counting into int from float is not.
    table = "void run(int n, const int *x, double *h) { for (int i = 0; i < n; i++) h[x[i]] += 1.0; }"
    assert "simd(i)" not in _ids(table)


def test_restrict_is_a_promise_of_the_caller() -> None:
    (move,) = [one for one in moves(MATMUL, "run", FLAGS) if one.name == "restrict"]
    assert move.assumes == "arrays of a call do not overlap"
    source = apply(MATMUL, "run", FLAGS, move)[0]
    assert "const float *__restrict__ a, const float *__restrict__ b, float *__restrict__ c" in source
    vla = _after(BY_NAME["matmul_vla"].source, "restrict()")
    assert "const double a[__restrict__ n][n]" in vla
    assert "restrict()" not in _ids(vla)
    rows = "void run(int n, float (*a)[n], const float *b) { for (int i = 0; i < n; i++) a[i][0] = b[i]; }"
    assert "float (*__restrict__ a)[n]" in _after(rows, "restrict()")


def test_triangles_are_not_exchanged() -> None:
    source = _after(BY_NAME["triangular"].source, "restrict()")
    assert _ids(source, "interchange", "register_tile") == []


def test_distances_decide() -> None:
    def body(write: str, read: str) -> str:
        loops = "for (int i = 2; i < n - 2; i++) for (int j = 2; j < n - 2; j++)"
        return f"void run(int n, float *a) {{ {loops} a[{write}] = a[{read}] + 1.0f; }}"

    assert "interchange(i,j)" in _ids(body("i * n + j", "(i - 1) * n + j"))
    assert "interchange(i,j)" in _ids(body("i * n + j", "(i - 1) * n + j - 1"))
    assert "interchange(i,j)" not in _ids(body("i * n + j", "(i - 1) * n + j + 1"))
    assert "ivdep(j)" in _ids(body("i * n + j", "(i - 1) * n + j + 1"))
    assert "ivdep(j)" not in _ids(body("i * n + j", "i * n + j - 1"))
    # The row's length is not known to be above the counter's: rows may overlap.
    assert "ivdep(j)" not in _ids(body("i * m + j", "(i - 1) * m + j").replace("int n,", "int n, int m,"))
    assert "ivdep(j)" not in _ids(body("i * n + j", "(i - 1) * n + j + 3"))


@pytest.mark.parametrize(
    ("kind", "same"),
    [
        ("int", True), ("long", True), ("size_t", True), ("int64_t", True), ("unsigned long", True),
        ("unsigned char", False), ("signed char", False), ("short", False), ("uint16_t", False),
        ("unsigned", False), ("uint32_t", False), ("float", False),
    ],
)  # fmt: skip
def test_a_conversion_that_drops_bits_is_another_place(kind: str, same: bool) -> None:
    head = "void run(int n, int *restrict a, const int *restrict b) { for (int i = 0; i < n; i++)"
    cast = f"{head} a[({kind})i] = a[({kind})i] * 3 + b[i]; }}"
    held = f"{head} {{ {kind} k = i; a[k] = a[k] * 3 + b[i]; }} }}"
    for source in (cast, held) if kind != "float" else (cast,):
        assert ("simd(i)" in _ids(source), "ivdep(i)" in _ids(source)) == (same, same)


@pytest.mark.parametrize(
    ("kind", "offered"),
    [
        ("int", True), ("long", True), ("size_t", True), ("char", False), ("signed char", False),
        ("unsigned char", False), ("short", False), ("unsigned short", False), ("int16_t", False),
        ("uint8_t", False),
    ],
)  # fmt: skip
def test_counters_below_int_are_not_tiled(kind: str, offered: bool) -> None:
    loops = f"for ({kind} i = 0; i < n; i++) for ({kind} j = 0; j < n; j++)"
    source = f"void run(int n, float *restrict a) {{ {loops} a[i * n + j] += 1.0f; }}"
    assert bool(_ids(source, "tile")) == offered


def test_octal_numbers_are_not_read_as_decimals() -> None:
    step = "void run(int n, float *restrict a) { for (int j = 0; j < n; j += 010) a[j] = 2.0f; }"
    assert _ids(step, "unroll", "simd") == []
    bound = "void run(int n, float *restrict a) { for (int i = 0; i <= 010; i++) a[i] = 1.0f; }"
    assert "010 + 1" in _after(bound, "unroll(i,2)")
    factor = (
        "float run(int n, const float *restrict a) {"
        " float s = 0; for (int i = 0; i < n; i++) s += a[i] * 010; return s; }"
    )
    assert _ids(factor, "vector_sum") == []
    assert _ids(factor.replace("010", "10"), "vector_sum")


def test_even_and_odd_places_never_meet() -> None:
    source = "void run(int n, float *a) { for (int i = 0; i < n; i++) a[2 * i] = a[2 * i + 1]; }"
    assert "ivdep(i)" in _ids(source)
    assert "ivdep(i)" not in _ids(source.replace("2 * i + 1", "2 * i + 2"))


def test_reordered_sums_are_marked() -> None:
    found = {one.id: one for one in moves(BY_NAME["dot"].source, "run", FLAGS)}
    assert found["accumulators(i,4)"].reassociates
    assert found["simd(i)"].reassociates
    assert found["vector_sum(i,4)"].reassociates
    assert not found["unroll(i,4)"].reassociates
    assert found["flags(associative)"].reassociates
    assert found["flags(fast)"].assumes
    counted = "int run(int n, const int *a) { int s = 0; for (int i = 0; i < n; i++) s += a[i]; return s; }"
    for source, rounds in (
        (counted, False),
        (counted.replace("a[i]", "(a[i] > 3 ? i : 2)"), False),
        (counted.replace("a[i]", "(int)(a[i] * 0.5)"), False),
        (counted.replace("const int", "const float"), True),
        (counted.replace("a[i]", "a[i] * 0.5"), True),
        (counted.replace("int s", "float s"), True),
    ):
        assert {one.id: one for one in moves(source, "run", FLAGS)}["simd(i)"].reassociates == rounds


def test_a_table_of_integers_that_floats_are_added_to_is_rounded() -> None:
    head = "void run(int n, int bins, const int *restrict x, const float *restrict w, int h[restrict bins])"
    source = f"{head} {{ for (int i = 0; i < n; i++) h[x[i]] += %s; }}"
    for addend, exact in (("1", True), ("x[i]", True), ("w[i]", False)):
        made = {one.name: one for one in moves(source % addend, "run", FLAGS)}
        assert made["private_table"].reassociates != exact
        assert ("few_bins" in made) == exact


def test_a_sum_read_on_the_way_is_no_sum() -> None:
    source = (
        "void run(int n, const float *restrict x, float *restrict y) {"
        " float s = 0.0f; for (int i = 0; i < n; i++) { s += x[i]; y[i] = s; } }"
    )
    assert _ids(source, "simd", "accumulators", "vector_sum", "ivdep", "split") == []


@pytest.mark.parametrize(
    "body",
    [
        "for (int i = 0; i < n; i++) { if (a[i] < 0) break; a[i] = b[i]; }",
        "for (int i = 0; i < n; i++) { f(a, i); a[i] = b[i]; }",
        "for (int i = 0; i < n; i++) { *(a + i) = b[i]; a[i] += 1; }",
        "for (int i = 0; i < n; i++) { a[i] = b[i]; i += (int)b[i]; }",
        "for (int i = n - 1; i >= 0; i--) a[i] = a[0] + b[i];",
        "int k = 0; for (int i = 0; i < n; i++) { a[k++] = b[i]; }",
        "int k = 0; while (k < n) { a[k] = b[k]; k++; }",
        "float *p = a; for (int i = 0; i < n; i++) { *p = b[i]; if (b[i] > 0) p++; }",
        "for (int i = 0; i < n; i++) { n = (int)b[i]; a[i] = 1; }",
        "volatile float t; for (int i = 0; i < n; i++) { t = b[i]; a[i] = t; }",
        "for (int i = 0; i < n; i++) { ({ a[i] = b[i]; }); }",
    ],
)
def test_what_is_not_understood_stays(body: str) -> None:
    source = (
        f"void f(float *a, int i);\nvoid run(int n, float *restrict a, const float *restrict b) {{ {body} }}"
    )
    assert _ids(source, *REORDERS, "scalar_sum", "hoist") == []


def test_bounds_in_memory_that_may_change() -> None:
    body = "for (int i = 0; i < m[0]; i++) { %s }"
    head = "extern int m[1]; extern int top; void f(float *a); void run(int n, float *restrict a)"
    assert "unroll(i,2)" in _ids(f"{head} {{ {body % 'a[i] = 1;'} }}")
    assert "unroll(i,2)" not in _ids(f"{head} {{ {body % 'f(a);'} }}")
    assert "unroll(i,2)" not in _ids(f"{head} {{ {body % 'm[0] = 2;'} }}")
    assert "unroll(i,2)" not in _ids(f"{head} {{ {(body % 'f(a);').replace('m[0]', 'top')} }}")


def test_sources_that_cannot_be_read() -> None:
    with pytest.raises(BadInput, match="no function other"):
        moves(MATMUL, "other", FLAGS)
    with pytest.raises(BadInput, match="syntax error"):
        moves("void run(int n) { n = ; }", "run", FLAGS)
    with pytest.raises(BadInput, match="macros"):
        moves("#define X a[i]\n" + MATMUL.replace("s += a[i * n + k]", "s += X"), "run", FLAGS)
    with pytest.raises(BadInput, match="hides"):
        moves("void run(int n, float *a) { for (int n = 0; n < 3; n++) a[n] = 0; }", "run", FLAGS)
    with pytest.raises(BadInput, match="volatile"):
        moves("void run(int n, volatile float *a) { a[0] = 0; }", "run", FLAGS)
    assert "interchange(i,j)" in _ids(
        "#define N (1 << 6)\n" + _after(MATMUL, "restrict()").replace("k < n", "k < N")
    )


def test_moves_that_do_not_apply() -> None:
    for move in (
        Move("gone"),
        Move("tile", {"loop": "z", "size": 32}),
        Move("tile", {"loop": "k"}),
        Move("tile", {"loop": "k", "size": 1}),
        Move("flags", {"flags": "O9"}),
        Move("flags", {"flags": "O3"}),
        Move("interchange", {"outer": "i", "inner": "j"}),
        Move("interchange", {"outer": "k", "inner": "i"}),
        Move("register_tile", {"loop": "i", "rows": 4, "columns": 17}),
        Move("reciprocal", {"loop": "k"}),
        Move("hoist", {"loop": "k"}),
        Move("fast_exp"),
        Move("private_table", {"loop": "k", "copies": 4}),
        Move("pack", {"array": "b", "loop": "k"}),
        Move("prefetch", {"array": "c", "loop": "k", "ahead": 16}),
        Move("fuse", {"first": "i", "second": "j"}),
        Move("split", {"loop": "j", "at": 9}),
        Move("vector_sum", {"loop": "k", "vectors": 4}),
    ):
        with pytest.raises(BadInput):
            apply(MATMUL, "run", FLAGS, move)


def test_moves_are_listed_alike_every_time_and_name_known_tools() -> None:
    tools = {tool.name for tool in cpu_tools()}
    seen: set[str] = set()
    for kernel in KERNELS:
        found = moves(kernel.source, "run", FLAGS)
        assert found == moves(kernel.source, "run", FLAGS)
        assert len({one.id for one in found}) == len(found)
        assert all(set(one.answers) <= tools and one.answers for one in found)
        for source in (
            kernel.source,
            _after(kernel.source, *[one for one in _ids(kernel.source) if one == "restrict()"]),
        ):
            seen |= {one.name for one in moves(source, "run", FLAGS)}
    seen |= {
        one.name for one in moves(_after(MATMUL, "restrict()", "tile(k,64)", "tile(j#2,64)"), "run", FLAGS)
    }
    assert {rule.name for rule in RULES} - seen == {"hoist"}


def test_hoist_takes_a_fixed_call_out() -> None:
    source = (
        "#include <math.h>\nvoid run(int n, float t, const float *restrict x, float *restrict y) {\n"
        "    for (int i = 0; i < n; i++) {\n        y[i] = x[i] * expf(t);\n    }\n}\n"
    )
    made = _after(source, "hoist(i)")
    assert "    float expf_once = expf(t);\n" in made
    assert "        y[i] = x[i] * expf_once;\n" in made


def test_the_source_around_the_function_is_kept() -> None:
    source = "/* first */\nstatic int other = 3;\n" + MATMUL + "\nint last(void) { return other; }\n"
    made = _after(source, "restrict()", "tile(k,64)")
    assert made.startswith("/* first */\nstatic int other = 3;\n")
    assert made.endswith("}\n\nint last(void) { return other; }\n")
    assert "    for (int k0 = 0; k0 < n; k0 += 64) {\n        for (int i = 0; i < n; i++) {\n" in made
    assert "k < (k0 + 64 < n ? k0 + 64 : n); k++" in made
    # Flags and promises change nothing in the body.
    assert _after(source, "flags(unroll)") == source


def test_flags() -> None:
    def flags(given: tuple[str, ...], name: str) -> tuple[str, ...]:
        move = next(one for one in moves(MATMUL, "run", given) if one.id == f"flags({name})")
        return apply(MATMUL, "run", given, move)[1]

    assert flags(("-O2", "-g"), "O3") == ("-O3", "-g")
    assert flags(("-O3",), "native") == ("-O3", "-march=native")
    assert flags(("-O3", "-mprefer-vector-width=256"), "width512") == ("-O3", "-mprefer-vector-width=512")
    assert "-fno-signed-zeros" in flags(("-O3",), "associative")


def test_comments_and_lines_are_kept_where_nothing_moves() -> None:
    source = _after(BY_NAME["saxpy"].source, "restrict()", "unroll(i,2)")
    assert "        // one line\n" in source


def test_maxima_are_exact() -> None:
    loop = "for (int i = 0; i < n; i++) if (m < x[i]) m = x[i];"
    source = f"float run(int n, const float *x) {{ float m = x[0]; {loop} return m; }}"
    found = {one.id: one for one in moves(source, "run", FLAGS)}
    assert not found["accumulators(i,4)"].reassociates
    assert "reduction(max: m)" in _after(source, "simd(i)")


def test_a_matrix_product_reaches_a_register_tile_in_two_moves() -> None:
    made = _after(MATMUL, "restrict()", "register_tile(i,8,32)")
    assert "refork_f32x16 sum_7_1 = {0};" in made
    assert made.count("typedef") == 1
    packed = _after(
        MATMUL, "restrict()", "tile(k,256)", "tile(j#2,64)", "pack(b,k0)", "register_tile(i#2,8,32)"
    )
    assert "float b_tile[16384];" in packed


@pytest.mark.parametrize(
    "comment", ["// refork: h=%s:inout", "/* refork: h=%s:inout */", "/*\n * refork: h=%s\n */"]
)
def test_a_tables_length_is_read_of_every_comment_block(comment: str) -> None:
    head = "void run(int n, int bins, const int *restrict x, int *restrict h)"
    body = f"{head} {{ for (int i = 0; i < n; i++) h[x[i]]++; }}"
    assert "private_table(i,4)" in _ids(f"{comment % 'bins'}\n{body}")
    # Of a length that is no plain name no part is taken for it.
    assert _ids(f"{comment % 'bins-1'}\n{body}", "private_table") == []
