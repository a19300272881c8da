"""The bench at work: honest kernels stand, tricks do not, and what the user can mend is said."""

from __future__ import annotations

import select
import shutil
import subprocess
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from refork.errors import BadInput, CannotDo
from refork.sandbox.inside import seccomp
from refork_methods.kernel.bench import Bench, Calibration, Candidate, Limits, calibration, process
from refork_methods.kernel.bench.calibration import least_seconds, load_calibration
from refork_methods.kernel.bench.check import called
from refork_methods.kernel.bench.process import FailedError, Host, Shared, draw_batch, draw_offsets, layout_of
from refork_methods.kernel.diagnose import ceilings_of
from refork_methods.kernel.problem import Argument, Problem, read_problem

pytest.importorskip("tree_sitter_c", reason="the extra 'languages' is not installed")
pytestmark = pytest.mark.skipif(
    not all(map(shutil.which, ("gcc", "objcopy"))) or seccomp.here() is None,
    reason="needs gcc, binutils and Linux with seccomp on x86_64 or aarch64",
)
LIMITS = Limits(seconds=0.4, memory=128 << 20, sample=2e-4, longest=0.02)
KNOWN = Calibration(
    fingerprint="f", machine={}, flops=1e13, flops64=1e13, bandwidth=1e13, ordinary=1e13,
    cached=1e13, triad_bytes=1, cache_bytes=1, noise=1.25, made="now",
)  # fmt: skip
HEAD = "void add(int n, const float *a, const float *b, float *c)"
LOOP = "for (int i = 0; i < n; i++) c[i] = a[i] + b[i];"
ADD = f"// refork: n=300 a=n b=n c=n:out\n{HEAD} {{ {LOOP} }}"


def made(tmp_path: Path, source: str, **settings: object) -> Problem:
    path = tmp_path / "kernel.c"
    path.write_text(source)
    return read_problem(path, **settings)  # type: ignore[arg-type]


@pytest.fixture(scope="module")
def bench(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Bench]:
    folder = tmp_path_factory.mktemp("bench")
    problem = made(folder, ADD)
    with Bench(problem, folder / "built", 3, LIMITS, calibration=KNOWN) as opened:
        yield opened


def body(inside: str, before: str = "") -> Candidate:
    return Candidate(f"{before}\n{HEAD} {{ {inside} }}", ("-O2",))


def test_the_same_kernel_stands_and_gains_nothing(bench: Bench) -> None:
    found = bench.evaluate(bench.original)
    assert (found.ok, found.stage, found.why, found.noise) == (True, "done", "", 1.25)
    assert found.error is not None
    assert 0 <= found.error < 1e-7
    assert found.seconds is not None
    assert found.seconds > 0
    assert found.seconds == min(found.samples)
    assert len(found.samples) == 7
    assert (found.calls or 0) > 1
    assert found.low is not None
    assert found.high is not None
    assert found.low <= (found.speedup or 0) <= found.high
    assert {"process", "seccomp"} <= set(bench.layers)


def test_honest_kernels_that_look_odd_stand(bench: Bench) -> None:
    scratch = "float *t = malloc(4 * n); for (int i = 0; i < n; i++) t[i] = a[i]; " + LOOP + " free(t);"
    for candidate in (
        body(scratch, "#include <stdlib.h>"),
        body(f"static float table[9]; static int ready; if (!ready) {{ ready = 1; table[1] = 1; }} {LOOP}"),
        body("memcpy(c, a, 4 * n); for (int i = n - 1; i >= 0; i--) c[i] += b[i];", "#include <string.h>"),
        body("int h = n / 2; if (h) { add(h, a, b, c); add(n - h, a + h, b + h, c + h); }"
             " else if (n) *c = *a + *b;", f"{HEAD};"),
    ):  # fmt: skip
        found = bench.check(candidate)
        assert found.ok, found


