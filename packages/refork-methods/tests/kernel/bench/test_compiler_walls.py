"""What a source can have the compiler and its tools read or use up: nothing but what they are shown.

Each disguise is told by its effect: whether bytes of a planted file come back in anything that the tools say
or make. First with the jail alone, where no text is screened and every flag is let through.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from refork.errors import BadInput, CannotDo
from refork.sandbox import jailed
from refork.sandbox.jailed import Way, only
from refork.sandbox.result import UnconfinedWarning
from refork_methods.kernel.bench import program
from refork_methods.kernel.bench.program import Programs
from refork_methods.kernel.bench.screen import RefusedError, read_object, screen_object, screen_source
from refork_methods.kernel.cpu import build
from refork_methods.kernel.cpu.build import LARGEST, Built, OpenedError, compile_object
from refork_methods.kernel.cpu.toolchain import run, toolchain
from support.compiler_attacks import PROBLEM, Planted, try_all, try_bomb, try_walls
from support.compiler_disguises import BOMBS, DISGUISES, ENTRY, Bomb, Disguise

pytestmark = pytest.mark.skipif(
    not all(map(shutil.which, ("gcc", "g++", "objcopy", "objdump"))), reason="needs gcc and binutils"
)


@pytest.fixture(scope="module", autouse=True, params=["namespaces", "landlock"])
def way(request: pytest.FixtureRequest) -> Iterator[Way]:
    with only(request.param):
        try:
            run(("gcc", "--version"), files={}, bounds=build.BOUNDS)
        except CannotDo as error:
            pytest.skip(str(error))
        yield request.param


@pytest.fixture(scope="module")
def planted() -> Iterator[Planted]:
    with Planted() as found:
        yield found


def called(one: Disguise | Bomb) -> str:
    return one.name.replace(" ", "-")


def test_there_are_enough_and_no_two_are_the_same() -> None:
    assert len(DISGUISES) >= 40
    assert len({(one.source, one.flags) for one in DISGUISES}) == len(DISGUISES)
    assert len({one.name for one in DISGUISES}) == len(DISGUISES)
    passed = []
    for one in DISGUISES:
        try:
            screen_source(one.source)
            passed.append(one)
        except RefusedError:
            pass
    # The screen is a courtesy: most kinds that it was not written for pass it, and some that it was.
    assert sum(one.new for one in passed) >= 40
    assert sum(not one.new for one in passed) >= 8
    assert len(BOMBS) >= 6


@pytest.mark.parametrize("disguise", DISGUISES, ids=called)
def test_the_jail_alone_shows_a_source_no_file(disguise: Disguise, planted: Planted) -> None:
    assert try_walls(disguise, planted).effects == ()


@pytest.mark.parametrize("disguise", DISGUISES, ids=called)
def test_a_verdict_tells_a_writer_no_file(disguise: Disguise, planted: Planted) -> None:
    assert try_all(disguise, planted).effects == ()


def test_without_a_jail_most_of_them_succeed(way: Way, planted: Planted) -> None:
    """The control: an attempt that cannot succeed anywhere proves nothing when it fails."""
    if way != "namespaces":
        return
    some = DISGUISES[::4]
    with only("none"), pytest.warns(UnconfinedWarning):
        found = [one.name for one in some if try_walls(one, planted).effects]
    assert len(found) > 0.6 * len(some), found


@pytest.mark.parametrize("bomb", BOMBS, ids=called)
def test_bombs_are_bounded(bomb: Bomb, tmp_path: Path) -> None:
    blown = try_bomb(bomb, tmp_path, 1.0)
    assert blown.bounded, blown
    assert blown.said != "built", blown


OPENS = {
    "its assembler opens": '__asm__(".incbin \\"/usr/include/math.h\\"");\n',
    "which is no header": '#include "opened.asm"\n',
}


@pytest.mark.parametrize("said", OPENS)
def test_what_was_opened_is_looked_through(
    said: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Files that are in sight, and still not what a kernel needs: named, and not quoted."""
    real = build.run_tool

    def with_more(command: tuple[str, ...], files: dict[str, bytes], *rest: object, **more: object) -> object:
        beside = {"opened.asm": b"int within;\n"} if "include " in OPENS[said] else {}
        return real(command, files | beside, *rest, **more)  # type: ignore[arg-type]

    monkeypatch.setattr(build, "run_tool", with_more)
    source = tmp_path / "k.c"
    source.write_text(OPENS[said] + ENTRY)
    with pytest.raises(OpenedError, match=said) as found:
        compile_object(source, tmp_path / "built")
    assert "within" not in str(found.value)
    assert not (tmp_path / "built").exists(), "no object is kept"


