"""Every verb, told something that cannot be: a message with what and where, status 2, and no traceback."""

from __future__ import annotations

import contextlib
import errno
import io
import os
import subprocess
import sys
import typing
from pathlib import Path
from types import SimpleNamespace

import pytest
import typer

from refork import cli
from refork.cli.failing import mendable
from support import command
from support.command import kind

#: They need nothing: alone they serve, show or grow what there is.
ALONE = {("view",), ("demo",), ("run", "status")}
#: An empty log of decisions is one in which nothing was decided.
NO_DECISION = ("route", "explain"), "empty"
#: What a verb makes where it is not there.
OUTPUTS = {"out", "tree"}


@pytest.fixture(scope="module")
def root():
    """The whole command line."""
    return typer.main.get_command(cli.app)


@pytest.fixture(scope="module")
def verbs(root):
    return dict(command.verbs(root))


@pytest.fixture
def place(tmp_path, monkeypatch):
    """A folder with things that are no input for anything."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("REFORK_HOME", str(tmp_path / "home"))
    (tmp_path / "folder").mkdir()
    (tmp_path / "empty").write_bytes(b"")
    (tmp_path / "binary").write_bytes(bytes(range(256)) * 16)
    (tmp_path / "null").write_text("null\n")
    return tmp_path


def refork(root, *typed):
    """What a command says, and its exit status; a crash is raised here."""
    out, err = io.StringIO(), io.StringIO()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sys, "argv", ["refork", *typed])
        patch.setattr(cli, "app", root)
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
            try:
                cli.main()
                status = 0
            except SystemExit as stop:
                status = stop.code or 0
    return SimpleNamespace(status=status, out=out.getvalue(), err=err.getvalue())


def refused(root, *typed):
    """Run what must be refused, and return nothing but what is wrong with how it is."""
    before = _there()
    try:
        done = refork(root, *typed)
    except Exception as error:
        return f"{' '.join(typed)}: {type(error).__name__}: {error}"
    said = " ".join(done.err.split())
    if left := _there() - before:
        return f"{' '.join(typed)}: leaves {', '.join(sorted(left))}"
    if done.status == 2 and ("error: " in said or "Error" in said or "Usage" in said):
        return None
    return f"{' '.join(typed)}: status {done.status}: {said[-200:] or done.out[-200:]}"


def _there():
    """What lies here beside the records of runs."""
    return {one.name for one in Path().iterdir()} - {"home"}


def value(param):
    """Something of a parameter's type, which names nothing that there is."""
    choices = typing.get_args(param.type_descriptor.annotation) if "literal" in kind(param) else ()
    if choices:
        return str(choices[0])
    known = {"int": "1", "float": "0.5", "path": "missing"}
    found = next((one for name, one in known.items() if name in kind(param)), "unknown-thing")
    return "made" if param.name in OUTPUTS and found == "missing" else found


def typed(path, verb, /, **given):
    """A verb with a value for all that it needs, and those that are given."""
    words = list(path)
    for param in verb.params:
        if (told := given.get(param.name, value(param) if param.required else None)) is None:
            continue
        words += [told] if param.param_type_name == "argument" else [param.opts[0], told]
    return words


def test_nothing_and_an_option_that_there_is_not(root, verbs, place):
    wrong = []
    for path, verb in verbs.items():
        wrong.append(refused(root, *path, "--no-such-option"))
        if path not in ALONE and any(param.required for param in verb.params):
            wrong.append(refused(root, *path))
    wrong += [refused(root, "no-such-noun"), refused(root, "tree", "no-such-verb")]
    assert not (found := [one for one in wrong if one is not None]), "\n".join(found)


def test_a_number_that_is_none(root, verbs, place):
    wrong = [
        refused(root, *typed(path, verb, **{param.name: "many"}))
        for path, verb in verbs.items()
        for param in verb.params
        if any(name in kind(param) for name in ("'int'", "'float'"))
    ]
    assert not (found := [one for one in wrong if one is not None]), "\n".join(found)


@pytest.mark.parametrize("what", ["missing", "folder", "empty", "binary", "null", "empty/under", "x" * 300])
def test_a_first_file_that_is_none(root, verbs, place, what):
    wrong = []
    for path, verb in verbs.items():
        files = [p for p in verb.params if p.required and "path" in kind(p) and p.name != "out"]
        if files and (path, what) != NO_DECISION:
            wrong.append(refused(root, *typed(path, verb, **{files[0].name: what})))
    assert not (found := [one for one in wrong if one is not None]), "\n".join(found)


def test_a_folder_that_cannot_be_written_is_the_users_to_mend(root, place, monkeypatch):
    real = Path.mkdir

    def refuse(folder, *arguments, **named):
        if folder.name == "closed":
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), str(folder))
        real(folder, *arguments, **named)

    monkeypatch.setattr(Path, "mkdir", refuse)
    done = refork(root, "grow", "--world", "lock", "--policy", "scripted:lock", "--out", "closed")
    assert done.status == 2
    assert "the system refuses: Permission denied (closed)" in done.err
    assert "next: name another one" in done.err


@pytest.mark.parametrize(
    ("number", "file", "typed", "mended"),
    [
        (errno.ENOSPC, "/elsewhere/x", [], True),
        (errno.EACCES, "/elsewhere/x", [], True),
        (errno.ENOENT, "/elsewhere/x", ["--out=there"], False),  # a file of ours that is not there is our bug
        (errno.ENOENT, "there", ["--out=there"], True),
        (errno.ENAMETOOLONG, "there/under", ["there"], True),
        (errno.ENOTDIR, "a/b", ["a/b/c"], True),
        (errno.ENOTDIR, "a/.b.new", ["a/b"], True),
        (errno.EIO, "there", ["there"], False),
    ],
)
def test_what_the_system_refuses_is_the_users_only_where_the_user_named_it(
    place, number, file, typed, mended
):
    found = mendable(OSError(number, os.strerror(number), file), typed)
    assert (found is not None) is mended
    assert mendable(OSError("no number"), typed) is None


def test_a_reader_that_goes_away_leaves_no_traceback(place):
    script = str(Path(sys.executable).with_name("refork"))
    line = f"{script} world list --json | head -c 1 > /dev/null"
    done = subprocess.run(["bash", "-c", line], capture_output=True, text=True, timeout=900, check=False)
    assert done.stderr == ""


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="this system has no /dev/full")
@pytest.mark.parametrize("asked", ["world list --json", "--version"])
def test_a_full_disk_behind_the_output_is_told(place, asked):
    script = str(Path(sys.executable).with_name("refork"))
    line = f"{script} {asked} > /dev/full"
    done = subprocess.run(["bash", "-c", line], capture_output=True, text=True, timeout=900, check=False)
    assert done.returncode == 2
    assert done.stderr.startswith("error: the system refuses: No space left on device (what is written)")
    assert len(done.stderr.splitlines()) == 2