TRICKS = {
    "wrong": ("check", "", body("for (int i = 0; i < n; i++) c[i] = a[i] - b[i];")),
    "stale": ("check", "", body("")),
    "half": ("check", "", body("for (int i = 0; i < n - 1; i++) c[i] = a[i] + b[i];")),
    "not finite": ("check", "", body(f"{LOOP} c[7] = 1e38f * 1e38f;")),
    "cached": ("check", "wrong-later", body(
        "static float k[300]; static int done; "
        "if (!done++) for (int i = 0; i < n; i++) k[i] = a[i] + b[i]; "
        "for (int i = 0; i < n; i++) c[i] = k[i];")),
    "cached by address": ("check", "wrong-later", body(
        f"static const float *l; if (l == a) return; l = a; {LOOP}")),
    "writes inputs": ("cheat", "writes-inputs", body(f"{LOOP} ((float *)a)[0] = 0;")),
    "past the end": ("cheat", "out-of-bounds", body(f"{LOOP} c[n] = 1;")),
    "before the start": ("cheat", "out-of-bounds", body(f"{LOOP} c[-1] = 1;")),
    "far": ("cheat", "out-of-bounds", body(f"{LOOP} c[4096] = 1;")),
    "null": ("run", "", body("*(volatile int *)0 = 1;")),
    "trap": ("run", "", body("__builtin_trap();")),
    "endless": ("run", "", body("for (volatile int i = 0;; i++) { }")),
    "deep": ("run", "", body("volatile char x[1 << 20]; x[0] = 1; add(n, a, b, c); *x = 2;", f"{HEAD};")),
    "memory": ("run", "", body(
        "for (;;) { char *p = malloc(16 << 20); for (int i = 0; i < 16 << 20; i += 4096) p[i] = 1; }",
        "#include <stdlib.h>")),
    "thread": ("build", "imports", body("pthread_create();", "void pthread_create(void);")),
    "early": ("cheat", "runs-outside", body(
        f"{LOOP} c[0] += t;", "float t; __attribute__((constructor)) void g(void) { t = 1; }")),
    "file": ("cheat", "reads-files", body(LOOP, '#include "/etc/passwd"')),
    "syntax": ("build", "", body("int = 3;")),
    "entry": ("build", "", Candidate("void other(void) { }", ("-O2",))),
    "flag": ("build", "", Candidate("", ("-fplugin=x",))),
}  # fmt: skip


@pytest.mark.parametrize("name", TRICKS)
def test_tricks_and_faults_are_data(bench: Bench, name: str) -> None:
    stage, cheat, candidate = TRICKS[name]
    found = bench.check(candidate)
    assert (found.ok, found.stage, found.cheat) == (False, stage, cheat), found
    assert found.why
    assert not found.faster


def test_wrong_only_while_it_is_timed(bench: Bench) -> None:
    late = body(f"static int k; if (k++ < 8) {{ {LOOP} }}")
    assert bench.check(late).ok
    found = bench.evaluate(late)
    assert (found.ok, found.stage, found.cheat) == (False, "check", "wrong-later")
    assert "while it was timed" in found.why