def test_a_candidate_that_has_headers_opened_is_refused_by_the_name_of_the_trick(planted: Planted) -> None:
    found = try_all(next(one for one in DISGUISES if one.name == "list of the assembler's"), planted)
    assert "file not found" in found.output
    own = Disguise("own", '__asm__(".irp x,inc\\n.\\\\x\\\\()bin \\"/usr/include/math.h\\"\\n.endr");\n')
    assert "its assembler opens '/usr/include/math.h'" in try_all(own, planted).output


def test_rules_of_make_are_read_with_their_escapes() -> None:
    rule = b"out.o: k.c /usr/include/a\\ b.h \\\n /a$$b /c\\#d\\\\e.h\n"
    assert build._opened(rule) == ["k.c", "/usr/include/a b.h", "/a$b", "/c#d\\e.h"]
    assert build._opened(b"") == []


def test_an_object_is_refused_by_its_size_before_it_is_read(tmp_path: Path) -> None:
    large = tmp_path / "large.o"
    with large.open("wb") as file:
        file.truncate(LARGEST + 1)
    with pytest.raises(BadInput, match="are the most"):
        screen_object(large, "k")
    source = tmp_path / "k.c"
    source.write_text(f"char b[{LARGEST}] = {{1}};\n{ENTRY}")
    with pytest.raises(BadInput, match=rf"makes over {LARGEST} bytes of out.o"):
        compile_object(source, tmp_path / "built")


def test_names_in_an_object_are_bounded(tmp_path: Path) -> None:
    for length, fits in ((4000, True), (5000, False)):
        source = tmp_path / "k.c"
        source.write_text(f"int {'y' * length};\n{ENTRY}")
        data = compile_object(source, tmp_path / "built").path.read_bytes()
        if fits:
            assert any(len(one.name) == length for one in read_object(data)[1])
            continue
        with pytest.raises(BadInput, match="over 4096 bytes"):
            read_object(data)


def test_symbols_of_an_object_are_bounded(tmp_path: Path) -> None:
    source = tmp_path / "k.c"
    labels = ".macro m\\nl\\\\@: .globl l\\\\@\\n.endm\\n.rept 65600\\nm\\n.endr"
    source.write_text(f'__asm__("{labels}");\n{ENTRY}')
    with pytest.raises(BadInput, match="over 65536 symbols"):
        read_object(compile_object(source, tmp_path / "built").path.read_bytes())


def test_where_nothing_holds_nothing_is_compiled(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(jailed, "_refused", {"namespaces": "not granted", "landlock": "not there"})
    source = tmp_path / "k.c"
    source.write_text(ENTRY)
    with (
        only("namespaces", "landlock"),
        pytest.raises(
            CannotDo, match=r"cannot hold .*gcc.* back \(namespaces: not granted; landlock: not there"
        ),
    ):
        compile_object(source, tmp_path)
    assert list(tmp_path.iterdir()) == [source]


def test_only_the_toolchain_is_in_sight(way: Way, tmp_path: Path) -> None:
    """By what a source can ask for: headers of the system are there, all else is not."""
    for path, there in (
        ("/usr/include/stdio.h", True), ("/etc/passwd", False), ("/proc/self/status", False),
        ("/etc/hostname", False), (str(Path(__file__)), False), (str(Path.home() / ".profile"), False),
    ):  # fmt: skip
        source = f'__asm__(".incbin \\"{path}\\"");\n'.encode()
        done = run(("gcc", "-c", "k.c"), files={"k.c": source}, bounds=build.BOUNDS)
        assert (done.status == 0) == there, (path, done.err)
    assert not any(path in ("/", "/usr", "/etc", "/usr/lib", "/lib") for path in toolchain().shows.paths)


def test_programs_are_linked_in_the_jail(tmp_path: Path) -> None:
    made = Programs(PROBLEM, tmp_path).make("#include <math.h>\n" + ENTRY, ("-O2",))
    assert made.path.stat().st_mode & 0o777 == 0o755
    assert made.path.read_bytes()[:4] == b"\x7fELF"


def test_another_object_is_another_program(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Another compiler makes another object of the same source and flags, under the same name."""
    first = Programs(PROBLEM, tmp_path).make(ENTRY, ("-O2",))
    kept = first.path.read_bytes()
    source = tmp_path / "other.c"
    source.write_text(ENTRY)
    other = compile_object(source, tmp_path / "other", flags=("-O0",)).path.read_bytes()

    def compiled(*given: Any, **more: Any) -> Built:
        return first.built

    monkeypatch.setattr(program, "compile_object", compiled)
    assert Programs(PROBLEM, tmp_path).make(ENTRY, ("-O2",)).path == first.path
    first.built.path.write_bytes(other)
    second = Programs(PROBLEM, tmp_path).make(ENTRY, ("-O2",))
    assert second.path != first.path
    assert first.path.read_bytes() == kept
