"""C files compiled: the object and the records, the first error, flags that are let in."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from refork.errors import BadInput
from refork_methods.kernel.cpu import metrics as m
from refork_methods.kernel.cpu import static
from refork_methods.kernel.cpu.build import Built, check_flags, compile_object, for_profiling
from refork_methods.kernel.cpu.static import static_signals

needs_gcc = pytest.mark.skipif(shutil.which("gcc") is None, reason="gcc is not installed")


@needs_gcc
def test_an_object_and_what_the_vectoriser_says(tmp_path: Path) -> None:
    source = tmp_path / "add.c"
    source.write_text(
        "void add(int n, float *restrict a, float *b) { for (int i = 0; i < n; i++) a[i] += b[i]; }\n"
    )
    built = compile_object(source, tmp_path / "out", flags=("-O3",))
    assert built.path.stat().st_size > 0
    assert static.parse_optinfo(built.records)[0][m.VECTORISED.name] == 1
    assert list((tmp_path / "out").iterdir()) == [built.path]
    assert built.command[0] == "gcc"
    source.write_text("void add(int n) { n = ; }\nint also(wrong);\n")
    with pytest.raises(BadInput, match=r"add.c:1:23: error: expected expression"):
        compile_object(source, tmp_path / "out")
    source.write_text("int one;\n")
    with pytest.raises(BadInput, match="took over"):
        compile_object(source, tmp_path / "out", seconds=1e-4)
    source.rename(tmp_path / "add.f")
    with pytest.raises(BadInput, match="is no C or C"):
        compile_object(tmp_path / "add.f", tmp_path)
    with pytest.raises(BadInput, match="no file"):
        compile_object(tmp_path / "gone.c", tmp_path)


def test_flags_that_load_code_or_name_files_are_refused() -> None:
    good = (
        "-O3",
        "-march=native",
        "-ffast-math",
        "-std=c11",
        "-DN=512",
        "-Wall",
        "-mprefer-vector-width=512",
    )
    assert check_flags(good) == good
    for bad in (
        "-fplugin=x.so",
        "-o",
        "-Wl,-rpath,x",
        "@args",
        "-include",
        "-fopt-info=x",
        "-I/etc",
        "a.c",
        "-flto",
    ):
        with pytest.raises(BadInput, match="flag"):
            check_flags((bad,))
    assert for_profiling(good) == (
        "-O3",
        "-ffast-math",
        "-std=c11",
        "-DN=512",
        "-Wall",
        "-march=haswell",
        "-mno-fma",
    )


DOT = """
float dot(int n, const float *a, const float *b) {
    float sum = 0;
    for (int i = 0; i < n; i++) sum += a[i] * b[i];
    return sum;
}
float sinf(float);
void waves(int n, float *a) {
    for (int i = 0; i < n; i++) a[i] = sinf(a[i]);
}
"""


@needs_gcc
@pytest.mark.skipif(shutil.which("objdump") is None, reason="binutils are not installed")
def test_what_is_said_without_running(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    source = tmp_path / "dot.c"
    source.write_text(DOT)
    built = compile_object(source, tmp_path, flags=("-O2", "-mavx2", "-mfma"))
    signals = static_signals(built, "dot", cpu="znver2")
    assert m.SCALAR.of(signals) == 1
    assert (m.PACKED.of(signals), m.FP_LOOPS.of(signals), m.VECTOR_LOOPS.of(signals)) == (0, 1, 0)
    if shutil.which("llvm-mca"):
        assert (m.LOOP_CYCLES.of(signals) or 0) > 3 * (m.BLOCK_CYCLES.of(signals) or 1)
        assert static_signals(built, "dot", cpu="nocpu").absent["mca"].startswith("llvm-mca")
        assert "calls a function" in static_signals(built, "waves").absent["mca"]
    assert m.LIBM_CALLS.of(static_signals(built, "waves")) == 1
    with pytest.raises(BadInput, match="no function gone"):
        static_signals(built, "gone")
    monkeypatch.setenv("PATH", str(tmp_path))
    blind = static_signals(Built(built.path, "", built.command), "dot")
    assert not blind.values
    assert blind.absent == {
        "objdump": "objdump is not installed",
        "mca": "no disassembly to model",
        "optinfo": "gcc's vectoriser does not run at these flags",
    }


@pytest.mark.parametrize(
    ("told", "maker", "chosen"),
    [
        ("  Host CPU: (unknown)\n", "vendor_id : AuthenticAMD", "znver3"),
        ("  Host CPU: (unknown)\n", "vendor_id : GenuineIntel", "icelake-server"),
        ("  Host CPU: (unknown)\n", "vendor_id : another", "native"),
        ("  Host CPU: znver2\n", "vendor_id : AuthenticAMD", "native"),
    ],
)
def test_a_processor_newer_than_the_model_is_modelled_as_its_makers_newest(
    monkeypatch: pytest.MonkeyPatch, told: str, maker: str, chosen: str
) -> None:
    asked: list[tuple[str, ...]] = []
    report = (Path(__file__).parent / "data" / "dot.mca").read_text()

    def said(command: tuple[str, ...], given: bytes = b"") -> tuple[str, str]:
        asked.append(command)
        return (told if "--version" in command else report), ""

    monkeypatch.setattr(static, "_last_word", said)
    monkeypatch.setattr(static, "_cpu_info", lambda: maker)
    monkeypatch.setattr(static.objdump, "loop_assembly", lambda text, entry: "addss %xmm0, %xmm1")
    _, cites = static._modelled("", "f", "native")
    assert asked[-1] == ("llvm-mca", f"-mcpu={chosen}", "loop.s")
    assert any(f"modelled as {chosen}" in line for line in cites) == (chosen != "native")
    asked.clear()
    static._modelled("", "f", "znver1")
    assert asked == [("llvm-mca", "-mcpu=znver1", "loop.s")]