def test_a_duel_is_on_inputs_that_no_search_has_seen(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nor a search that was stopped and goes on, whose bench counts from the beginning again."""
    problem = made(tmp_path, ADD)
    asked: list[tuple[int, ...]] = []
    made_of = np.random.default_rng

    def recorded(seed: int | list[int]) -> np.random.Generator:
        asked.extend([tuple(seed)] if isinstance(seed, list) else [])
        return made_of(seed)

    monkeypatch.setattr(np.random, "default_rng", recorded)
    seen: list[set[tuple[int, ...]]] = []
    for timed in ("evaluate", "duel"):
        with Bench(problem, tmp_path / "built", 3, LIMITS, calibration=KNOWN) as opened:
            asked.clear()
            found = (
                opened.evaluate(opened.original) if timed == "evaluate" else opened.duel([opened.original])[0]
            )
            assert found.ok
            assert len(asked) == len(set(asked)) > 7, "and no two timings have the same"
            seen.append(set(asked))
    assert not seen[0] & seen[1]


def test_a_duel_leaves_out_only_who_fails(bench: Bench) -> None:
    good, bad = body(LOOP), body("")
    found = bench.duel([bad, good, TRICKS["trap"][2]], repeats=7)
    assert [one.ok for one in found] == [False, True, False]
    assert len(found[1].samples) == 7
    with pytest.raises(BadInput, match="6 repeats"):
        bench.evaluate(good, repeats=6)
    with pytest.raises(BadInput, match="0 draws"):
        bench.check(good, draws=0)


def test_names_of_the_driver_and_the_library_cannot_be_replaced(bench: Bench) -> None:
    before = """
    int clock_gettime(int which, void *t) { return 0; }
    long write(int to, const void *from, unsigned long n) { return n; }
    void refork_call(char *base, const unsigned long *row) { }
    """
    assert bench.check(body(LOOP, before)).ok


@pytest.mark.skipif(seccomp.here() is not seccomp.MACHINES["x86_64"], reason="written for x86_64")
def test_a_hidden_system_call_gets_nothing(bench: Bench) -> None:
    hidden = r"""
    __asm__(".text\nhidden:\n.byte 0xb9, 0x0f, 0x05, 0xc3, 0x90\n");
    static long ask(long number, long p, long q, long r) {
        long result;
        __asm__ volatile("lea hidden+1(%%rip), %%r11\n call *%%r11"
            : "=a"(result) : "a"(number), "D"(p), "S"(q), "d"(r) : "rcx", "r11", "memory");
        return result;
    }
    """
    refused = 1  # EPERM
    calls = {
        "fork": 57,
        "open": 2,
        "socket": 41,
        "kill": 62,
        "ptrace": 101,
        "clone": 56,
        "execve": 59,
        "prctl": 157,
    }
    for number in calls.values():
        found = bench.check(body(f"{LOOP} if (ask({number}, 0, 0, 0) != -{refused}) c[0] = 99;", hidden))
        assert found.ok, found
    forged = body(f"{LOOP} unsigned long m[4] = {{17}}; ask(1, 4, (long)m, 32);", hidden)
    found = bench.check(forged)
    assert (found.ok, found.stage, found.cheat) == (False, "cheat", "forged-answer")


def test_work_before_a_call_is_seen(bench: Bench) -> None:
    program = bench._built(bench.original)
    with Host(program.path, Shared(layout_of(bench.problem)), LIMITS) as host:
        rng = np.random.default_rng(0)
        placed = draw_offsets(host.layout, rng)
        called(host, draw_batch(bench.problem, 2, rng), placed)

        def worked() -> None:
            host._idle = (host._idle or 0) - 10_000_000  # as if it had worked for 10 ms since
            host.run(2)

        for _ in range(5):  # now and then it is the machine
            worked()
            worked()
            host._strikes = 0  # what a sample without any of it does; here the machine may be busy
        worked()
        worked()
        with pytest.raises(FailedError, match="while it was not called"):
            worked()
        host.close()
        host.close()


def test_work_after_the_answer_is_seen_where_it_is_no_accident(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The processor's account of the process runs 10 ms ahead of the clock: once, then every time."""
    billed = ahead = 0
    real = Host._cpu

    def cpu(host: Host) -> int:
        nonlocal billed
        billed += ahead
        return real(host) + billed

    monkeypatch.setattr(Host, "_cpu", cpu)
    with Host(bench._built(bench.original).path, Shared(layout_of(bench.problem)), LIMITS) as host:
        rng = np.random.default_rng(0)
        called(host, draw_batch(bench.problem, 1, rng), draw_offsets(host.layout, rng))
        ahead = 10_000_000
        host.run(1)
        assert host._strikes == 1
        host.run(1)
        with pytest.raises(FailedError, match="said to be done after") as caught:
            host.run(1)
    assert caught.value.cheat == "works-outside"


def test_an_original_that_fails_between_its_samples_is_said(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    original = bench._tried().host
    real = Host.run

    def run(host: Host, calls: int) -> object:
        if host is original and calls == 0:
            raise FailedError("it was billed for what it did not do", "works-outside")
        return real(host, calls)

    monkeypatch.setattr(Host, "run", run)
    with pytest.raises(CannotDo, match="the original failed while it was timed: it was billed"):
        bench.evaluate(bench.original)


def test_a_limit_counts_what_the_process_was_given(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    """On a machine that does not let it run, its clock stands still: it is waited for."""
    with Host(bench._built(bench.original).path, Shared(layout_of(bench.problem)), LIMITS) as host:
        rng = np.random.default_rng(0)
        called(host, draw_batch(bench.problem, 1, rng), draw_offsets(host.layout, rng))
        held: list[float] = []
        real = select.select

        def late(*given: Any) -> Any:
            wait = given[3]
            if wait and len(held) < 3:
                held.append(wait)
                return [], [], []
            return real(*given)

        monkeypatch.setattr(process.select, "select", late)
        host.run(1)
        assert len(held) == 3


def test_profiled_programs_call_the_kernel_once(bench: Bench) -> None:
    driver = bench.profiled(bench.original)
    assert driver.symbol == "add"
    assert subprocess.run(driver.argv, check=False).returncode == 0
    with pytest.raises(BadInput, match="kernel profile"):
        bench.profiled(TRICKS["syntax"][2])


def test_integers_results_scalars_and_cpp(tmp_path: Path) -> None:
    source = """long total(int n, int k, const short *x, float s) {
        long t = 0;
        for (int i = 0; i < n; i++) t += x[i] * k;
        return t;
    }"""
    problem = made(tmp_path, source, n=99, x="n", k=":scalar:uniform")
    with Bench(problem, tmp_path / "a", limits=LIMITS, calibration=KNOWN) as opened:
        assert opened.check(opened.original).error == 0
        wrong = opened.check(Candidate(source.replace("* k", "* k + 1"), ("-O1",)))
        assert wrong.why.startswith("the result is ")
    if shutil.which("g++"):
        (tmp_path / "k.cpp").write_text(
            "template <class T> T two(T x) { return x + x; }\n"
            "double f(int n, double *x) { for (int i = 0; i < n; i++) x[i] = two(x[i]); return x[0]; }"
        )
        cpp = read_problem(tmp_path / "k.cpp", n=9, x="n")
        with Bench(cpp, tmp_path / "b", limits=LIMITS, calibration=KNOWN) as opened:
            assert opened.check(opened.original, draws=4).ok


@pytest.mark.parametrize(
    ("source", "settings", "said"),
    [
        ("static int k; x[0] = k++;", {"x": "1:out"}, "two runs"),
        ("for (int i = 0; i < n; i++) x[i] += 1;", {"x": "n:out"}, "not finite"),
        ("for (int i = 1; i < n; i++) x[i] = 1;", {"x": "n:out"}, r"x\[0\] not finite"),
        ("int *y = (int *)x; for (int i = 1; i < n; i++) y[i] = 1;", {"x": "n:out"}, "two runs|not finite"),
        ("for (int i = 0; i < n; i++) x[i] = 1e30f * 1e30f;", {"x": "n:out"}, "not finite"),
        ("for (int i = 0; i <= n; i++) x[i] = 1;", {"x": "n"}, "past the end of x"),
        ("x[0] = g();", {"x": "1:out"}, "it uses g"),
        ("float s = 0; for (int i = 1; i < 30000; i++) s += 1.0f / i; x[0] = s;",
         {"x": "1:out", "rtol": 1e-9, "atol": 0}, "allow more, such as rtol"),
        ("__attribute__((vector_size(8))) float v; x[0] = 1;", {"x": "1:out"}, "depends on the width"),
        ("int = 1;", {"x": "n:out"}, "error"),
    ],
)  # fmt: skip
def test_an_unfit_original_is_refused_with_what_to_do(
    tmp_path: Path, source: str, settings: dict[str, object], said: str
) -> None:
    problem = made(tmp_path, f"int g(void); void f(int n, float *x) {{ {source} }}", n=40, **settings)
    with (
        pytest.raises(BadInput, match=said),
        Bench(problem, tmp_path / "b", limits=LIMITS, calibration=KNOWN),
    ):
        pass


def test_whole_numbers_left_unwritten_are_seen(tmp_path: Path) -> None:
    source = "void f(int n, int *x) { for (int i = 1; i < n; i++) x[i] = 1; }"
    problem = made(tmp_path, source, n=40, x="n:out")
    with pytest.raises(BadInput, match=r"two runs on the same inputs differ at x\[0\]"):
        Bench(problem, tmp_path / "b", limits=LIMITS, calibration=KNOWN).__enter__()


def test_a_reference_of_its_own(tmp_path: Path) -> None:
    (tmp_path / "wide.c").write_text(
        "void f(int n, double *x) { for (int i = 0; i < n; i++) x[i] = 2 * x[i]; }"
    )
    source = (
        "typedef float v __attribute__((vector_size(16)));\n"
        "void f(int n, float *x) { for (int i = 0; i < n; i++) x[i] += x[i]; }"
    )
    problem = made(tmp_path, source, n=40, x="n", reference="wide.c")
    with Bench(problem, tmp_path / "b", limits=LIMITS, calibration=KNOWN) as opened:
        assert opened.check(opened.original).error == 0


def test_nothing_is_faster_than_the_roof(bench: Bench, tmp_path: Path) -> None:
    known = replace(KNOWN, flops=4.0, flops64=2.0, bandwidth=8.0, cached=16.0, cache_bytes=100)
    problem = replace(bench.problem, flops=8.0, bytes=64.0)
    assert least_seconds(problem, known, 100) == 4.0  # 64 bytes at 16 B/s
    assert least_seconds(problem, known, 101) == 64 / 12  # at one and a half times 8 B/s
    assert least_seconds(replace(problem, bytes=16.0), known, 101) == 2.0  # 8 flop at 4 a second
    assert least_seconds(replace(problem, bytes=0.0), known, 1) == 2.0
    assert least_seconds(bench.problem, known, 1) == 0.0
    with Bench(problem, tmp_path, limits=LIMITS, calibration=known) as opened:
        found = opened.evaluate(opened.original)
    assert (found.ok, found.stage, found.cheat) == (False, "cheat", "too-fast")


@pytest.mark.parametrize(
    ("array", "scalar", "returns", "wide"),
    [
        ("float", "double", None, False), ("float", "float", "double", False),
        ("double", "float", None, True), ("double", "double", "double", True),
        ("int", "float", "double", True), ("int", "double", None, False),
    ],
)  # fmt: skip
def test_the_peak_is_that_of_doubles_where_no_float_is_in_arrays_or_result(
    bench: Bench, array: str, scalar: str, returns: str | None, wide: bool
) -> None:
    known = replace(KNOWN, flops=4.0, flops64=2.0)
    x = Argument(name="x", ctype=array, length="n", role="inout")
    alpha = Argument(name="alpha", ctype=scalar, length=None, role="scalar")
    problem = replace(bench.problem, arguments=(x, alpha), returns=returns, sizes={"n": 8}, flops=8.0)
    assert least_seconds(problem, known, 1) == (4.0 if wide else 2.0)
    assert ceilings_of(problem, known, 1)[0].flops == (2.0 if wide else 4.0)


def test_calibrations_are_kept_by_machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("REFORK_HOME", str(tmp_path))
    assert load_calibration() is None
    path = calibration.calibration_path()
    assert path.parent == tmp_path / "kernel"
    path.parent.mkdir()
    path.write_text("{}")
    assert load_calibration() is None
    path.write_text(__import__("json").dumps(KNOWN.to_json()))
    assert load_calibration() == KNOWN
    assert KNOWN.ceilings.ridge == 1
    path.write_text("{")
    assert load_calibration() is None
    path.unlink()
    path.mkdir()
    with pytest.raises(BadInput, match="the calibration cannot be read: Is a directory"):
        load_calibration()
    assert len(calibration.fingerprint()) == 16


def test_a_sum_whose_terms_cancel_may_be_added_in_another_order(tmp_path: Path) -> None:
    source = (
        "// refork: entry=dot n=2048 a=n b=n r=1:out\n"
        "void dot(int n, const float *a, const float *b, float *r) {\n"
        "    float s = 0;\n    for (int i = 0; i < n; i++) s += a[i] * b[i];\n    r[0] = s;\n}\n"
    )
    file = tmp_path / "dot.c"
    file.write_text(source)
    problem = read_problem(file)
    with Bench(problem, tmp_path / "b", limits=LIMITS, calibration=KNOWN) as opened:
        vector = opened.evaluate(Candidate(source, ("-O3", "-march=native", "-ffast-math")))
        assert (vector.ok, vector.why) == (True, "")
        wrong = opened.check(Candidate(source.replace("= s;", "= s * 1.001f;"), ("-O2",)))
        assert (wrong.ok, wrong.stage) == (False, "check")
