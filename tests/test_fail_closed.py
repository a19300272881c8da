"""Where there is no wall, no code of a model or a stranger runs; the flag to go without says what is open."""

from __future__ import annotations

import shutil
import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner

from refork.errors import BadInput
from refork.sandbox import Sandbox, UnconfinedWarning
from refork.sandbox.inside import landlock, seccomp
from refork.sandbox.shell import Shell, ShellState
from refork_methods.theory.commands import app
from support.foreign_code import ENTRIES, TOOL, tried

pytestmark = pytest.mark.skipif(
    sys.platform != "linux" or seccomp.here() is None, reason="needs Linux with seccomp, to take it away"
)


def skip_where_it_cannot_run(name: str) -> None:
    if name == "a kernel":
        pytest.importorskip("tree_sitter_c", reason="the extra 'languages' is not installed")
        if not all(map(shutil.which, ("gcc", "objcopy"))):
            pytest.skip("needs gcc and binutils")
    if name == "the world swe" and not shutil.which("git"):
        pytest.skip("needs git")
    if name == "the world swe" and Path(sys.prefix).is_relative_to("/tmp"):
        pytest.skip("this Python lies in /tmp, which commands in the sandbox have for themselves")


@pytest.mark.parametrize("name", ENTRIES)
def test_nothing_runs_without_a_wall(name: str, tmp_path: Path) -> None:
    """Each entry runs here, and where seccomp, Landlock and namespaces are missing it says what is."""
    skip_where_it_cannot_run(name)
    (tmp_path / "a").mkdir()
    (tmp_path / "b").mkdir()
    assert tried(ENTRIES[name], tmp_path / "a") == "ran"
    without = tried(ENTRIES[name], tmp_path / "b", "seccomp", "landlock", "namespaces")
    assert without.startswith("refused: "), without


def test_what_held_for_an_earlier_process_is_not_taken_for_granted(tmp_path: Path) -> None:
    """A sandbox that has run here is inherited by a fork from which the walls are taken."""
    source = 'def four(apis, tools) -> int:\n    """Four."""\n    return 4\n'
    with Sandbox() as sandbox:
        assert sandbox.run(source, "four", {}).value == 4
        without = tried(lambda _: sandbox.run(source, "four", {}), tmp_path, "seccomp")
    assert without.startswith("refused: generated code cannot be confined here"), without


@pytest.mark.parametrize("name", ["a tool in the sandbox", "a shell", "a tool that reads foreign files"])
@pytest.mark.parametrize(
    ("missing", "ran"),
    [
        ("landlock", {"a tool in the sandbox", "a shell", "a tool that reads foreign files"}),
        ("namespaces", {"a tool in the sandbox", "a shell", "a tool that reads foreign files"}),
        ("seccomp", set()),
        ("landlock namespaces", {"a tool in the sandbox"}),
    ],
)
def test_one_whole_wall_is_enough_and_half_of_one_is_none(
    name: str, missing: str, ran: set[str], tmp_path: Path
) -> None:
    if landlock.version() < 6 and "landlock" not in missing:
        pytest.skip("Landlock is missing here in any case")
    told = tried(ENTRIES[name], tmp_path, *missing.split())  # type: ignore[arg-type]
    assert told == "ran" if name in ran else told.startswith("refused: "), told
    assert name in ran or any(part in told for part in ("seccomp", "Landlock", "unshare")), told


def test_the_flag_says_what_is_open(tmp_path: Path) -> None:
    def open_sandbox(_: Path) -> object:
        told = pytest.warns(UnconfinedWarning, match="open to it: files, network, processes")
        with told, Sandbox(unconfined=True) as sandbox:
            return sandbox.run(TOOL.source, "shout", {"text": "x"}).value

    def open_shell(_: Path) -> object:
        with pytest.warns(UnconfinedWarning, match="open to it: files, network and processes"):
            return Shell(unconfined=True).run(ShellState(), "echo x").output

    for entry in (open_sandbox, open_shell):
        assert tried(entry, tmp_path, "seccomp", "landlock", "namespaces") == "ran"


def test_the_flag_of_the_command_line_is_of_the_same_name(tmp_path: Path) -> None:
    def verb(_: Path) -> object:
        words = ["power", "seed:wadd", "tallying", "--designs", "1", "--people", "4", "--unconfined"]
        with pytest.warns(UnconfinedWarning):
            return CliRunner().invoke(app, words, catch_exceptions=False).exit_code in (0, 1)

    assert tried(verb, tmp_path, "seccomp", "landlock", "namespaces") == "ran"


def test_where_walls_hold_the_flag_opens_none() -> None:
    with Sandbox(unconfined=True) as sandbox:
        assert sandbox.run("def f(apis, tools): return 1\n", "f", {}).value == 1
        assert {"rlimits", "seccomp"} <= {layer.name for layer in sandbox.layers if layer.on}
    for needed in ("seccomp", "rlimits"):
        with pytest.raises(BadInput, match=f"nothing runs without '{needed}'"):
            Sandbox(off=(needed,))
